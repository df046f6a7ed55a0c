"""Channels: who gets a message, and that somebody does."""

from __future__ import annotations

import asyncio

import pytest

from romancy.errors import ChannelModeConflictError, ChannelNotSubscribedError, RomancyError, StoreError
from romancy.model.history import Kind, Outcome
from romancy.model.status import Status
from romancy.model.talk import ChannelMode, Message, Publish, SendTo, Unsubscribe
from romancy.model.transition import Applied, Ending, Post, Refused, RequestKind, Wait, WaitKind
from romancy.serde.talk import message_json
from romancy.store.port import Store
from romancy.testing.conformance.actors import Actor, actors, said, subscribers, tell
from romancy.testing.conformance.builders import (
    ME,
    ORDER,
    MakeStore,
    entry,
    message,
    publish,
    receive,
    request,
    row,
    send,
    send_to,
    subscribe,
    worker,
    write,
)

BROADCAST, COMPETING, DIRECT = ChannelMode.BROADCAST, ChannelMode.COMPETING, ChannelMode.DIRECT


async def unclaimed(store: Store) -> int:
    """How many messages nobody has taken; they are gone afterwards."""
    return await store.forget(events_before=0, messages_before=999, limit=99)


class TestChannels:
    """Subscriptions and their modes."""

    async def test_a_subscription_is_recorded(self, store: Store) -> None:
        (a,) = await actors(store, "a")
        asked = subscribe()
        answer = await a.write(asks=(asked,))
        assert (said(answer.replies), answer.held) == ({"subscribe:jobs": None}, True)
        (recorded,) = await store.history("a", 1, after=0, limit=9)
        assert recorded == asked.entry._replace(seq=1)
        assert (recorded.kind, recorded.outcome) == (Kind.SUBSCRIBE, Outcome.OK)

    async def test_nobody_receives_without_one(self, store: Store) -> None:
        (a,) = await actors(store, "a")
        await tell(store, publish())
        assert await a.ask(receive()) == {"jobs:1": ChannelNotSubscribedError}
        assert await a.ask(subscribe("other"), hold=True) == {"subscribe:other": None}
        assert await a.ask(receive()) == {"jobs:1": ChannelNotSubscribedError}

    @pytest.mark.parametrize(("first", "second"), [(BROADCAST, COMPETING), (COMPETING, BROADCAST)])
    async def test_a_channel_has_one_mode(self, store: Store, first: ChannelMode, second: ChannelMode) -> None:
        await subscribers(store, "a", mode=first)
        b, c = await actors(store, "b", "c")
        assert await b.ask(subscribe(mode=second)) == {"subscribe:jobs": ChannelModeConflictError}
        assert await b.ask(receive()) == {"jobs:1": ChannelNotSubscribedError}
        assert await b.ask(subscribe("jobs 2", second)) == {"subscribe:jobs 2": None}
        assert await c.ask(subscribe(mode=first)) == {"subscribe:jobs": None}

    @pytest.mark.parametrize("mode", [BROADCAST, COMPETING])
    async def test_direct_stands_beside_the_modes(self, store: Store, mode: ChannelMode) -> None:
        await subscribers(store, "a", mode=DIRECT)
        b, c = await actors(store, "b", "c")
        assert await b.ask(subscribe(mode=mode)) == {"subscribe:jobs": None}
        assert await c.ask(subscribe(mode=DIRECT)) == {"subscribe:jobs": None}

    @pytest.mark.parametrize("mode", list(ChannelMode))
    async def test_the_same_again_changes_nothing(self, store: Store, mode: ChannelMode) -> None:
        (a,) = await subscribers(store, "a", mode=mode)
        await tell(store, send("a") if mode is DIRECT else publish())
        assert await a.ask(subscribe(mode=mode)) == {"subscribe:jobs": None}
        assert await a.ask(receive()) == {"jobs:1": "one"}
        assert await a.ask(receive(op="jobs:2")) == {}

    @pytest.mark.parametrize("mode", [BROADCAST, COMPETING])
    async def test_an_instance_has_one_mode_in_a_channel(self, store: Store, mode: ChannelMode) -> None:
        (a,) = await subscribers(store, "a", mode=DIRECT)
        assert await a.ask(subscribe(mode=mode)) == {"subscribe:jobs": ChannelModeConflictError}
        (b,) = await subscribers(store, "b", mode=mode)
        assert await b.ask(subscribe(mode=DIRECT)) == {"subscribe:jobs": ChannelModeConflictError}

    @pytest.mark.parametrize("how", ["unsubscribe", "end", "terminate"])
    async def test_the_mode_is_free_when_the_last_subscriber_has_gone(self, store: Store, how: str) -> None:
        a, b = await subscribers(store, "a", "b", mode=BROADCAST)
        (c,) = await actors(store, "c")
        await a.end()
        assert await c.ask(subscribe(mode=COMPETING), hold=True) == {"subscribe:jobs": ChannelModeConflictError}
        await _go(b, how)
        assert await c.ask(subscribe(mode=COMPETING)) == {"subscribe:jobs": None}

    async def test_two_stores_agree_on_the_mode(self, store: Store, make_store: MakeStore) -> None:
        other = await make_store()
        mine, theirs = await actors(store, "a", "b")
        theirs.store = other
        for n in range(10):
            channel = f"c{n}"
            told = await asyncio.gather(mine.ask(subscribe(channel, BROADCAST)), theirs.ask(subscribe(channel, COMPETING)))
            refused = [one for answer in told for one in answer.values() if one is ChannelModeConflictError]
            assert len(refused) == 1

    async def test_what_was_not_read_is_gone_with_the_subscription(self, store: Store) -> None:
        (a,) = await subscribers(store, "a", mode=BROADCAST)
        await tell(store, publish())
        await tell(store, send("a", "two"))
        await a.do(Unsubscribe("jobs"), now=40)
        assert await a.ask(receive(), now=41) == {"jobs:1": ChannelNotSubscribedError}
        assert await a.ask(subscribe(), now=42) == {"subscribe:jobs": None}
        assert await a.ask(receive(op="jobs:2"), now=43) == {}

    async def test_unsubscribing_ends_a_wait_of_ones_own(self, store: Store) -> None:
        (a,) = await subscribers(store, "a")
        await a.ask(receive(), hold=True)
        assert (await a.write(now=30, deeds=(Unsubscribe("jobs"),))).held, "it would wait for ever"
        assert await a.called() == ("jobs:1",)
        assert await a.ask(receive(), now=31) == {"jobs:1": ChannelNotSubscribedError}

    async def test_unsubscribing_leaves_calls_for_other_channels_alone(self, store: Store) -> None:
        (a,) = await subscribers(store, "a")
        await a.ask(subscribe("mail", COMPETING), subscribe("news", BROADCAST), hold=True)
        waits = (receive(), receive("mail"), receive("news"))
        await a.ask(*waits, hold=True)
        for channel in ("mail", "news"):
            assert (await tell(store, publish(channel, channel))).woken == ("a",)
        await a.do(Unsubscribe("jobs"), now=40)
        assert sorted(await a.called()) == ["jobs:1", "mail:1", "news:1"]
        assert await a.ask(receive("mail"), now=41) == {"mail:1": "mail"}
        assert await a.ask(receive("news"), now=42) == {"news:1": "news"}


class TestBroadcast:
    """To everybody who has subscribed when it is published."""

    async def test_each_subscriber_gets_each_message_once_and_in_order(self, store: Store) -> None:
        a, b = await subscribers(store, "a", "b", mode=BROADCAST)
        for word in ("one", "two", "three"):
            assert (await tell(store, publish(word))).woken == ()
        for each in (a, b):
            heard = [await each.ask(receive(op=f"jobs:{n}")) for n in range(1, 5)]
            assert heard == [{"jobs:1": "one"}, {"jobs:2": "two"}, {"jobs:3": "three"}, {}]
        assert await unclaimed(store) == 0

    async def test_who_waits_is_woken(self, store: Store) -> None:
        a, b, c = await subscribers(store, "a", "b", "c", mode=BROADCAST)
        for one in (a, b):
            await one.ask(receive())
        stored = await store.get("a")
        assert stored is not None
        assert stored.waits == (Wait("jobs:1", WaitKind.MESSAGE, 20, None, "jobs", site="app.py:7"),)
        answer = await tell(store, publish(now=30))
        assert sorted(answer.woken) == ["a", "b"]
        assert [one for one, _ in await store.upcoming([ORDER], until=30, limit=9)] == ["a", "b"]
        assert await a.called() == ("jobs:1",)
        for one in (a, b, c):
            assert await one.ask(receive(), now=40) == {"jobs:1": "one"}

    async def test_later_subscribers_get_later_messages(self, store: Store) -> None:
        await subscribers(store, "a", mode=BROADCAST)
        await tell(store, publish("one"))
        (b,) = await subscribers(store, "b", mode=BROADCAST)
        assert await b.ask(receive()) == {}
        await tell(store, publish("two"))
        assert await b.ask(receive()) == {"jobs:1": "two"}

    async def test_only_its_channel_gets_it(self, store: Store) -> None:
        (a,) = await subscribers(store, "a", mode=BROADCAST)
        await a.ask(receive())
        assert (await tell(store, publish(channel="Jobs"))).woken == ()
        assert await a.ask(receive()) == {}

    async def test_what_is_recorded_tells_everything(self, store: Store) -> None:
        (a,) = await subscribers(store, "a", mode=BROADCAST)
        full = Message("m-é", "jobs", bytes(range(256)), binary=True, metadata=b'{"n": [1]}', sender="b")
        await tell(store, Post(Publish(full), now=30))
        (reply,) = (await a.write(asks=(receive(),))).replies
        assert (reply.seq, reply.outcome, reply.value) == (2, Outcome.OK, message_json(full, 30))

    async def test_a_workflow_publishes_in_its_commit(self, store: Store) -> None:
        a, b = await subscribers(store, "a", "b", mode=BROADCAST)
        await b.ask(receive())
        words = tuple(Publish(message(word)) for word in ("one", "two"))
        made = await a.made(now=30, deeds=words, asks=(receive(),))
        answer = a.learn(made, (await write(store, made))[0])
        assert (said(answer.replies), answer.woken) == ({"jobs:1": "one"}, ("b",))
        assert await write(store, made) == [Refused(Status.RUNNING)]
        assert [await b.ask(receive(op=f"jobs:{n}"), now=40) for n in (1, 2, 3)] == [
            {"jobs:1": "one"},
            {"jobs:2": "two"},
            {},
        ]
        assert await a.ask(receive(op="jobs:2"), now=40) == {"jobs:2": "two"}

    async def test_a_running_instance_is_not_released_past_it(self, store: Store) -> None:
        (a,) = await subscribers(store, "a", mode=BROADCAST)
        await a.ask(receive(), hold=True)
        seen = (await store.inbox("a")).signal
        await tell(store, publish())
        assert await store.arrivals(ME) == ["a"]
        assert (await a.write(now=40, seen=seen)).held
        assert await a.ask(receive(), now=41) == {"jobs:1": "one"}

    async def test_waits_of_one_instance_never_share_a_message(self, store: Store) -> None:
        (a,) = await subscribers(store, "a", mode=BROADCAST)
        both = (receive(op="jobs:1"), receive(op="jobs:2"))
        await a.ask(*both)
        await tell(store, publish("one"))
        await tell(store, publish("two"))
        assert await a.ask(*both, now=40) == {"jobs:1": "one"}
        assert await a.ask(both[1], now=40) == {"jobs:2": "two"}

    @pytest.mark.parametrize("message_first", [True, False])
    async def test_both_in_one_batch(self, store: Store, *, message_first: bool) -> None:
        (a,) = await subscribers(store, "a", mode=BROADCAST)
        asking, coming = await a.made(asks=(receive(),)), publish(now=20)
        answers = await write(store, *((coming, asking) if message_first else (asking, coming)))
        heard = said(a.learn(asking, answers[1 if message_first else 0]).replies)
        assert (heard or await a.ask(receive(), now=30)) == {"jobs:1": "one"}

    async def test_what_the_database_refuses_fails_alone(self, store: Store) -> None:
        a, b = await subscribers(store, "a", "b", mode=BROADCAST)
        await tell(store, publish("one"))
        bad = await a.made(asks=(receive(),), deeds=(Publish(message("never")),), history=(entry(2), entry(2)))
        broken = publish("x", "\ud800")
        answers = await store.commit([bad, publish("two"), broken, await b.made(asks=(receive(),))])
        assert [isinstance(answer, StoreError) for answer in answers] == [True, False, True, False]
        assert isinstance(answers[3], Applied)
        b.owned, b.length = answers[3].held, b.length + 1
        assert said(answers[3].replies) == {"jobs:1": "one"}
        assert await b.ask(receive(op="jobs:2"), now=40) == {"jobs:2": "two"}
        assert await b.ask(receive(op="jobs:3"), now=41) == {}
        heard = [await a.ask(receive(op=f"jobs:{n}"), now=40) for n in (1, 2, 3)]
        assert heard == [{"jobs:1": "one"}, {"jobs:2": "two"}, {}]

    @pytest.mark.parametrize("how", ["pause", "block"])
    async def test_who_is_at_rest_finds_it_later(self, store: Store, how: str) -> None:
        (a,) = await subscribers(store, "a", mode=BROADCAST)
        await a.ask(receive(), hold=how == "block")
        await _rest(a, how)
        await tell(store, publish(now=40))
        assert (await row(store, "a")).wake_at is None
        await write(store, request(RequestKind.RESUME, now=50))
        await a.claimed(now=50)
        assert await a.ask(receive(), now=51) == {"jobs:1": "one"}


class TestCompeting:
    """To exactly one of those who have subscribed; the longest waiting is called first, and replaced if it does not come."""

    async def test_one_gets_it(self, store: Store) -> None:
        a, b = await subscribers(store, "a", "b")
        for word in ("one", "two", "three"):
            await tell(store, publish(word))
        assert await a.ask(receive(op="jobs:1")) == {"jobs:1": "one"}
        assert await b.ask(receive(op="jobs:1")) == {"jobs:1": "two"}
        assert await a.ask(receive(op="jobs:2")) == {"jobs:2": "three"}
        assert await b.ask(receive(op="jobs:2")) == {}
        assert await unclaimed(store) == 0

    async def test_it_is_kept_while_nobody_is_there(self, store: Store) -> None:
        await tell(store, publish("one", now=5))
        await tell(store, publish("two", now=6))
        (a,) = await subscribers(store, "a")
        assert await a.ask(receive()) == {"jobs:1": "one"}
        await a.end()
        (b,) = await subscribers(store, "b")
        assert await b.ask(receive()) == {"jobs:1": "two"}

    async def test_what_nobody_takes_is_forgotten_the_oldest_first(self, store: Store) -> None:
        for n in range(1, 6):
            await tell(store, publish(f"m{n}", now=20 + n))
        assert await store.forget(events_before=0, messages_before=24, limit=2) == 2
        assert await store.forget(events_before=0, messages_before=24, limit=2) == 1
        assert await store.forget(events_before=0, messages_before=24, limit=2) == 0
        (a,) = await subscribers(store, "a")
        heard = [await a.ask(receive(op=f"jobs:{n}"), now=40) for n in (1, 2, 3)]
        assert heard == [{"jobs:1": "m4"}, {"jobs:2": "m5"}, {}]

    async def test_what_somebody_has_to_read_is_not_forgotten(self, store: Store) -> None:
        (a,) = await subscribers(store, "a", mode=BROADCAST)
        await tell(store, publish("one"))
        await tell(store, send("a", "two"))
        assert await unclaimed(store) == 0
        assert await a.ask(receive()) == {"jobs:1": "one"}
        assert await a.ask(receive(op="jobs:2")) == {"jobs:2": "two"}

    async def test_the_longest_waiting_is_called_first(self, store: Store) -> None:
        a, b, c = await subscribers(store, "a", "b", "c")
        for one, since in ((b, 20), (c, 21), (a, 22)):
            await one.ask(receive(since=since), now=since)
        called = [(await tell(store, publish(f"m{n}", now=30 + n))).woken for n in range(4)]
        assert called == [("b",), ("c",), ("a",), ()]
        for one, heard in ((a, "m0"), (b, "m1"), (c, "m2")):
            assert await one.ask(receive(), now=40) == {"jobs:1": heard}, "who comes first is served first"
        assert await a.ask(receive(op="jobs:2"), now=41) == {"jobs:2": "m3"}

    async def test_who_was_called_in_vain_keeps_its_place(self, store: Store) -> None:
        a, b, c = await subscribers(store, "a", "b", "c")
        await a.ask(receive(since=20), now=20)
        await b.ask(receive(since=21), now=21)
        assert (await tell(store, publish("one", now=30))).woken == ("a",)
        assert await c.ask(receive(since=31), now=31) == {"jobs:1": "one"}
        assert await a.ask(receive(since=20), now=32) == {}
        assert await a.called() == ()
        assert (await tell(store, publish("two", now=40))).woken == ("a",)

    @pytest.mark.parametrize("how", ["end", "terminate", "unsubscribe", "withdraw", "pause", "block", "recur"])
    async def test_who_cannot_come_is_replaced(self, store: Store, how: str) -> None:
        a, b = await subscribers(store, "a", "b")
        await a.ask(receive(since=20), now=20, hold=how == "block")
        await b.ask(receive(since=21), now=21)
        assert (await tell(store, publish(now=30))).woken == ("a",)
        assert await b.called() == ()
        answer = await (_rest(a, how) if how in ("pause", "block") else _go(a, how))
        assert "b" in answer.woken
        assert await b.called() == ("jobs:1",)
        assert await store.upcoming([ORDER], until=50, limit=9) == [("b", (await row(store, "b")).wake_at)]
        assert await b.ask(receive(), now=60) == {"jobs:1": "one"}

    async def test_whose_code_nobody_has_is_replaced(self, store: Store) -> None:
        a, b = await subscribers(store, "a", "b")
        await a.ask(receive(since=20), now=20)
        await b.ask(receive(since=21), now=21, hold=True)
        assert (await tell(store, publish(now=30))).woken == ("a",)
        assert await store.strand([ORDER], due_before=40, now=50, limit=9) == 1
        assert (await row(store, "a")).status is Status.BLOCKED
        assert await b.called() == ("jobs:1",)

    async def test_whose_worker_is_gone_is_replaced(self, store: Store) -> None:
        a, b, c = await subscribers(store, "a", "b", "c")
        await store.enlist(worker(ME, beat_at=10))
        for one, since in ((a, 20), (b, 21)):
            await one.ask(receive(since=since), now=since, hold=True)
        await c.ask(receive(since=22), now=22)
        assert (await tell(store, publish("one"))).woken == ("a",)
        assert (await tell(store, publish("two"))).woken == ("b",)
        assert await store.sweep([(ME, 10)], now=50, limit=9) == 2
        assert await c.called() == ("jobs:1",)
        heard = [await c.ask(receive(), now=51)]
        await a.claimed(now=52)
        heard.append(await a.ask(receive(), now=53))
        await b.claimed(now=54)
        heard.append(await b.ask(receive(), now=55))
        assert heard == [{"jobs:1": "one"}, {"jobs:1": "two"}, {}]

    async def test_a_released_instance_looks_again_if_there_is_nobody_else(self, store: Store) -> None:
        (a,) = await subscribers(store, "a")
        await a.ask(receive(), hold=True)
        await tell(store, publish())
        assert await store.release(ME, now=50) == 1
        await a.claimed(now=50)
        assert await a.ask(receive(), now=51) == {"jobs:1": "one"}

    async def test_who_has_got_another_message_is_replaced(self, store: Store) -> None:
        a, b = await subscribers(store, "a", "b")
        await a.ask(receive(since=20), now=20)
        await b.ask(receive(since=21), now=21)
        await tell(store, send("a", "mine"))
        assert (await tell(store, publish("ours"))).woken == ("b",), "a has been called already"
        await b.end(now=35)
        answer = await a.write(now=40, asks=(receive(),))
        assert (said(answer.replies)) == {"jobs:1": "mine"}
        assert await a.ask(receive(op="jobs:2"), now=41) == {"jobs:2": "ours"}

    async def test_who_takes_one_calls_for_the_next(self, store: Store) -> None:
        a, b, c, d = await subscribers(store, "a", "b", "c", "d")
        for one, since in ((a, 20), (b, 21), (c, 22), (d, 23)):
            await one.ask(receive(since=since), now=since)
        for n, called in enumerate("ab"):
            assert (await tell(store, publish(f"m{n}"))).woken == (called,)
        for one in (a, b):
            await one.end(now=40)
        heard: list[str] = []
        for one in (c, d):
            assert await one.called() == ("jobs:1",)
            heard += (await one.ask(receive(), now=50)).values()
        assert heard == ["m0", "m1"]

    @pytest.mark.parametrize("how", ["pause", "block"])
    async def test_who_is_at_rest_is_not_called(self, store: Store, how: str) -> None:
        a, b = await subscribers(store, "a", "b")
        await a.ask(receive(since=20), now=20, hold=how == "block")
        await b.ask(receive(since=21), now=21)
        await _rest(a, how)
        assert (await tell(store, publish(now=50))).woken == ("b",)

    async def test_who_goes_on_after_a_rest_finds_what_is_left(self, store: Store) -> None:
        (a,) = await subscribers(store, "a")
        await a.ask(receive())
        await _rest(a, "pause")
        assert (await tell(store, publish(now=50))).woken == ()
        await write(store, request(RequestKind.RESUME, now=60))
        await a.claimed(now=60)
        assert await a.ask(receive(), now=61) == {"jobs:1": "one"}

    async def test_a_message_that_was_forgotten_calls_nobody(self, store: Store) -> None:
        (a,) = await subscribers(store, "a")
        await a.ask(receive())
        await tell(store, publish("one"))
        assert await unclaimed(store) == 1
        assert await a.ask(receive(), now=40) == {}
        assert not a.owned
        assert (await tell(store, publish("two", now=50))).woken == ("a",)
        assert await a.ask(receive(), now=60) == {"jobs:1": "two"}

    async def test_it_is_gone_when_its_receipt_is_recorded_and_not_before(self, store: Store) -> None:
        a, b = await subscribers(store, "a", "b")
        await tell(store, publish())
        late = await a.made(asks=(receive(),))
        await store.sweep([], now=40, limit=9)
        assert await write(store, late) == [Refused(Status.PENDING)]
        await b.claimed(now=40)
        made = await b.made(asks=(receive(),), now=41)
        assert said(b.learn(made, (await write(store, made))[0]).replies) == {"jobs:1": "one"}
        assert await write(store, made) == [Refused(Status.RUNNING)]
        await a.claimed(now=42)
        assert await a.ask(receive(), now=43) == {}

    async def test_two_stores_share_the_work(self, store: Store, make_store: MakeStore) -> None:
        other = await make_store()
        a, b = await subscribers(store, "a", "b")
        b.store = other
        count = 30

        async def send(through: Store, side: str) -> None:
            for n in range(count):
                await tell(through, publish(f"{side}{n:02}"))

        taken: dict[str, list[str]] = {"a": [], "b": []}

        async def take(one: Actor) -> None:
            while len(taken["a"]) + len(taken["b"]) < 2 * count:
                taken[one.id] += (await one.ask(receive(op=f"jobs:{one.length}"))).values()

        async with asyncio.timeout(20):
            await asyncio.gather(send(store, "x"), send(other, "y"), take(a), take(b))
        everything = [f"{side}{n:02}" for side in "xy" for n in range(count)]
        assert sorted(taken["a"] + taken["b"]) == everything, "each once"
        for heard in taken.values():
            for side in "xy":
                mine = [one for one in heard if one[0] == side]
                assert mine == sorted(mine), "in the order they were sent"

    async def test_calls_across_stores_reach_everybody(self, store: Store, make_store: MakeStore) -> None:
        other = await make_store()
        waiting = await subscribers(store, *(f"i{n}" for n in range(8)))
        asking = (one.ask(receive(since=20 + n)) for n, one in enumerate(waiting))
        sending = (tell(other, publish(f"m{n}")) for n in range(8))
        told = (await asyncio.gather(asyncio.gather(*asking), asyncio.gather(*sending)))[0]
        heard = [word for answer in told for word in answer.values()]
        idle = [one for one, answer in zip(waiting, told, strict=True) if not answer]
        while idle:
            called = [one for one in idle if await one.called()]
            assert called, "there are messages for all who wait"
            for one in called:
                heard += (await one.ask(receive(), now=40)).values()
                if one.length == 2:
                    idle.remove(one)
        assert sorted(heard) == [f"m{n}" for n in range(8)]


class TestDirect:
    """To one instance, which has to live."""

    async def test_it_waits_for_a_subscription(self, store: Store) -> None:
        (a,) = await actors(store, "a")
        for word in ("one", "two"):
            assert (await tell(store, send("a", word))).woken == ()
        assert await a.ask(receive()) == {"jobs:1": ChannelNotSubscribedError}
        await a.ask(subscribe(mode=DIRECT), hold=True)
        heard = [await a.ask(receive(op=f"jobs:{n}")) for n in (1, 2, 3)]
        assert heard == [{"jobs:1": "one"}, {"jobs:2": "two"}, {}]

    async def test_who_waits_is_woken(self, store: Store) -> None:
        a, b = await subscribers(store, "a", "b", mode=DIRECT)
        for one in (a, b):
            await one.ask(receive())
        assert (await tell(store, send("a"))).woken == ("a",)
        assert await b.ask(receive()) == {}
        assert await a.ask(receive(), now=40) == {"jobs:1": "one"}

    async def test_who_is_unknown_or_has_ended_gets_nothing(self, store: Store) -> None:
        a, b, c = await actors(store, "a", "b", "c")
        await b.end()
        await _go(c, "terminate")
        posts = (send("nobody"), send("b"), send("c"))
        assert await write(store, *posts) == [
            Refused(None),
            Refused(Status.COMPLETED),
            Refused(Status.TERMINATED),
        ]
        for target in ("nobody", "b"):
            (error,) = (await a.ask(send_to(target))).values()
            assert issubclass(error, RomancyError)
        assert await a.ask(send_to("a")) == {"send_to:a": None}

    async def test_a_workflow_sends_in_its_commit(self, store: Store) -> None:
        (b,) = await subscribers(store, "b", mode=DIRECT)
        (a,) = await actors(store, "a")
        await b.ask(receive())
        answer = await a.write(now=30, asks=(send_to("b", "one"),), deeds=(SendTo(message("zero"), "b"),))
        assert (said(answer.replies), answer.woken) == ({"send_to:b": None}, ("b",))
        heard = [await b.ask(receive(op=f"jobs:{n}"), now=40) for n in (1, 2, 3)]
        assert heard == [{"jobs:1": "zero"}, {"jobs:2": "one"}, {}], "deeds come before what is asked"

    async def test_an_activity_may_send_to_who_has_gone(self, store: Store) -> None:
        (a,) = await actors(store, "a")
        answer = await a.do(SendTo(message(), "nobody"))
        assert (answer.held, answer.woken) == (True, ())

    @pytest.mark.parametrize("mode", [BROADCAST, COMPETING])
    async def test_it_joins_what_the_channel_brings(self, store: Store, mode: ChannelMode) -> None:
        a, b = await subscribers(store, "a", "b", mode=mode)
        for said_outside in (publish("one"), send("a", "two"), publish("three")):
            await tell(store, said_outside)
        heard = [await a.ask(receive(op=f"jobs:{n}")) for n in (1, 2, 3, 4)]
        assert heard == [{"jobs:1": "one"}, {"jobs:2": "two"}, {"jobs:3": "three"}, {}]
        theirs = [await b.ask(receive(op=f"jobs:{n}")) for n in (1, 2)]
        assert theirs == ([{"jobs:1": "one"}, {"jobs:2": "three"}] if mode is BROADCAST else [{}, {}])

    async def test_a_direct_subscriber_gets_nothing_that_is_published(self, store: Store) -> None:
        (a,) = await subscribers(store, "a", mode=DIRECT)
        await a.ask(receive())
        assert (await tell(store, publish())).woken == ()
        assert await a.ask(receive()) == {}

    async def test_the_end_drops_what_was_not_read(self, store: Store) -> None:
        (a,) = await subscribers(store, "a", mode=DIRECT)
        await tell(store, send("a"))
        await a.end(status=Status.FAILED)
        await write(store, request(RequestKind.RETRY, now=95))
        await a.claimed(now=95)
        assert await a.ask(receive(), now=96) == {}

    async def test_one_that_never_talked_drops_it_too(self, store: Store) -> None:
        (a,) = await actors(store, "a")
        await tell(store, send("a"))
        made = await a.made(now=40, bound=False, status=Status.FAILED, ending=Ending(error=b"error"))
        a.learn(made, (await write(store, made))[0])
        await write(store, request(RequestKind.RETRY, now=50))
        await a.claimed(now=50)
        await a.ask(subscribe(mode=DIRECT), now=51, hold=True)
        assert await a.ask(receive(), now=52) == {}


async def _go(one: Actor, how: str, *, now: int = 40) -> Applied:
    """Leave a channel for good, one way or the other."""
    match how:
        case "end":
            return await one.end(now=now)
        case "unsubscribe":
            return await one.do(Unsubscribe("jobs"), now=now)
        case "withdraw":
            return await one.write(now=now, withdrawn=("jobs:1",), hold=True)
        case "recur":
            return await one.recur(now=now)
        case _:
            (answer,) = await write(one.store, request(RequestKind.TERMINATE, one.id, now=now))
            assert isinstance(answer, Applied)
            return answer


async def _rest(one: Actor, how: str, *, now: int = 40) -> Applied:
    """Cease to run until somebody says so."""
    if how == "block":
        return await one.write(now=now, status=Status.BLOCKED, blocked_by="code-0")
    (answer,) = await write(one.store, request(RequestKind.PAUSE, one.id, now=now))
    assert isinstance(answer, Applied)
    return answer

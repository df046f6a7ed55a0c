"""Channels: the receivers of a message, and that waiting instances are woken."""

from __future__ import annotations

import asyncio

import pytest
from tests.store.conformance.builders import (
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
    write,
)
from tests.store.conformance.driver import (
    delete_unread_messages,
    leave_channel,
    new_instances,
    pause_or_block,
    said,
    subscribers,
    tell,
)

from romancy.errors import ChannelModeConflictError, ChannelNotSubscribedError, RomancyError, StoreError
from romancy.model.history import Kind, Outcome
from romancy.model.messaging import ChannelMode, Message, Publish, SendTo, Unsubscribe
from romancy.model.status import Status
from romancy.model.transition import Applied, ControlKind, Ending, PostMessage, Refused, Wait, WaitKind
from romancy.serde.messaging import message_json
from romancy.store.port import Store

BROADCAST, COMPETING, DIRECT = ChannelMode.BROADCAST, ChannelMode.COMPETING, ChannelMode.DIRECT


class TestChannels:
    """Subscriptions and their modes."""

    async def test_a_subscription_is_recorded(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        asked = subscribe()
        answer = await a.write(store_calls=(asked,))
        assert (said(answer.replies), answer.owned) == ({"subscribe:jobs": None}, True)
        (recorded,) = await store.history("a", 1, after=0, limit=9)
        assert recorded == asked.entry._replace(seq=1, worker=ME, epoch=1)
        assert (recorded.kind, recorded.outcome) == (Kind.SUBSCRIBE, Outcome.OK)

    async def test_no_instance_receives_without_one(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await tell(store, publish())
        assert await a.ask(receive()) == {"jobs:1": ChannelNotSubscribedError}
        assert await a.ask(subscribe("other"), keep_owned=True) == {"subscribe:other": None}
        assert await a.ask(receive()) == {"jobs:1": ChannelNotSubscribedError}

    @pytest.mark.parametrize(("first", "second"), [(BROADCAST, COMPETING), (COMPETING, BROADCAST)])
    async def test_a_channel_has_one_mode(self, store: Store, first: ChannelMode, second: ChannelMode) -> None:
        await subscribers(store, "a", mode=first)
        b, c = await new_instances(store, "b", "c")
        assert await b.ask(subscribe(mode=second)) == {"subscribe:jobs": ChannelModeConflictError}
        assert await b.ask(receive()) == {"jobs:1": ChannelNotSubscribedError}
        assert await b.ask(subscribe("jobs 2", second)) == {"subscribe:jobs 2": None}
        assert await c.ask(subscribe(mode=first)) == {"subscribe:jobs": None}

    @pytest.mark.parametrize("mode", [BROADCAST, COMPETING])
    async def test_direct_stands_beside_the_modes(self, store: Store, mode: ChannelMode) -> None:
        await subscribers(store, "a", mode=DIRECT)
        b, c = await new_instances(store, "b", "c")
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
        (c,) = await new_instances(store, "c")
        await a.end()
        assert await c.ask(subscribe(mode=COMPETING), keep_owned=True) == {"subscribe:jobs": ChannelModeConflictError}
        await leave_channel(b, how)
        assert await c.ask(subscribe(mode=COMPETING)) == {"subscribe:jobs": None}

    async def test_two_stores_agree_on_the_mode(self, store: Store, make_store: MakeStore) -> None:
        other = await make_store()
        mine, theirs = await new_instances(store, "a", "b")
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
        await a.ask(receive(), keep_owned=True)
        assert (await a.write(now=30, effects=(Unsubscribe("jobs"),))).owned, "otherwise it would wait for ever"
        assert await a.matched_waits() == ("jobs:1",)
        assert await a.ask(receive(), now=31) == {"jobs:1": ChannelNotSubscribedError}

    async def test_unsubscribing_leaves_calls_for_other_channels_alone(self, store: Store) -> None:
        (a,) = await subscribers(store, "a")
        await a.ask(subscribe("mail", COMPETING), subscribe("news", BROADCAST), keep_owned=True)
        waits = (receive(), receive("mail"), receive("news"))
        await a.ask(*waits, keep_owned=True)
        for channel in ("mail", "news"):
            assert (await tell(store, publish(channel, channel))).woken == ("a",)
        await a.do(Unsubscribe("jobs"), now=40)
        assert sorted(await a.matched_waits()) == ["jobs:1", "mail:1", "news:1"]
        assert await a.ask(receive("mail"), now=41) == {"mail:1": "mail"}
        assert await a.ask(receive("news"), now=42) == {"news:1": "news"}


class TestBroadcast:
    """To all instances that are subscribed when the message is published."""

    async def test_each_subscriber_gets_each_message_once_and_in_order(self, store: Store) -> None:
        a, b = await subscribers(store, "a", "b", mode=BROADCAST)
        for word in ("one", "two", "three"):
            assert (await tell(store, publish(word))).woken == ()
        for each in (a, b):
            received = [await each.ask(receive(op=f"jobs:{n}")) for n in range(1, 5)]
            assert received == [{"jobs:1": "one"}, {"jobs:2": "two"}, {"jobs:3": "three"}, {}]
        assert await delete_unread_messages(store) == 0

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
        assert await a.matched_waits() == ("jobs:1",)
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
        await tell(store, PostMessage(Publish(full), now=30))
        (reply,) = (await a.write(store_calls=(receive(),))).replies
        assert (reply.seq, reply.outcome, reply.value) == (2, Outcome.OK, message_json(full, 30))

    async def test_a_workflow_publishes_in_its_commit(self, store: Store) -> None:
        a, b = await subscribers(store, "a", "b", mode=BROADCAST)
        await b.ask(receive())
        words = tuple(Publish(message(word)) for word in ("one", "two"))
        made = await a.build(now=30, effects=words, store_calls=(receive(),))
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
        await a.ask(receive(), keep_owned=True)
        seen = (await store.inbox("a")).inbox_version
        await tell(store, publish())
        assert await store.with_unread_inbox(ME) == ["a"]
        assert (await a.write(now=40, inbox_seen=seen)).owned
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
        asking, coming = await a.build(store_calls=(receive(),)), publish(now=20)
        answers = await write(store, *((coming, asking) if message_first else (asking, coming)))
        received = said(a.learn(asking, answers[1 if message_first else 0]).replies)
        assert (received or await a.ask(receive(), now=30)) == {"jobs:1": "one"}

    async def test_what_the_database_refuses_fails_alone(self, store: Store) -> None:
        a, b = await subscribers(store, "a", "b", mode=BROADCAST)
        await tell(store, publish("one"))
        bad = await a.build(store_calls=(receive(),), effects=(Publish(message("never")),), history=(entry(2), entry(2)))
        broken = publish("x", "\ud800")
        answers = await store.commit([bad, publish("two"), broken, await b.build(store_calls=(receive(),))])
        assert [isinstance(answer, StoreError) for answer in answers] == [True, False, True, False]
        assert isinstance(answers[3], Applied)
        b.owned, b.length = answers[3].owned, b.length + 1
        assert said(answers[3].replies) == {"jobs:1": "one"}
        assert await b.ask(receive(op="jobs:2"), now=40) == {"jobs:2": "two"}
        assert await b.ask(receive(op="jobs:3"), now=41) == {}
        received = [await a.ask(receive(op=f"jobs:{n}"), now=40) for n in (1, 2, 3)]
        assert received == [{"jobs:1": "one"}, {"jobs:2": "two"}, {}]

    @pytest.mark.parametrize("how", ["pause", "block"])
    async def test_who_is_at_rest_finds_it_later(self, store: Store, how: str) -> None:
        (a,) = await subscribers(store, "a", mode=BROADCAST)
        await a.ask(receive(), keep_owned=how == "block")
        await pause_or_block(a, how)
        await tell(store, publish(now=40))
        assert (await row(store, "a")).wake_at is None
        await write(store, request(ControlKind.RESUME, now=50))
        await a.claim(now=50)
        assert await a.ask(receive(), now=51) == {"jobs:1": "one"}


class TestDirect:
    """To one instance, which must not have ended."""

    async def test_it_waits_for_a_subscription(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        for word in ("one", "two"):
            assert (await tell(store, send("a", word))).woken == ()
        assert await a.ask(receive()) == {"jobs:1": ChannelNotSubscribedError}
        await a.ask(subscribe(mode=DIRECT), keep_owned=True)
        received = [await a.ask(receive(op=f"jobs:{n}")) for n in (1, 2, 3)]
        assert received == [{"jobs:1": "one"}, {"jobs:2": "two"}, {}]

    async def test_who_unsubscribes_without_a_subscription_loses_nothing(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await tell(store, send("a", "one"))
        await a.do(Unsubscribe("jobs"), now=40)
        await a.ask(subscribe(mode=DIRECT), keep_owned=True)
        assert await a.ask(receive()) == {"jobs:1": "one"}

    async def test_who_waits_is_woken(self, store: Store) -> None:
        a, b = await subscribers(store, "a", "b", mode=DIRECT)
        for one in (a, b):
            await one.ask(receive())
        assert (await tell(store, send("a"))).woken == ("a",)
        assert await b.ask(receive()) == {}
        assert await a.ask(receive(), now=40) == {"jobs:1": "one"}

    async def test_who_is_unknown_or_has_ended_gets_nothing(self, store: Store) -> None:
        a, b, c = await new_instances(store, "a", "b", "c")
        await b.end()
        await leave_channel(c, "terminate")
        posts = (send("unknown"), send("b"), send("c"))
        assert await write(store, *posts) == [
            Refused(None),
            Refused(Status.COMPLETED),
            Refused(Status.TERMINATED),
        ]
        for target in ("unknown", "b"):
            (error,) = (await a.ask(send_to(target))).values()
            assert issubclass(error, RomancyError)
        assert await a.ask(send_to("a")) == {"send_to:a": None}

    async def test_a_workflow_sends_in_its_commit(self, store: Store) -> None:
        (b,) = await subscribers(store, "b", mode=DIRECT)
        (a,) = await new_instances(store, "a")
        await b.ask(receive())
        answer = await a.write(now=30, store_calls=(send_to("b", "one"),), effects=(SendTo(message("zero"), "b"),))
        assert (said(answer.replies), answer.woken) == ({"send_to:b": None}, ("b",))
        received = [await b.ask(receive(op=f"jobs:{n}"), now=40) for n in (1, 2, 3)]
        assert received == [{"jobs:1": "zero"}, {"jobs:2": "one"}, {}], "effects are carried out before store calls"

    async def test_an_activity_may_send_to_who_has_gone(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        answer = await a.do(SendTo(message(), "unknown"))
        assert (answer.owned, answer.woken) == (True, ())

    @pytest.mark.parametrize("mode", [BROADCAST, COMPETING])
    async def test_it_joins_what_the_channel_brings(self, store: Store, mode: ChannelMode) -> None:
        a, b = await subscribers(store, "a", "b", mode=mode)
        for said_outside in (publish("one"), send("a", "two"), publish("three")):
            await tell(store, said_outside)
        received = [await a.ask(receive(op=f"jobs:{n}")) for n in (1, 2, 3, 4)]
        assert received == [{"jobs:1": "one"}, {"jobs:2": "two"}, {"jobs:3": "three"}, {}]
        theirs = [await b.ask(receive(op=f"jobs:{n}")) for n in (1, 2)]
        assert theirs == ([{"jobs:1": "one"}, {"jobs:2": "three"}] if mode is BROADCAST else [{}, {}])

    @pytest.mark.parametrize("mode", [BROADCAST, COMPETING])
    async def test_a_direct_subscriber_gets_nothing_that_is_published(self, store: Store, mode: ChannelMode) -> None:
        (a,) = await subscribers(store, "a", mode=DIRECT)
        (b,) = await subscribers(store, "b", mode=mode)
        await a.ask(receive())
        assert (await tell(store, publish())).woken == ()
        assert await a.ask(receive()) == {}
        assert await b.ask(receive()) == {"jobs:1": "one"}

    async def test_the_end_drops_what_was_not_read(self, store: Store) -> None:
        (a,) = await subscribers(store, "a", mode=DIRECT)
        await tell(store, send("a"))
        await a.end(status=Status.FAILED)
        await write(store, request(ControlKind.RETRY, now=95))
        await a.claim(now=95)
        assert await a.ask(receive(), now=96) == {}

    async def test_one_that_never_talked_drops_it_too(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await tell(store, send("a"))
        made = await a.build(now=40, has_messaging_state=False, status=Status.FAILED, ending=Ending(error=b"error"))
        a.learn(made, (await write(store, made))[0])
        await write(store, request(ControlKind.RETRY, now=50))
        await a.claim(now=50)
        await a.ask(subscribe(mode=DIRECT), now=51, keep_owned=True)
        assert await a.ask(receive(), now=52) == {}

"""Channels whose messages go to exactly one subscriber."""

from __future__ import annotations

import asyncio

import pytest
from tests.store.conformance.builders import (
    ME,
    ORDER,
    MakeStore,
    publish,
    receive,
    request,
    row,
    send,
    worker,
    write,
)
from tests.store.conformance.driver import (
    DrivenInstance,
    delete_unread_messages,
    leave_channel,
    pause_or_block,
    said,
    subscribers,
    tell,
)

from romancy.model.messaging import ChannelMode
from romancy.model.status import Status
from romancy.model.transition import ControlKind, Refused
from romancy.store.port import Store

BROADCAST = ChannelMode.BROADCAST


class TestCompeting:
    """To exactly one subscriber: the longest waiting is woken first, and replaced if it cannot receive the message."""

    async def test_one_gets_it(self, store: Store) -> None:
        a, b = await subscribers(store, "a", "b")
        for word in ("one", "two", "three"):
            await tell(store, publish(word))
        assert await a.ask(receive(op="jobs:1")) == {"jobs:1": "one"}
        assert await b.ask(receive(op="jobs:1")) == {"jobs:1": "two"}
        assert await a.ask(receive(op="jobs:2")) == {"jobs:2": "three"}
        assert await b.ask(receive(op="jobs:2")) == {}
        assert await delete_unread_messages(store) == 0

    async def test_it_is_kept_while_there_is_no_subscriber(self, store: Store) -> None:
        await tell(store, publish("one", now=5))
        await tell(store, publish("two", now=6))
        (a,) = await subscribers(store, "a")
        assert await a.ask(receive()) == {"jobs:1": "one"}
        await a.end()
        (b,) = await subscribers(store, "b")
        assert await b.ask(receive()) == {"jobs:1": "two"}

    async def test_unread_messages_are_deleted_the_oldest_first(self, store: Store) -> None:
        for n in range(1, 6):
            await tell(store, publish(f"m{n}", now=20 + n))
        assert await store.prune_messaging(events_before=0, messages_before=24, limit=2) == 2
        assert await store.prune_messaging(events_before=0, messages_before=24, limit=2) == 1
        assert await store.prune_messaging(events_before=0, messages_before=24, limit=2) == 0
        (a,) = await subscribers(store, "a")
        received = [await a.ask(receive(op=f"jobs:{n}"), now=40) for n in (1, 2, 3)]
        assert received == [{"jobs:1": "m4"}, {"jobs:2": "m5"}, {}]

    async def test_a_message_with_a_recipient_is_not_deleted(self, store: Store) -> None:
        (a,) = await subscribers(store, "a", mode=BROADCAST)
        await tell(store, publish("one"))
        await tell(store, send("a", "two"))
        assert await delete_unread_messages(store) == 0
        assert await a.ask(receive()) == {"jobs:1": "one"}
        assert await a.ask(receive(op="jobs:2")) == {"jobs:2": "two"}

    async def test_the_longest_waiting_is_called_first(self, store: Store) -> None:
        a, b, c = await subscribers(store, "a", "b", "c")
        for one, since in ((b, 20), (c, 21), (a, 22)):
            await one.ask(receive(since=since), now=since)
        woken = [(await tell(store, publish(f"m{n}", now=30 + n))).woken for n in range(4)]
        assert woken == [("b",), ("c",), ("a",), ()]
        for one, received in ((a, "m0"), (b, "m1"), (c, "m2")):
            assert await one.ask(receive(), now=40) == {"jobs:1": received}, "the oldest message goes to the first receiver"
        assert await a.ask(receive(op="jobs:2"), now=41) == {"jobs:2": "m3"}

    async def test_who_was_called_in_vain_keeps_its_place(self, store: Store) -> None:
        a, b, c = await subscribers(store, "a", "b", "c")
        await a.ask(receive(since=20), now=20)
        await b.ask(receive(since=21), now=21)
        assert (await tell(store, publish("one", now=30))).woken == ("a",)
        assert await c.ask(receive(since=31), now=31) == {"jobs:1": "one"}
        assert await a.ask(receive(since=20), now=32) == {}
        assert await a.matched_waits() == ()
        assert (await tell(store, publish("two", now=40))).woken == ("a",)

    @pytest.mark.parametrize("how", ["end", "terminate", "unsubscribe", "withdraw", "pause", "block", "recur"])
    async def test_who_cannot_come_is_replaced(self, store: Store, how: str) -> None:
        a, b = await subscribers(store, "a", "b")
        await a.ask(receive(since=20), now=20, keep_owned=how == "block")
        await b.ask(receive(since=21), now=21)
        assert (await tell(store, publish(now=30))).woken == ("a",)
        assert await b.matched_waits() == ()
        answer = await (pause_or_block(a, how) if how in ("pause", "block") else leave_channel(a, how))
        assert "b" in answer.woken
        assert await b.matched_waits() == ("jobs:1",)
        assert await store.upcoming([ORDER], until=50, limit=9) == [("b", (await row(store, "b")).wake_at)]
        assert await b.ask(receive(), now=60) == {"jobs:1": "one"}

    @pytest.mark.parametrize("how", ["end", "terminate", "pause", "block"])
    async def test_who_waits_twice_is_not_its_own_replacement(self, store: Store, how: str) -> None:
        a, b = await subscribers(store, "a", "b")
        await a.ask(receive(op="jobs:1", since=20), receive(op="jobs:2", since=20), now=20, keep_owned=how == "block")
        await b.ask(receive(since=21), now=21)
        assert (await tell(store, publish(now=30))).woken == ("a",)
        answer = await (pause_or_block(a, how) if how in ("pause", "block") else leave_channel(a, how))
        assert answer.woken == ("b",)
        assert await b.ask(receive(), now=60) == {"jobs:1": "one"}

    async def test_unrunnable_instances_are_replaced_one_after_the_other(self, store: Store) -> None:
        a, b, c, d = await subscribers(store, "a", "b", "c", "d")
        for one, since in ((a, 20), (b, 21)):
            await one.ask(receive(since=since), now=since)
        for one, since in ((c, 22), (d, 23)):
            await one.ask(receive(since=since), now=since, keep_owned=True)
        for n, woken in enumerate("ab"):
            assert (await tell(store, publish(f"m{n}"))).woken == (woken,)
        assert await store.mark_unrunnable([ORDER], due_before=40, now=50, limit=9) == 2
        assert (await row(store, "a")).status is Status.BLOCKED
        assert await c.matched_waits() == ("jobs:1",)
        assert await c.ask(receive(since=22), now=51) == {"jobs:1": "m0"}
        assert await d.matched_waits() == ("jobs:1",), "a receipt wakes the next waiter"
        assert await d.ask(receive(since=23), now=52) == {"jobs:1": "m1"}

    @pytest.mark.parametrize("how", ["sweep", "release"])
    async def test_whose_worker_is_gone_is_replaced(self, store: Store, how: str) -> None:
        a, b, c = await subscribers(store, "a", "b", "c")
        await store.register_worker(worker(ME, heartbeat_at=10))
        for one, since in ((a, 20), (b, 21)):
            await one.ask(receive(since=since), now=since, keep_owned=True)
        await c.ask(receive(since=22), now=22)
        assert (await tell(store, publish("one"))).woken == ("a",)
        assert (await tell(store, publish("two"))).woken == ("b",)
        if how == "sweep":
            assert (await store.sweep([(ME, 10)], now=50, limit=9)).freed == 2
        else:
            assert await store.release(ME, now=50) == 2
        assert await c.matched_waits() == ("jobs:1",)
        received = [await c.ask(receive(), now=51)]
        await a.claim(now=52)
        received.append(await a.ask(receive(), now=53))
        await b.claim(now=54)
        received.append(await b.ask(receive(), now=55))
        assert received == [{"jobs:1": "one"}, {"jobs:1": "two"}, {}]

    async def test_a_released_instance_is_due_again_if_no_other_waits(self, store: Store) -> None:
        (a,) = await subscribers(store, "a")
        await a.ask(receive(), keep_owned=True)
        await tell(store, publish())
        assert await store.release(ME, now=50) == 1
        await a.claim(now=50)
        assert await a.ask(receive(), now=51) == {"jobs:1": "one"}

    async def test_who_has_got_another_message_is_replaced(self, store: Store) -> None:
        a, b = await subscribers(store, "a", "b")
        await a.ask(receive(since=20), now=20)
        await b.ask(receive(since=21), now=21)
        await tell(store, send("a", "mine"))
        assert (await tell(store, publish("ours"))).woken == ("b",), "a has been woken already"
        await b.end(now=35)
        answer = await a.write(now=40, store_calls=(receive(),))
        assert (said(answer.replies)) == {"jobs:1": "mine"}
        assert await a.ask(receive(op="jobs:2"), now=41) == {"jobs:2": "ours"}

    @pytest.mark.parametrize("how", ["pause", "block"])
    async def test_who_is_at_rest_is_not_called(self, store: Store, how: str) -> None:
        a, b = await subscribers(store, "a", "b")
        await a.ask(receive(since=20), now=20, keep_owned=how == "block")
        await b.ask(receive(since=21), now=21)
        await pause_or_block(a, how)
        assert (await tell(store, publish(now=50))).woken == ("b",)

    async def test_who_goes_on_after_a_rest_finds_what_is_left(self, store: Store) -> None:
        (a,) = await subscribers(store, "a")
        await a.ask(receive())
        await pause_or_block(a, "pause")
        assert (await tell(store, publish(now=50))).woken == ()
        await write(store, request(ControlKind.RESUME, now=60))
        await a.claim(now=60)
        assert await a.ask(receive(), now=61) == {"jobs:1": "one"}

    async def test_a_deleted_message_wakes_no_instance(self, store: Store) -> None:
        (a,) = await subscribers(store, "a")
        await a.ask(receive())
        await tell(store, publish("one"))
        assert await delete_unread_messages(store) == 1
        assert await a.ask(receive(), now=40) == {}
        assert not a.owned
        assert (await tell(store, publish("two", now=50))).woken == ("a",)
        assert await a.ask(receive(), now=60) == {"jobs:1": "two"}

    async def test_it_is_gone_when_its_receipt_is_recorded_and_not_before(self, store: Store) -> None:
        a, b = await subscribers(store, "a", "b")
        await tell(store, publish())
        late = await a.build(store_calls=(receive(),))
        await store.sweep([], now=40, limit=9)
        assert await write(store, late) == [Refused(Status.PENDING)]
        await b.claim(now=40)
        made = await b.build(store_calls=(receive(),), now=41)
        assert said(b.learn(made, (await write(store, made))[0]).replies) == {"jobs:1": "one"}
        assert await write(store, made) == [Refused(Status.RUNNING)]
        await a.claim(now=42)
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

        async def take(one: DrivenInstance) -> None:
            while len(taken["a"]) + len(taken["b"]) < 2 * count:
                taken[one.id] += (await one.ask(receive(op=f"jobs:{one.length}"))).values()

        async with asyncio.timeout(20):
            await asyncio.gather(send(store, "x"), send(other, "y"), take(a), take(b))
        everything = [f"{side}{n:02}" for side in "xy" for n in range(count)]
        assert sorted(taken["a"] + taken["b"]) == everything, "each is received once"
        for received in taken.values():
            for side in "xy":
                mine = [one for one in received if one[0] == side]
                assert mine == sorted(mine), "in the order of sending"

    async def test_calls_across_stores_reach_everybody(self, store: Store, make_store: MakeStore) -> None:
        other = await make_store()
        waiting = await subscribers(store, *(f"i{n}" for n in range(8)))
        asking = (one.ask(receive(since=20 + n)) for n, one in enumerate(waiting))
        sending = (tell(other, publish(f"m{n}")) for n in range(8))
        told = (await asyncio.gather(asyncio.gather(*asking), asyncio.gather(*sending)))[0]
        received = [word for answer in told for word in answer.values()]
        idle = [one for one, answer in zip(waiting, told, strict=True) if not answer]
        while idle:
            woken = [one for one in idle if await one.matched_waits()]
            assert woken, "there is a message for each waiting instance"
            for one in woken:
                received += (await one.ask(receive(), now=40)).values()
                if one.length == 2:
                    idle.remove(one)
        assert sorted(received) == [f"m{n}" for n in range(8)]

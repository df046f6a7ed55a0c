"""Generations, and the memberships that a retry restores."""

from __future__ import annotations

import json

import pytest
from tests.store.conformance.builders import (
    ME,
    accept,
    attempt,
    entry,
    event,
    leave,
    message,
    publish,
    receive,
    request,
    row,
    send,
    subscribe,
    wait,
    write,
)
from tests.store.conformance.driver import DrivenInstance, new_instances, subscribers, tell

from romancy.errors import ChannelNotSubscribedError
from romancy.model.history import Entry, Kind, Role
from romancy.model.messaging import ChannelMode, JoinGroup, Publish, Unsubscribe
from romancy.model.status import Status
from romancy.model.transition import AttemptUpdate, ControlKind, Recurrence, Refused, Wait, WaitKind
from romancy.store.port import Store

TIMER = Wait("timer:1", WaitKind.TIMER, since=20, due=99)
MODES = [ChannelMode.BROADCAST, ChannelMode.COMPETING, ChannelMode.DIRECT]
archived = pytest.mark.parametrize("archive", [True, False], ids=["archived", "not archived"])


class TestGenerations:
    """Recur is one commit with new input and a new history; the owner stays, and unread messages stay unread."""

    @archived
    async def test_the_next_generation_begins(self, store: Store, *, archive: bool) -> None:
        (a,) = await new_instances(store, "a", now=10)
        await a.write(now=20, history=(entry(1), entry(2)), keep_owned=True, retrying_since=15)
        answer = await a.recur(now=60, archive=archive, history=(entry(3),))
        assert (answer.owned, answer.replies) == (True, ())
        loaded = await store.load("a")
        assert loaded is not None
        one = loaded.row
        assert (one.generation, one.status, one.owner, one.epoch) == (2, Status.RUNNING, ME, 1)
        assert (one.created_at, one.updated_at, one.wake_at, one.ended_at) == (10, 60, None, None)
        assert (loaded.input, loaded.history, loaded.begun_at, one.length) == (b"next", (), 60, 0)
        stored = await store.get("a")
        assert stored is not None
        assert (stored.input, stored.row.generation) == (b"next", 2)
        await a.write(now=70, history=(entry(1),), keep_owned=True)
        assert await store.history("a", 2, after=0, limit=9) == [entry(1)]

    async def test_old_generations_are_trimmed_a_few_at_a_time(self, store: Store) -> None:
        a, b = await new_instances(store, "a", "b", now=10)
        for now in (20, 30, 40):
            await a.recur(now=now, archive=True, history=(entry(1),))
        await b.recur(now=25, archive=True, history=(entry(1),))
        assert [await store.prune_generations(over_before=40, limit=2) for _ in range(3)] == [2, 1, 0]
        assert [await store.get("a", generation) is None for generation in (1, 2, 3, 4)] == [True, True, False, False]
        assert await store.history("a", 2, after=0, limit=9) == []
        assert await store.history("a", 3, after=0, limit=9) == [entry(1)]
        assert await store.get("b", 1) is None
        assert (await row(store, "b")).generation == 2

    async def test_an_archived_generation_can_be_read(self, store: Store) -> None:
        (a,) = await new_instances(store, "a", now=10)
        await a.write(now=20, history=(entry(1),), attempts=(attempt(is_open=False),), keep_owned=True)
        await a.recur(now=60, history=(entry(2),))
        await a.recur(now=80)
        first, second = await store.get("a", 1), await store.get("a", 2)
        assert first is not None
        assert second is not None
        assert (first.row.status, first.row.generation, first.input) == (Status.RECURRED, 1, b"input")
        assert (first.row.created_at, first.row.ended_at) == (10, 60)
        assert (first.row.owner, first.waits, first.output, first.error) == (None, (), None, None)
        assert (second.row.status, second.input) == (Status.RECURRED, b"next")
        assert (second.row.created_at, second.row.ended_at) == (60, 80)
        assert await store.history("a", 1, after=0, limit=9) == [entry(1), entry(2)]
        assert [one.op for one in await store.attempts("a", 1)] == ["op-1"]
        assert await store.get("a", 3) == await store.get("a")
        assert await store.get("a", 4) is None
        assert await store.get("unknown", 1) is None

    async def test_one_that_is_not_kept_is_gone(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await a.write(now=20, history=(entry(1),), attempts=(attempt(is_open=False),), keep_owned=True)
        await a.recur(archive=False, history=(entry(2),))
        assert await store.get("a", 1) is None
        assert await store.history("a", 1, after=0, limit=9) == []
        assert await store.attempts("a", 1) == []

    async def test_what_it_waited_for_it_waits_for_no_more(self, store: Store) -> None:
        (a,) = await subscribers(store, "a")
        await a.ask(wait(), receive(), keep_owned=True, waits=(TIMER,))
        await a.write(now=50, attempts=(attempt(),), keep_owned=True)
        await a.recur(now=60)
        loaded = await store.load("a")
        assert loaded is not None
        assert (loaded.waits, loaded.attempts) == ((), ())
        assert await store.attempts("a", 1) == []
        assert (await tell(store, accept(event(), now=70))).woken == ()
        assert (await tell(store, publish(now=70))).woken == ()

    @archived
    async def test_what_arrived_is_there_for_the_next(self, store: Store, *, archive: bool) -> None:
        (a,) = await subscribers(store, "a", mode=ChannelMode.BROADCAST)
        await a.do(JoinGroup("crew"))
        await tell(store, accept(event("e-1"), event("e-2")))
        assert await a.ask(wait(), now=31) == {"paid:1": "e-1"}
        for n, word in enumerate(("one", "two", "three")):
            await tell(store, publish(word, now=32 + n))
        assert await a.ask(receive(), now=40) == {"jobs:1": "one"}
        await write(store, request(ControlKind.CANCEL, now=41))
        await a.recur(archive=archive)
        assert [mail.kind for mail in (await store.inbox("a")).items] == ["cancel"]
        assert await store.members("crew") == ["a"]
        received = [await a.ask(receive(op=f"jobs:{n}"), now=61) for n in (1, 2, 3)]
        assert received == [{"jobs:1": "two"}, {"jobs:2": "three"}, {}]
        assert await a.ask(wait(), now=62) == {"paid:1": "e-2"}, "consumed events stay consumed"
        assert await a.ask(wait(op="paid:2"), now=63) == {}

    async def test_it_says_something_with_its_last_commit(self, store: Store) -> None:
        (b,) = await subscribers(store, "b", mode=ChannelMode.BROADCAST)
        (a,) = await new_instances(store, "a")
        await b.ask(receive())
        assert (await a.recur(effects=(Publish(message()),))).woken == ("b",)
        assert await b.ask(receive(), now=70) == {"jobs:1": "one"}

    async def test_it_does_not_forget_what_arrived_meanwhile(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await write(store, request(ControlKind.CANCEL))
        answer = await a.recur(inbox_seen=0)
        assert answer.inbox_version == 1, "the owner learns that there is an unread item"
        assert await store.with_unread_inbox(ME) == ["a"]

    async def test_the_old_generation_is_fenced(self, store: Store) -> None:
        (a,) = await subscribers(store, "a")
        late = [
            await a.build(history=(entry(2),)),
            await a.build(store_calls=(receive(),), effects=(Unsubscribe("jobs"),)),
        ]
        again = await a.build(keep_owned=True, recur=Recurrence(b"next"), now=60)
        await tell(store, publish())
        a.learn(again, (await write(store, again))[0])
        for one in (*late, again):
            assert await write(store, one) == [Refused(Status.RUNNING)]
        assert await write(store, AttemptUpdate("a", 1, 1, attempt())) == [Refused(Status.RUNNING)]
        assert (await row(store, "a")).generation == 2
        assert await a.ask(receive(), now=70) == {"jobs:1": "one"}

    async def test_a_generation_ends_as_any_other(self, store: Store) -> None:
        (a,) = await subscribers(store, "a")
        await a.recur()
        await a.end(now=90)
        stored = await store.get("a")
        assert stored is not None
        assert (stored.row.status, stored.row.generation, stored.output) == (Status.COMPLETED, 2, b"output")
        assert await store.prune_instances(ended_before=99, limit=9) == 1
        assert await store.get("a", 1) is None
        assert await store.history("a", 1, after=0, limit=9) == []

    async def test_a_warm_run_recurs_and_claims_at_once(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await a.ask(wait())
        assert not a.owned
        await tell(store, accept(event(), now=30))
        answer = await a.recur(now=40)
        assert answer.owned
        one = await row(store, "a")
        assert (one.owner, one.epoch, one.generation) == (ME, 2, 2)
        assert await a.ask(wait(), now=41) == {"paid:1": "e-1"}

    async def test_a_cold_worker_goes_on_with_the_generation(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await a.recur()
        await a.write(history=(entry(1),), keep_owned=True)
        await store.release(ME, now=70)
        await a.claim(now=70)
        assert a.length == 1, "the length of this generation's history"
        assert await a.ask(wait(), now=71) == {}


class TestMemberships:
    """A retry restores the subscriptions and groups of a failed instance, because the code will not register them again."""

    @pytest.mark.parametrize("mode", MODES)
    async def test_a_subscription_is_put_back(self, store: Store, mode: ChannelMode) -> None:
        (a,) = await subscribers(store, "a", mode=mode)
        await _fail_and_retry(a)
        await tell(store, send("a") if mode is ChannelMode.DIRECT else publish(now=96))
        assert await a.ask(receive(), now=97) == {"jobs:1": "one"}

    async def test_what_was_published_meanwhile_is_not_for_it(self, store: Store) -> None:
        (a,) = await subscribers(store, "a", mode=ChannelMode.BROADCAST)
        await a.end(status=Status.FAILED)
        await tell(store, publish(now=92))
        await _retry(a)
        assert await a.ask(receive(), now=97) == {}

    async def test_what_it_had_given_up_is_not_put_back(self, store: Store) -> None:
        (a,) = await subscribers(store, "a")
        gone = _effect(a.length + 1, Kind.UNSUBSCRIBE, channel="jobs")
        joined = _effect(a.length + 2, Kind.JOIN_GROUP, group="crew")
        await a.do(Unsubscribe("jobs"), JoinGroup("crew"), history=(gone, joined))
        assert await a.ask(leave(), now=30, keep_owned=True) == {"leave:crew": None}
        await _fail_and_retry(a)
        assert await store.members("crew") == []
        assert await a.ask(receive(), now=97) == {"jobs:1": ChannelNotSubscribedError}

    async def test_memberships_are_put_back(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        joined = tuple(_effect(n, Kind.JOIN_GROUP, group=name) for n, name in enumerate(("crew", "staff"), 1))
        await a.do(JoinGroup("crew"), JoinGroup("staff"), history=joined)
        await _fail_and_retry(a)
        assert await store.members("crew") == ["a"]
        assert await store.members("staff") == ["a"]

    @archived
    async def test_those_of_earlier_generations_too(self, store: Store, *, archive: bool) -> None:
        (a,) = await subscribers(store, "a", mode=ChannelMode.BROADCAST)
        joined = _effect(a.length + 1, Kind.JOIN_GROUP, group="crew")
        await a.do(JoinGroup("crew"), history=(joined,))
        await a.recur(archive=archive)
        await _fail_and_retry(a)
        assert await store.members("crew") == ["a"]
        await tell(store, publish(now=96))
        assert await a.ask(receive(), now=97) == {"jobs:1": "one"}

    async def test_a_channel_that_has_another_mode_by_now_is_not_disturbed(self, store: Store) -> None:
        (a,) = await subscribers(store, "a", mode=ChannelMode.BROADCAST)
        await a.end(status=Status.FAILED)
        (b,) = await subscribers(store, "b", mode=ChannelMode.COMPETING)
        await _retry(a)
        await tell(store, publish(now=96))
        assert await a.ask(receive(), now=97) == {"jobs:1": ChannelNotSubscribedError}
        assert await b.ask(receive(), now=98) == {"jobs:1": "one"}

    async def test_a_failed_subscription_is_not_put_back(self, store: Store) -> None:
        (b,) = await subscribers(store, "b", mode=ChannelMode.COMPETING)
        (a,) = await new_instances(store, "a")
        await a.ask(subscribe(mode=ChannelMode.BROADCAST), keep_owned=True)
        await b.end()
        await _fail_and_retry(a)
        assert await a.ask(receive(), now=97) == {"jobs:1": ChannelNotSubscribedError}


def _effect(seq: int, kind: Kind, **asked: str) -> Entry:
    """The recorded entry of an effect."""
    return entry(seq, kind=kind, role=Role.OUT_OF_BAND, input=json.dumps(asked).encode())


async def _fail_and_retry(one: DrivenInstance) -> None:
    await one.end(now=90, status=Status.FAILED)
    await _retry(one)


async def _retry(one: DrivenInstance) -> None:
    await write(one.store, request(ControlKind.RETRY, one.id, now=95))
    await one.claim(now=95)

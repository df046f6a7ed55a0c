"""The outbox: adding, claiming, settling, dead-lettering and requeueing events."""

from __future__ import annotations

import asyncio

import pytest
from tests.store.conformance.builders import OTHER, MakeStore, accept, entry, event, wait, write
from tests.store.conformance.driver import new_instances, tell

from romancy.errors import StoreError
from romancy.model.messaging import AcceptedEvent, SendEvent
from romancy.model.outbox import DeadLettered, Delayed, Delivered, DeliveryOutcome, OutboxRow, Returned
from romancy.model.transition import Accepted, Refused
from romancy.serde.messaging import event_json, event_of
from romancy.store.port import Store

RELAY, RIVAL = "relay-1", "relay-2"
HTTP = ("http",)


async def add(store: Store, *ids: str, now: int = 30, brokers: tuple[str, ...] = HTTP, local: bool = False) -> None:
    """Accept events for brokers."""
    await tell(store, accept(*(event(one) for one in ids), now=now, brokers=brokers, local=local))


async def claim(store: Store, broker: str = "http", *, now: int = 40, by: str = RELAY, limit: int = 9) -> list[OutboxRow]:
    """Claim due events until 10 later."""
    return await store.claim_outbox(broker, by, now=now, until=now + 10, limit=limit)


def ids(rows: list[OutboxRow]) -> list[str]:
    """The ids of the events."""
    return [event_of(row.body).id for row in rows]


async def outbox_ids(store: Store, dead: bool | None = None) -> list[str]:
    """The ids of the events in the outbox."""
    return ids(await store.list_outbox(dead=dead, after=0, limit=99))


class TestAdding:
    """The commit that sends an event adds it to the outbox, once for each broker."""

    async def test_it_is_accepted_and_left_for_each_broker(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await a.ask(wait())
        answer = await tell(store, accept(event(), brokers=("http", "nats")))
        assert answer == Accepted((AcceptedEvent("e-1", "shop", False, ("a",)),), woken=("a",))
        for broker in ("http", "nats"):
            (row,) = await claim(store, broker)
            assert (row.broker, row.body, row.created_at, row.since) == (broker, event_json(event()), 30, 30)
        assert await a.ask(wait(), now=41) == {"paid:1": "e-1"}

    async def test_without_brokers_nothing_is_left(self, store: Store) -> None:
        await tell(store, accept(event()))
        assert await outbox_ids(store) == []

    async def test_for_brokers_only_it_is_not_accepted(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await a.ask(wait())
        assert await tell(store, accept(event(), local=False, brokers=HTTP)) == Accepted(
            (AcceptedEvent("e-1", "shop", False, ()),)
        )
        assert await a.ask(wait(), now=41) == {}
        assert await outbox_ids(store) == ["e-1"]
        back = await tell(store, accept(event(), now=42))
        assert back == Accepted((AcceptedEvent("e-1", "shop", False, ("a",)),), woken=("a",)), "it was not accepted before"

    async def test_what_is_known_is_not_sent_again(self, store: Store) -> None:
        await add(store, "e-1", local=True)
        await add(store, "e-1", "e-2", local=True)
        assert await outbox_ids(store) == ["e-1", "e-2"]

    async def test_what_comes_back_is_known(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await add(store, "e-1", local=True)
        assert await a.ask(wait(), now=31) == {"paid:1": "e-1"}
        back = await tell(store, accept(event(), now=50))
        assert back == Accepted((AcceptedEvent("e-1", "shop", True, ()),))
        assert await a.ask(wait(op="paid:2"), now=51) == {}

    async def test_a_workflow_sends_in_its_commit(self, store: Store) -> None:
        a, b = await new_instances(store, "a", "b")
        await b.ask(wait())
        one = SendEvent(event(), brokers=HTTP)
        two = SendEvent(event("e-2"), local=False, brokers=("http", "nats"))
        assert (await a.do(one, two, now=40)).woken == ("b",)
        assert ids(await claim(store)) == ["e-1", "e-2"]
        assert ids(await claim(store, "nats")) == ["e-2"]

    async def test_what_a_zombie_sends_is_not_sent(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        late = await a.build(effects=(SendEvent(event(), local=False, brokers=HTTP),), worker=OTHER)
        assert isinstance((await write(store, late))[0], Refused)
        assert await outbox_ids(store) == []

    async def test_what_is_rolled_back_is_not_sent_and_its_neighbours_are(self, store: Store) -> None:
        a, b = await new_instances(store, "a", "b")
        effect = SendEvent(event("never"), local=False, brokers=HTTP)
        bad = await a.build(effects=(effect,), history=(entry(1), entry(1)))
        good = await b.build(effects=(SendEvent(event("sent"), local=False, brokers=HTTP),))
        answers = await store.commit([bad, good])
        assert isinstance(answers[0], StoreError)
        assert await outbox_ids(store) == ["sent"]


class TestRelaying:
    """One relay at a time claims a row; the row counts as delivered when that relay has recorded it."""

    async def test_the_oldest_come_first_and_not_more_than_asked_for(self, store: Store) -> None:
        await add(store, "e-1", "e-2", now=30)
        await add(store, "e-3", now=31)
        assert ids(await claim(store, limit=2)) == ["e-1", "e-2"]
        assert ids(await claim(store, limit=2)) == ["e-3"]
        assert await claim(store) == []

    async def test_other_brokers_rows_are_left_alone(self, store: Store) -> None:
        await add(store, "e-1", brokers=("nats",))
        assert await claim(store, "http") == []
        assert await store.next_outbox_due("http") is None
        (row,) = await store.list_outbox(dead=None, after=0, limit=9)
        assert (row.broker, row.claimed_by, row.attempts) == ("nats", None, 0)

    async def test_it_is_not_due_before_its_time(self, store: Store) -> None:
        await add(store, "e-1", now=50)
        assert await claim(store, now=49) == []
        assert await store.next_outbox_due("http") == 50
        assert ids(await claim(store, now=50)) == ["e-1"]

    async def test_a_claim_says_whose_it_is_and_how_often_it_was_tried(self, store: Store) -> None:
        await add(store, "e-1")
        (row,) = await claim(store)
        assert (row.claimed_by, row.attempts, row.next_at) == (RELAY, 1, 50)
        assert await store.list_outbox(dead=False, after=0, limit=9) == [row]
        assert await store.next_outbox_due("http") == 50

    async def test_what_was_delivered_is_gone(self, store: Store) -> None:
        await add(store, "e-1", "e-2")
        first, _ = await claim(store)
        await store.record_outbox(RELAY, [Delivered(first.seq)])
        assert await outbox_ids(store) == ["e-2"]

    async def test_an_expired_claim_can_be_taken_by_any_relay(self, store: Store) -> None:
        await add(store, "e-1")
        await claim(store, now=40)
        assert await claim(store, now=49, by=RIVAL) == []
        (again,) = await claim(store, now=50, by=RIVAL)
        assert (again.claimed_by, again.attempts) == (RIVAL, 2), "an interrupted attempt counts"

    async def test_who_has_lost_a_claim_changes_nothing(self, store: Store) -> None:
        await add(store, "e-1", "e-2", "e-3", "e-4")
        late = [row.seq for row in await claim(store, now=40)]
        rows = await claim(store, now=50, by=RIVAL)
        words: list[DeliveryOutcome] = [
            Delivered(late[0]),
            Delayed(late[1], 99, "late"),
            DeadLettered(late[2], 99, "late"),
            Returned(late[3]),
        ]
        await store.record_outbox(RELAY, words)
        assert await store.list_outbox(dead=None, after=0, limit=9) == rows

    async def test_one_that_fails_waits_and_does_not_hold_up_others(self, store: Store) -> None:
        await add(store, "e-1", "e-2")
        (first,) = await claim(store, limit=1)
        await store.record_outbox(RELAY, [Delayed(first.seq, 60, "no route")])
        assert ids(await claim(store, now=41)) == ["e-2"]
        row = (await store.list_outbox(dead=None, after=0, limit=9))[0]
        assert (row.attempts, row.next_at, row.last_error, row.claimed_by) == (1, 60, "no route", None)
        assert ids(await claim(store, now=60)) == ["e-2", "e-1"], (
            "the longest due first, by the time at which the claim ended"
        )

    async def test_what_was_not_tried_is_due_at_once_and_first(self, store: Store) -> None:
        await add(store, "e-1", now=30)
        await add(store, "e-2", now=31)
        (first,) = await claim(store, limit=1)
        await store.record_outbox(RELAY, [Returned(first.seq)])
        rows = await claim(store, now=41, by=RIVAL)
        assert ids(rows) == ["e-1", "e-2"]
        assert rows[0].attempts == 1

    async def test_many_settled_at_once(self, store: Store) -> None:
        await add(store, *(f"e-{n}" for n in range(8)))
        seqs = [row.seq for row in await claim(store)]
        await store.record_outbox(
            RELAY,
            [
                *[Delivered(seq) for seq in seqs[:2]],
                *[Delayed(seq, 70 + seq, f"error {seq}") for seq in seqs[2:4]],
                *[DeadLettered(seq, 41, f"dead {seq}") for seq in seqs[4:6]],
                *[Returned(seq) for seq in seqs[6:]],
            ],
        )
        left = {row.seq: row for row in await store.list_outbox(dead=None, after=0, limit=9)}
        assert list(left) == seqs[2:]
        for seq in seqs[2:4]:
            assert (left[seq].next_at, left[seq].last_error) == (70 + seq, f"error {seq}")
        for seq in seqs[4:6]:
            assert (left[seq].dead_at, left[seq].last_error, left[seq].next_at) == (41, f"dead {seq}", None)
        assert ids(await claim(store, now=42)) == ["e-6", "e-7"]

    async def test_two_relays_share_without_overlap(self, store: Store, make_store: MakeStore) -> None:
        other = await make_store()
        names = [f"e-{n:02}" for n in range(60)]
        await add(store, *names)
        taken = await asyncio.gather(_drain(store, RELAY), _drain(other, RIVAL))
        assert sorted(taken[0] + taken[1]) == names
        assert await outbox_ids(store) == []


async def _drain(store: Store, by: str) -> list[str]:
    taken: list[str] = []
    while rows := await claim(store, by=by, limit=7):
        taken += ids(rows)
        await store.record_outbox(by, [Delivered(row.seq) for row in rows])
    return taken


class TestDeadLetters:
    """Dead-lettered events are listed, and sent again only after a requeue."""

    async def dead_lettered(self, store: Store, *names: str, at: int = 41) -> list[OutboxRow]:
        """Dead-letter events."""
        await add(store, *names)
        await store.record_outbox(RELAY, [DeadLettered(row.seq, at, "410 Gone") for row in await claim(store)])
        return await store.list_outbox(dead=True, after=0, limit=99)

    async def test_no_relay_claims_them(self, store: Store) -> None:
        (row,) = await self.dead_lettered(store, "e-1")
        assert (row.dead_at, row.next_at, row.last_error, row.attempts) == (41, None, "410 Gone", 1)
        assert await claim(store, now=10**15) == []
        assert await store.next_outbox_due("http") is None

    async def test_requeued_they_begin_anew(self, store: Store) -> None:
        first, second = await self.dead_lettered(store, "e-1", "e-2")
        assert await store.requeue_outbox([first.seq, 10**9], now=80, limit=9) == 1
        (row,) = await claim(store, now=80)
        assert (ids([row]), row.attempts, row.since, row.created_at) == (["e-1"], 1, 80, 30)
        assert (row.last_error, row.dead_at) == (None, None)
        assert await store.list_outbox(dead=True, after=0, limit=9) == [second]

    async def test_all_are_requeued_a_few_at_a_time(self, store: Store) -> None:
        await self.dead_lettered(store, "e-1", "e-2", "e-3")
        assert [await store.requeue_outbox(None, now=80, limit=2) for _ in range(3)] == [2, 1, 0]
        assert ids(await claim(store, now=80)) == ["e-1", "e-2", "e-3"]

    async def test_those_that_are_not_dead_are_not_requeued(self, store: Store) -> None:
        await add(store, "e-1")
        (row,) = await claim(store)
        assert await store.requeue_outbox([row.seq], now=45, limit=9) == 0
        assert await claim(store, now=45, by=RIVAL) == [], "it is claimed"

    @pytest.mark.parametrize(("dead", "expected"), [(None, ["e-1", "e-2", "e-3"]), (True, ["e-1", "e-2"]), (False, ["e-3"])])
    async def test_they_are_listed_or_the_others_or_all(self, store: Store, dead: bool | None, expected: list[str]) -> None:
        await self.dead_lettered(store, "e-1", "e-2")
        await add(store, "e-3")
        assert await outbox_ids(store, dead) == expected

    @pytest.mark.parametrize("dead", [None, True])
    async def test_the_list_goes_on_behind_a_place(self, store: Store, dead: bool | None) -> None:
        await self.dead_lettered(store, *(f"e-{n}" for n in range(5)))
        first = await store.list_outbox(dead=dead, after=0, limit=2)
        rest = await store.list_outbox(dead=dead, after=first[-1].seq, limit=9)
        assert ids(first + rest) == [f"e-{n}" for n in range(5)]

    async def test_old_ones_can_be_deleted(self, store: Store) -> None:
        await self.dead_lettered(store, "e-1", "e-2", "e-3", at=41)
        await self.dead_lettered(store, "late", at=50)
        await add(store, "waits")
        assert await store.prune_outbox("nats", dead_before=99, limit=9) == 0
        assert [await store.prune_outbox("http", dead_before=50, limit=2) for _ in range(3)] == [2, 1, 0]
        assert await outbox_ids(store) == ["late", "waits"]

    async def test_they_are_counted_up_to_a_number(self, store: Store) -> None:
        assert await store.count_outbox("http", most=9) == (0, 0)
        await self.dead_lettered(store, "e-1", "e-2", "e-3")
        await add(store, "e-4", brokers=("http", "nats"))
        assert await store.count_outbox("http", most=9) == (1, 3)
        assert await store.count_outbox("http", most=2) == (1, 2)
        assert await store.count_outbox("nats", most=9) == (1, 0)

    async def test_the_oldest_that_waits_is_known(self, store: Store) -> None:
        assert await store.oldest_outbox("http", most=9) is None
        await self.dead_lettered(store, "dead")
        await add(store, "first", now=50)
        await add(store, "second", now=60)
        await store.claim_outbox("http", "relay", now=55, until=99, limit=1)
        assert await store.oldest_outbox("http", most=9) == 50
        assert await store.oldest_outbox("http", most=1) == 60
        assert await store.oldest_outbox("nats", most=9) is None

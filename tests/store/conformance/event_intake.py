"""Accepting events: duplicates, handlers, events to one instance, retention."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.store.conformance.builders import MakeStore, accept, create, entry, event, request, row, wait, write
from tests.store.conformance.driver import DrivenInstance, new_instances, tell

from romancy.errors import StoreError
from romancy.model.messaging import AcceptedEvent, Event, SendEvent
from romancy.model.status import Status
from romancy.model.transition import Accepted, Applied, ControlKind
from romancy.serde.messaging import event_input, event_json
from romancy.store.port import Store

NEW, KNOWN = AcceptedEvent("e-1", "shop", False, ()), AcceptedEvent("e-1", "shop", True, ())


class TestAccepting:
    """An event is accepted once, however often it is sent; of the events of one call, all are accepted or none."""

    # --- duplicates

    async def test_source_and_id_tell_events_apart(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        assert await tell(store, accept(event())) == Accepted((NEW,))
        assert await tell(store, accept(event(data=b'"other"', subject="s"), now=40)) == Accepted((KNOWN,))
        answer = await tell(store, accept(Event("e-1", "bank", "paid"), Event("E-1", "shop", "paid")))
        assert isinstance(answer, Accepted)
        assert [one.duplicate for one in answer.events] == [False, False]
        assert len([await a.ask(wait(op=f"paid:{n}")) for n in range(3)]) == 3
        assert await a.ask(wait(op="paid:4")) == {}

    async def test_twice_in_one_call(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        answer = await tell(store, accept(event(), event("e-2"), event()))
        assert isinstance(answer, Accepted)
        assert [one.duplicate for one in answer.events] == [False, False, True]
        received = [await a.ask(wait(op=f"paid:{n}")) for n in range(3)]
        assert received == [{"paid:0": "e-1"}, {"paid:1": "e-2"}, {}]

    async def test_a_known_one_wakes_no_instance(self, store: Store) -> None:
        await tell(store, accept(event(), now=5))
        (a,) = await new_instances(store, "a")
        await a.ask(wait())
        assert await tell(store, accept(event())) == Accepted((KNOWN,))
        assert await a.matched_waits() == ()

    # --- waking

    @pytest.mark.parametrize("selector", [{}, {"match": b'{"n": 1}'}, {"subject": "s"}], ids=["any", "match", "subject"])
    async def test_a_wait_is_woken_once(self, store: Store, selector: dict[str, Any]) -> None:
        a, b = await new_instances(store, "a", "b")
        await a.ask(wait(**selector))
        await b.ask(wait(**selector))
        fits: dict[str, Any] = {"data": b'{"n": 1}', "subject": "s"}
        first = await tell(store, accept(event("e-1", **fits), event("e-2", **fits)))
        later = await tell(store, accept(event("e-3", **fits)))
        assert await a.ask(wait(**selector), now=31) == {"paid:1": "e-1"}
        assert isinstance(first, Accepted)
        assert isinstance(later, Accepted)
        assert [set(one.instance_ids) for one in (*first.events, *later.events)] == [{"a", "b"}, set(), set()]

    async def test_a_second_wait_is_woken_beside_the_first(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await a.ask(wait(op="paid:1"), wait("shipped", op="shipped:1"))
        told = [await tell(store, accept(event("e-1"))), await tell(store, accept(event("e-2", "shipped")))]
        assert [one.events[0].instance_ids for one in told if isinstance(one, Accepted)] == [("a",), ("a",)]

    async def test_known_to_every_store(self, store: Store, make_store: MakeStore) -> None:
        other = await make_store()
        await tell(store, accept(event()))
        assert await tell(other, accept(event())) == Accepted((KNOWN,))

    async def test_sent_through_two_stores_at_once(self, store: Store, make_store: MakeStore) -> None:
        other = await make_store()

        async def send(through: Store) -> list[str]:
            answers = [await tell(through, accept(event(f"e-{n}"))) for n in range(30)]
            found = [one for answer in answers if isinstance(answer, Accepted) for one in answer.events]
            return [one.id for one in found if not one.duplicate]

        mine, theirs = await asyncio.gather(send(store), send(other))
        assert sorted(mine + theirs) == sorted(f"e-{n}" for n in range(30))

    # --- handlers

    async def test_it_starts_instances(self, store: Store) -> None:
        (waiting,) = await new_instances(store, "w")
        await waiting.ask(wait())
        starts = ((create("a", now=30), create("b", now=30, owner=None)),)
        answer = await tell(store, accept(event(), starts=starts))
        told = AcceptedEvent("e-1", "shop", False, ("w", "a", "b"))
        assert answer == Accepted((told,), woken=("w",), started=("a", "b"))
        assert [(await row(store, one)).status for one in "ab"] == [Status.RUNNING, Status.PENDING]
        assert await tell(store, accept(event(), starts=((create("c"),),))) == Accepted((KNOWN,))
        assert await store.get("c") is None

    async def test_what_it_started_does_not_wait_for_it(self, store: Store) -> None:
        await tell(store, accept(event(), starts=((create("a", now=30),),)))
        a = DrivenInstance(store, "a")
        assert await a.ask(wait(), now=31) == {}
        await tell(store, accept(event("e-2"), now=40))
        assert await a.ask(wait(), now=41) == {"paid:1": "e-2"}

    async def test_what_it_started_may_have_the_next_event(self, store: Store) -> None:
        starts = ((create("a", now=30),), (create("b", now=30),))
        await tell(store, accept(event("e-1"), event("e-2"), starts=starts))
        assert await DrivenInstance(store, "a").ask(wait(), now=31) == {"paid:1": "e-2"}
        assert await DrivenInstance(store, "b").ask(wait(), now=31) == {}

    async def test_a_handler_whose_code_is_elsewhere_is_started(self, store: Store) -> None:
        await store.save_handlers([("paid", "2", True), ("shipped", "1", True)], now=5)
        sent = (event("e-1", data=b'{"n": 1}'), event("e-2", "lost"), event("e-3", to="a"), event("e-1"))
        answer = await tell(store, accept(*sent, fresh_ids=("i-1", "i-2", "i-3", "i-4")))
        assert isinstance(answer, Accepted)
        assert [one.instance_ids for one in answer.events] == [("i-1",), (), (), ()]
        assert answer.started == ("i-1",)
        one = await row(store, "i-1")
        assert (one.workflow, one.version, one.status, one.owner, one.wake_at) == ("paid", "2", Status.PENDING, None, 30)
        assert set(await store.statuses(["i-1", "i-2", "i-3", "i-4"])) == {"i-1"}
        loaded = await store.load("i-1")
        assert loaded is not None
        assert loaded.input == event_input(sent[0])

    async def test_handlers_come_and_go(self, store: Store) -> None:
        await store.save_handlers([("paid", "1", True)], now=5)
        await store.save_handlers([("paid", "1", True), ("paid", "2", True)], now=6)
        await store.save_handlers([("paid", "1", False)], now=7)
        await tell(store, accept(event("e-1"), fresh_ids=("i-1",)))
        assert (await row(store, "i-1")).version == "2", "the last registration of a version counts"
        await store.save_handlers([("paid", "2", False)], now=8)
        assert (await tell(store, accept(event("e-2"), fresh_ids=("i-2",)))).started == ()

    async def test_a_handler_that_is_here_goes_before(self, store: Store) -> None:
        await store.save_handlers([("paid", "2", True)], now=5)
        sent = accept(event(), event("e-2"), starts=((create("a", now=30),), ()), fresh_ids=("i-1", ""))
        assert (await tell(store, sent)).started == ("a",)
        (b,) = await new_instances(store, "b")
        assert (await b.do(SendEvent(event("e-3"), fresh_id="i-3"))).started == ("i-3",)

    async def test_it_leaves_an_instance_alone_that_is_there(self, store: Store) -> None:
        await new_instances(store, "a")
        before = await store.load("a")
        await tell(store, accept(event(), starts=((create("a", now=30, owner=None, workflow="other"),),)))
        assert await store.load("a") == before

    async def test_a_workflow_sends_in_its_commit(self, store: Store) -> None:
        a, b = await new_instances(store, "a", "b")
        await b.ask(wait())
        sent = SendEvent(event(), (create("c", now=40),))
        answer = await a.do(sent, now=40)
        assert (answer.woken, answer.started, answer.owned) == (("b",), ("c",), True)
        assert (await row(store, "b")).wake_at == 40
        again = await a.do(sent, now=41)
        assert (again.woken, again.started) == ((), ()), "a duplicate"
        assert await a.ask(wait(), now=42) == {"paid:1": "e-1"}, "the sender may wait for it too"

    async def test_what_an_instance_tells_itself_is_not_overlooked(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await a.ask(wait())
        answer = await a.write(now=30, effects=(SendEvent(event()),))
        assert (answer.owned, answer.woken) == (True, ("a",))
        assert await a.matched_waits() == ("paid:1",)
        assert await a.ask(wait(), now=31) == {"paid:1": "e-1"}

    # --- all or none

    async def test_what_the_database_refuses_fails_alone(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await a.ask(wait())
        bad = accept(event("e-1"), event("\ud800"), event("e-2"), starts=((create("x"),), (), ()))
        answers = await store.commit([accept(event("before")), bad, create("b"), accept(event("after"))])
        assert isinstance(answers[1], StoreError)
        assert not answers[1].retryable
        assert answers[0] == Accepted((AcceptedEvent("before", "shop", False, ("a",)),), ("a",))
        assert isinstance(answers[3], Accepted)
        assert answers[2] == Applied(0, owned=True)
        assert await store.get("x") is None
        assert await tell(store, accept(event("e-1"))) == Accepted((NEW,), ("a",))
        received = [await a.ask(wait(op=f"paid:{n}"), now=40) for n in range(1, 4)]
        assert received == [{"paid:1": "before"}, {"paid:2": "after"}, {"paid:3": "e-1"}]

    async def test_it_does_not_suffer_from_a_neighbour(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        bad = await a.build(history=(entry(1), entry(1)))
        answers = await store.commit([accept(event()), bad])
        assert answers[0] == Accepted((NEW,))
        assert isinstance(answers[1], StoreError)
        assert await a.ask(wait()) == {"paid:1": "e-1"}

    # --- events to one instance

    async def test_only_the_one_it_is_addressed_to_gets_it(self, store: Store) -> None:
        a, b = await new_instances(store, "a", "b")
        for one in (a, b):
            await one.ask(wait())
        answer = await tell(store, accept(event(to="b")))
        assert answer == Accepted((AcceptedEvent("e-1", "shop", False, ("b",)),), woken=("b",))
        assert await a.ask(wait(), now=40) == {}
        assert await b.ask(wait(), now=40) == {"paid:1": "e-1"}
        assert await b.ask(wait(op="paid:2"), now=41) == {}

    async def test_addressed_or_not_the_oldest_comes_first(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        sent = (event("e-1"), event("e-2", to="a", subject="s"), event("e-3", subject="s"), event("e-4", to="a"))
        await tell(store, accept(*sent))
        assert await a.ask(wait(subject="s")) == {"paid:1": "e-2"}
        received = [await a.ask(wait(op=f"paid:{n}")) for n in range(2, 6)]
        assert received == [{"paid:2": "e-1"}, {"paid:3": "e-3"}, {"paid:4": "e-4"}, {}]

    async def test_undeliverable_events_are_listed(self, store: Store) -> None:
        a, b = await new_instances(store, "a", "b")
        await b.end(now=20)
        lost, late, used, unread = event("lost", to="unknown"), event("late", to="b"), event("e", to="a"), event("f", to="a")
        await tell(store, accept(lost, event("free"), late, now=30))
        await tell(store, accept(used, unread, now=40))
        listed = await store.undeliverable(after=0, limit=9)
        assert [(at, body) for _, at, body in listed] == [(30, event_json(lost)), (30, event_json(late))]
        assert await a.ask(wait(), now=41) == {"paid:1": "free"}
        assert await a.ask(wait(op="paid:2"), now=42) == {"paid:2": "e"}
        await a.end(now=50)
        bodies = [body for _, _, body in await store.undeliverable(after=0, limit=9)]
        assert bodies == [event_json(lost), event_json(late), event_json(unread)], "it ended without consuming it"

    async def test_an_instance_that_came_later_cannot_get_it(self, store: Store) -> None:
        await tell(store, accept(event(to="a"), now=5))
        (a,) = await new_instances(store, "a")
        assert await a.ask(wait()) == {}
        assert [body for _, _, body in await store.undeliverable(after=0, limit=9)] == [event_json(event(to="a"))]

    async def test_the_list_goes_on_behind_a_place(self, store: Store) -> None:
        sent = [event(f"e-{n}", to="unknown") for n in range(5)]
        await tell(store, accept(*sent))
        first = await store.undeliverable(after=0, limit=2)
        rest = await store.undeliverable(after=first[-1][0], limit=9)
        assert [body for _, _, body in first + rest] == [event_json(one) for one in sent]
        places = [place for place, _, _ in first + rest]
        assert places == sorted(set(places))

    async def test_time_does_not_run_backwards_in_the_log(self, store: Store) -> None:
        for n, at in enumerate((60, 40, 70)):
            await tell(store, accept(event(f"e-{n}", to="unknown"), now=at))
        assert [at for _, at, _ in await store.undeliverable(after=0, limit=9)] == [60, 60, 70]

    # --- retention

    async def test_old_events_are_forgotten_the_oldest_first(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        for n in range(1, 6):
            await tell(store, accept(event(f"e-{n}"), now=20 + n))
        assert await store.prune_messaging(events_before=24, messages_before=24, limit=2) == 2
        assert await a.ask(wait(), now=40) == {"paid:1": "e-3"}
        assert await store.prune_messaging(events_before=24, messages_before=24, limit=2) == 1
        assert await store.prune_messaging(events_before=24, messages_before=24, limit=2) == 0
        received = [await a.ask(wait(op=f"paid:{n}"), now=41) for n in range(2, 5)]
        assert received == [{"paid:2": "e-4"}, {"paid:3": "e-5"}, {}]

    async def test_with_an_event_it_is_forgotten_that_it_came(self, store: Store) -> None:
        await tell(store, accept(event(to="unknown"), now=20))
        assert await store.prune_messaging(events_before=21, messages_before=0, limit=9) == 1
        assert await store.undeliverable(after=0, limit=9) == []
        assert await tell(store, accept(event(), now=40)) == Accepted((NEW,))

    async def test_a_wait_that_was_called_for_a_forgotten_event_goes_on(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await a.ask(wait())
        await tell(store, accept(event()))
        await store.prune_messaging(events_before=99, messages_before=0, limit=9)
        assert await a.ask(wait(), now=40) == {}
        assert not a.owned
        await tell(store, accept(event("e-2"), now=50))
        assert await a.ask(wait(), now=60) == {"paid:1": "e-2"}

    async def test_a_retry_does_not_consume_again(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await tell(store, accept(event("e-1"), event("e-2")))
        assert await a.ask(wait(), now=40) == {"paid:1": "e-1"}
        await a.end(status=Status.FAILED)
        await write(store, request(ControlKind.RETRY, now=95))
        await a.claim(now=95)
        assert await a.ask(wait(op="paid:2"), now=96) == {"paid:2": "e-2"}
        assert await a.ask(wait(op="paid:3"), now=97) == {}

"""Waits for events."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest
from tests.store.conformance.builders import (
    ME,
    ORDER,
    OTHER,
    MakeStore,
    accept,
    create,
    entry,
    event,
    request,
    row,
    subscribe,
    wait,
    write,
)
from tests.store.conformance.driver import new_instances, said, tell

from romancy.model.history import Kind, Outcome
from romancy.model.messaging import AcceptedEvent, SendEvent
from romancy.model.status import Status
from romancy.model.transition import Accepted, Applied, ControlKind, Refused, Wait, WaitKind
from romancy.serde.messaging import event_json
from romancy.store.port import Store

OBJECT = {
    "id": "o-1",
    "n": 1,
    "yes": True,
    "nothing": None,
    "lines": [{"sku": "x"}, {"sku": "y"}],
    "a.b": 2,
    "flags": [True, 0],
    "deep": {"a": True},
    "nul": "a\0b",
}


class TestEvents:
    """A wait takes the oldest matching event that its instance has not consumed, otherwise the next one that arrives."""

    async def test_one_that_came_before_the_wait(self, store: Store) -> None:
        (a,) = await new_instances(store, "a", now=10)
        assert await tell(store, accept(event(), now=15)) == Accepted((AcceptedEvent("e-1", "shop", False, ()),))
        assert await a.ask(wait(), now=20) == {"paid:1": "e-1"}
        assert a.owned, "the reply must be processed"

    async def test_one_that_comes_after_it(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        assert await a.ask(wait(since=20, due=99, subject="o-1", match=b'{"n":1}'), now=20) == {}
        assert not a.owned
        stored = await store.get("a")
        assert stored is not None
        assert stored.waits == (Wait("paid:1", WaitKind.EVENT, 20, 99, "paid", "o-1", b'{"n":1}', "app.py:7"),)
        fitting = event(subject="o-1", data=b'{"n":1}')
        answer = await tell(store, accept(fitting, now=30))
        assert answer == Accepted((AcceptedEvent("e-1", "shop", False, ("a",)),), woken=("a",))
        assert await a.matched_waits() == ("paid:1",)
        assert await store.upcoming([ORDER], until=30, limit=9) == [("a", 30)]
        assert await a.ask(wait(due=99, subject="o-1", match=b'{"n":1}'), now=40) == {"paid:1": "e-1"}
        stored = await store.get("a")
        assert stored is not None
        assert stored.waits == ()
        assert await a.matched_waits() == ()

    async def test_none_that_came_before_the_instance(self, store: Store) -> None:
        await tell(store, accept(event("early"), now=5))
        (a,) = await new_instances(store, "a", now=10)
        assert await a.ask(wait()) == {}
        await tell(store, accept(event("later")))
        assert await a.ask(wait(), now=40) == {"paid:1": "later"}

    @pytest.mark.parametrize("event_first", [True, False])
    async def test_both_in_one_batch(self, store: Store, *, event_first: bool) -> None:
        (a,) = await new_instances(store, "a")
        asking, coming = await a.build(store_calls=(wait(),)), accept(event(), now=20)
        answers = await write(store, *((coming, asking) if event_first else (asking, coming)))
        received = said(a.learn(asking, answers[1 if event_first else 0]).replies)
        if not received:
            assert await a.matched_waits() == ("paid:1",)
            received = await a.ask(wait(), now=30)
        assert received == {"paid:1": "e-1"}

    async def test_neither_misses_the_other_across_stores(self, store: Store, make_store: MakeStore) -> None:
        other = await make_store()
        waiting = await new_instances(store, *(f"i{n:02}" for n in range(30)))
        for one in waiting:
            sent = write(other, accept(event(f"for {one.id}", subject=one.id)))
            received, _ = await asyncio.gather(one.ask(wait(subject=one.id)), sent)
            if not received:
                assert await one.matched_waits() == ("paid:1",)
                received = await one.ask(wait(subject=one.id), now=40)
            assert received == {"paid:1": f"for {one.id}"}

    async def test_events_of_two_stores_at_once_are_all_found(self, store: Store, make_store: MakeStore) -> None:
        other = await make_store()
        (a,) = await new_instances(store, "a")

        async def send(through: Store, side: str) -> None:
            for n in range(15):
                await tell(through, accept(event(f"{side}{n:02}")))

        async def take() -> list[str]:
            received: list[str] = []
            while len(received) < 30:
                received += (await a.ask(wait(op=f"paid:{len(received)}"))).values()
            return received

        _, _, received = await asyncio.gather(send(store, "x"), send(other, "y"), take())
        for side in "xy":
            assert [one for one in received if one[0] == side] == [f"{side}{n:02}" for n in range(15)]

    # --- which event

    async def test_the_oldest_first_and_each_once(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await tell(store, accept(*(event(f"e-{n}") for n in range(1, 4)), event("no", "shipped")))
        received = [await a.ask(wait(op=f"paid:{n}")) for n in range(1, 5)]
        assert received == [{"paid:1": "e-1"}, {"paid:2": "e-2"}, {"paid:3": "e-3"}, {}]

    async def test_every_instance_that_waits_gets_it(self, store: Store) -> None:
        waiting = await new_instances(store, "a", "b", "c")
        for one in waiting[:2]:
            await one.ask(wait())
        answer = await tell(store, accept(event()))
        assert sorted(answer.woken) == ["a", "b"]
        for one in waiting:
            assert await one.ask(wait(), now=40) == {"paid:1": "e-1"}

    async def test_only_those_who_wait_for_its_type_are_woken(self, store: Store) -> None:
        a, _ = await new_instances(store, "a", "b")
        await a.ask(wait("shipped"))
        assert (await tell(store, accept(event()))).woken == ()
        assert (await row(store, "a")).wake_at is None
        assert await a.ask(wait("shipped")) == {}
        assert await a.ask(wait("Paid")) == {}, "types are compared exactly"

    async def test_what_does_not_fit_stays_for_later_waits(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await tell(store, accept(event("e-1", subject="s-1"), event("e-2", subject="s-2"), event("e-3")))
        assert await a.ask(wait(subject="s-2")) == {"paid:1": "e-2"}
        assert await a.ask(wait(op="paid:2")) == {"paid:2": "e-1"}
        assert await a.ask(wait(op="paid:3")) == {"paid:3": "e-3"}
        assert await a.ask(wait(op="paid:4", subject="s-2")) == {}, "consumed by another selector"

    async def test_the_same_selector_goes_on_behind_the_last_event_that_it_took(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        for n in range(4):
            fitting = event(f"fit-{n}", subject="s", data=b'{"n": 1}')
            await tell(store, accept(event(f"other-{n}", subject="s", data=b'{"n": 2}'), fitting))
        selector: dict[str, Any] = {"subject": "s", "match": b'{"n": 1}'}
        received = [await a.ask(wait(op=f"paid:{n}", **selector)) for n in range(4)]
        assert received == [{f"paid:{n}": f"fit-{n}"} for n in range(4)]
        assert await a.ask(wait(op="paid:9", **selector)) == {}
        assert await a.ask(wait(op="any", subject="s")) == {"any": "other-0"}

    async def test_a_subject_is_compared_exactly(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await a.ask(wait(subject="o-1"))
        near = (event("none"), event("other", subject="o-2"), event("big", subject="O-1"), event("more", subject="o-1 "))
        assert (await tell(store, accept(*near))).woken == ()
        assert (await tell(store, accept(event("it", subject="o-1")))).woken == ("a",)
        assert await a.ask(wait(subject="o-1")) == {"paid:1": "it"}

    @pytest.mark.parametrize(
        ("match", "fits"),
        [
            ({"id": "o-1"}, True),
            ({"id": "o-1", "n": 1}, True),
            ({"id": "o-1", "n": 2}, False),
            ({"id": "O-1"}, False),
            ({"n": 1.0}, True),
            ({"n": "1"}, False),
            ({"n": True}, False),
            ({"yes": True}, True),
            ({"yes": 1}, False),
            ({"nothing": None}, True),
            ({"missing": None}, False),
            ({"lines.1.sku": "y"}, True),
            ({"lines.2.sku": "y"}, False),
            ({"lines.0": {"sku": "x"}}, True),
            ({"a.b": 2}, True),
            ({"id.deeper": "o-1"}, False),
            ({"flags": [True, 0]}, True),
            ({"flags": [1, 0]}, False),
            ({"deep": {"a": True}}, True),
            ({"deep": {"a": 1}}, False),
            ({"nul": "a\0b"}, True),
            ({"nul": "a"}, False),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("event_first", [True, False])
    async def test_a_match_looks_into_the_data(
        self, store: Store, match: dict[str, Any], *, fits: bool, event_first: bool
    ) -> None:
        (a,) = await new_instances(store, "a")
        asked = wait(match=json.dumps(match).encode())
        if not event_first:
            assert await a.ask(asked) == {}
        answer = await tell(store, accept(event(data=json.dumps(OBJECT).encode())))
        assert answer.woken == (("a",) if fits and not event_first else ())
        assert await a.ask(asked, now=40) == ({"paid:1": "e-1"} if fits else {})

    @pytest.mark.parametrize(
        "data",
        [{"data": None}, {"data": b"[]"}, {"data": b"1"}, {"data": b'"id"'}, {"data": b'{"id": "o-1"}', "binary": True}],
        ids=["none", "list", "number", "text", "bytes"],
    )
    async def test_data_that_has_no_fields_matches_nothing(self, store: Store, data: dict[str, Any]) -> None:
        (a,) = await new_instances(store, "a")
        asked = wait(match=b'{"id": "o-1"}')
        assert await a.ask(asked) == {}
        assert (await tell(store, accept(event(**data)))).woken == ()
        assert await a.ask(asked) == {}
        assert await a.ask(wait()) == {"paid:1": "e-1"}

    async def test_any_bytes_come_back(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        full = event(
            "é\u2028😀",
            data=bytes(range(256)),
            binary=True,
            subject="ü",
            time="2026-02-03T04:05:06Z",
            datacontenttype="image/png",
            dataschema="urn:s",
            extensions={"trace": "t", "n": 3, "flag": True},
        )
        await tell(store, accept(full))
        answer = await a.write(store_calls=(wait(),))
        assert [reply.value for reply in answer.replies] == [event_json(full)]

    async def test_ten_megabytes_come_back(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        large = event(data=json.dumps("é\0" * 1_250_000, ensure_ascii=False).encode())
        await tell(store, accept(large))
        (reply,) = (await a.write(store_calls=(wait(),))).replies
        assert reply.value == event_json(large)
        assert [one.value for one in await store.history("a", 1, after=0, limit=9)] == [reply.value]

    async def test_a_selector_may_be_long(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        long = random.Random(1).randbytes(5_000).hex()  # random, so that it does not compress below the limit of an index
        data = json.dumps({"token": long}).encode()
        await tell(store, accept(event("no"), event("e-1", data=data), event("e-2", data=data)))
        received = [await a.ask(wait(op=f"paid:{n}", match=data)) for n in range(3)]
        assert received == [{"paid:0": "e-1"}, {"paid:1": "e-2"}, {}]

    # --- several waits of one instance

    async def test_waits_of_one_instance_never_share_an_event(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        both = (wait(op="paid:1"), wait(op="paid:2"))
        assert await a.ask(*both) == {}
        assert (await tell(store, accept(event("e-1")))).woken == ("a",)
        assert await a.matched_waits() == ("paid:1", "paid:2")
        assert await a.ask(*both, now=40) == {"paid:1": "e-1"}
        assert await a.ask(both[1], now=41) == {}
        assert not a.owned
        await tell(store, accept(event("e-2"), now=50))
        assert await a.ask(both[1], now=60) == {"paid:2": "e-2"}

    async def test_only_the_first_to_be_answered_consumes(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await tell(store, accept(event("e-1"), event("e-2"), event("e-3", "shipped")))
        asks = (wait("lost"), wait(op="paid:1"), wait(op="paid:2"), wait("shipped"))
        assert await a.ask(*asks) == {"paid:1": "e-1"}
        assert await a.ask(*asks[2:]) == {"paid:2": "e-2"}
        assert await a.ask(*asks[3:]) == {"shipped:1": "e-3"}

    async def test_a_wait_behind_an_answer_of_another_kind_is_asked_again(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await tell(store, accept(event()))
        assert await a.ask(subscribe(), wait()) == {"subscribe:jobs": None}
        assert a.owned
        assert await a.ask(wait()) == {"paid:1": "e-1"}

    async def test_what_a_withdrawn_wait_would_have_got_stays(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await a.ask(wait(op="paid:1"))
        await tell(store, accept(event()))
        await a.write(now=40, withdrawn=("paid:1",), keep_owned=True)
        assert await a.matched_waits() == ()
        assert await a.ask(wait(op="paid:2"), now=50) == {"paid:2": "e-1"}

    # --- owned, paused, blocked

    async def test_a_running_instance_is_not_released_past_what_came(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await a.ask(wait(), keep_owned=True)
        assert a.owned
        seen = (await store.inbox("a")).inbox_version
        assert (await tell(store, accept(event()))).woken == ("a",)
        assert (await row(store, "a")).owner == ME
        assert await store.with_unread_inbox(ME) == ["a"]
        assert (await a.write(now=40, inbox_seen=seen)).owned, "it has not read its inbox"
        assert await a.ask(wait(), now=50) == {"paid:1": "e-1"}
        assert await a.ask(wait(op="paid:2"), now=60) == {}
        assert not a.owned

    async def test_asking_for_everything_is_looking(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        both = (wait(match=b'{"n": 1}', op="paid:1"), wait("shipped"))
        await a.ask(*both)
        seen = (await store.inbox("a")).inbox_version
        await tell(store, accept(event(data=b'{"n": 1}')))
        left = await a.write(now=40, inbox_seen=seen, store_calls=both[1:])
        assert (left.owned, left.caught_up, left.replies) == (True, False, ()), "one of its matched waits was not asked for"
        found = await a.write(now=41, inbox_seen=seen, store_calls=both)
        assert (said(found.replies), found.owned, found.caught_up) == ({"paid:1": "e-1"}, True, True)
        rest = await a.write(now=42, inbox_seen=seen, store_calls=both[1:])
        assert (rest.owned, rest.caught_up) == (False, True)

    async def test_a_request_in_the_inbox_is_not_overlooked(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await write(store, request(ControlKind.CANCEL))
        answer = await a.write(inbox_seen=0, store_calls=(wait(),))
        assert (answer.owned, answer.caught_up, answer.replies) == (True, False, ())

    async def test_a_paused_instance_finds_it_when_it_goes_on(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await a.ask(wait())
        await write(store, request(ControlKind.PAUSE, now=25))
        await tell(store, accept(event(), now=30))
        one = await row(store, "a")
        assert (one.status, one.wake_at) == (Status.PAUSED, None)
        await write(store, request(ControlKind.RESUME, now=40))
        await a.claim(now=40)
        assert await a.ask(wait(), now=41) == {"paid:1": "e-1"}

    async def test_a_blocked_instance_finds_it_when_fitting_code_comes(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await a.ask(wait(), keep_owned=True)
        await a.write(status=Status.BLOCKED, blocked_by="code-0")
        await tell(store, accept(event(), now=30))
        one = await row(store, "a")
        assert (one.status, one.wake_at) == (Status.BLOCKED, None)
        assert await store.claim(OTHER, [ORDER], now=99, limit=9) == []
        await a.claim(now=40, blocked=True)
        assert await a.ask(wait(), now=41) == {"paid:1": "e-1"}

    async def test_an_ended_instance_is_not_woken(self, store: Store) -> None:
        a, b = await new_instances(store, "a", "b")
        for one in (a, b):
            await one.ask(wait())
        await a.end()
        await write(store, request(ControlKind.TERMINATE, "b"))
        assert (await tell(store, accept(event()))).woken == ()
        assert await store.upcoming([ORDER], until=999, limit=9) == []

    # --- the record

    async def test_the_answer_is_in_the_history_behind_what_the_run_did(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await a.write(history=(entry(1),), keep_owned=True)
        await tell(store, accept(event()))
        asked = wait()
        answer = await a.write(store_calls=(subscribe(), asked), history=(entry(2), entry(3)))
        (bound,) = answer.replies
        assert (bound.op, bound.seq, bound.outcome, bound.value) == ("subscribe:jobs", 4, Outcome.OK, None)
        (reply,) = (await a.write(store_calls=(asked,))).replies
        assert (reply.op, reply.seq, reply.at, reply.outcome) == ("paid:1", 5, 20, Outcome.OK)
        assert reply.value == event_json(event())
        story = await store.history("a", 1, after=0, limit=9)
        assert [(one.seq, one.kind) for one in story] == [
            (1, Kind.ACTIVITY),
            (2, Kind.ACTIVITY),
            (3, Kind.ACTIVITY),
            (4, Kind.SUBSCRIBE),
            (5, Kind.EVENT),
        ]
        assert story[-1] == asked.entry._replace(seq=5, outcome=Outcome.OK, value=reply.value, worker=ME, epoch=1)
        assert (await row(store, "a")).length == 5

    async def test_an_asking_transition_is_not_written_twice(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await tell(store, accept(event("e-1"), event("e-2")))
        asking = await a.build(store_calls=(wait(),), effects=(SendEvent(event("said", "note")),))
        assert said(a.learn(asking, (await write(store, asking))[0]).replies) == {"paid:1": "e-1"}
        assert await write(store, asking) == [Refused(Status.RUNNING)]
        assert (await row(store, "a")).length == 1
        assert await a.ask(wait(op="paid:2")) == {"paid:2": "e-2"}

    async def test_a_zombie_consumes_nothing_and_says_nothing(self, store: Store) -> None:
        a, b = await new_instances(store, "a", "b")
        await b.ask(wait("note"))
        await tell(store, accept(event()))
        late = await a.build(store_calls=(wait(),), effects=(SendEvent(event("said", "note"), (create("c", now=20),)),))
        await store.sweep([], now=40, limit=9)
        assert await write(store, late) == [Refused(Status.PENDING)]
        assert await b.matched_waits() == ()
        assert await store.get("c") is None
        await a.claim(now=40)
        assert await a.ask(wait(), now=41) == {"paid:1": "e-1"}

    async def test_nothing_is_consumed_or_said_by_a_write_the_database_refuses(self, store: Store) -> None:
        a, b, c = await new_instances(store, "a", "b", "c")
        await c.ask(wait("note"))
        await tell(store, accept(event()))
        bad = await a.build(
            store_calls=(wait(),), history=(entry(1, name="\ud800"),), effects=(SendEvent(event("said", "note")),)
        )
        good = await b.build(store_calls=(wait(),), effects=(SendEvent(event("heard", "note")),), now=25)
        wrong, right = await store.commit([bad, good])
        assert isinstance(wrong, Exception)
        assert isinstance(right, Applied)
        assert (said(right.replies), right.woken) == ({"paid:1": "e-1"}, ("c",))
        assert await c.ask(wait("note"), now=40) == {"note:1": "heard"}
        assert await c.ask(wait("note", op="note:2"), now=41) == {}
        assert await a.ask(wait(), now=40) == {"paid:1": "e-1"}

"""Reading, by the engine and by operators."""

from __future__ import annotations

import pytest
from tests.store.conformance.builders import attempt, create, ending, entry, request, started, transition, write

from romancy.model.instance import Inbox, InstanceFilter, InstanceProgress
from romancy.model.status import Status
from romancy.model.transition import ControlKind, Ending, Wait, WaitKind
from romancy.store.port import Store

WAIT = Wait("timer:1", WaitKind.TIMER, since=20, due=99)


class TestReading:
    """Everything that was written can be read, at once and in full."""

    async def test_an_unknown_instance(self, store: Store) -> None:
        assert await store.get("unknown") is None
        assert await store.load("unknown") is None
        assert await store.inbox("unknown") == Inbox(0, (), ())
        assert await store.history("unknown", 1, after=0, limit=9) == []
        assert await store.attempts("unknown", 1) == []
        assert await store.journal("unknown") == []
        assert await store.statuses(["unknown"]) == {}
        assert await store.statuses([]) == {}
        assert await store.list(InstanceFilter()) == []

    async def test_load_brings_everything_a_replay_needs(self, store: Store) -> None:
        await started(store, "a", "b")
        story = tuple(entry(seq, value=b"v") for seq in range(1, 30))
        await write(store, transition(history=story, attempts=(attempt(),), waits=(WAIT,)))
        await write(store, transition("b", history=(entry(1),), waits=(WAIT,)), request(ControlKind.CANCEL))
        loaded = await store.load("a")
        assert loaded is not None
        assert (loaded.input, loaded.history, loaded.attempts) == (b"input", story, (attempt(),))
        assert loaded.waits == ("timer:1",)
        assert [mail.kind for mail in loaded.inbox] == ["cancel"]
        assert (loaded.row.length, loaded.row.inbox_version) == (29, 1)

    async def test_history_in_pages(self, store: Store) -> None:
        await started(store, "a")
        await write(store, transition(history=tuple(entry(seq) for seq in range(1, 8))))
        pages = [await store.history("a", 1, after=after, limit=3) for after in (0, 3, 6, 7)]
        assert [[one.seq for one in page] for page in pages] == [[1, 2, 3], [4, 5, 6], [7], []]

    async def test_attempts_by_operation_and_number(self, store: Store) -> None:
        await started(store, "a")
        await write(store, transition(attempts=(attempt("y", 1), attempt("x", 10), attempt("x", 2))))
        assert [(one.op, one.attempt) for one in await store.attempts("a", 1)] == [("x", 2), ("x", 10), ("y", 1)]

    async def test_statuses_of_those_that_exist(self, store: Store) -> None:
        await started(store, "a", "b")
        await write(store, ending("b"))
        found = await store.statuses(["a", "b", "unknown", "a"])
        assert found == {"a": Status.RUNNING, "b": Status.COMPLETED}

    async def test_standings_of_those_that_exist(self, store: Store) -> None:
        await started(store, "a", "b")
        before = await store.progress(["a", "b", "unknown", "a"])
        assert {id: one[:3] for id, one in before.items()} == {"a": (1, 0, Status.RUNNING), "b": (1, 0, Status.RUNNING)}
        await write(store, transition(history=(entry(1), entry(2)), now=77))
        await write(store, ending("b"))
        after = await store.progress(["b", "a"])
        assert (after["a"], after["b"].status) == (InstanceProgress(1, 2, Status.RUNNING, 77), Status.COMPLETED)
        assert await store.progress([]) == {}

    async def test_endings_of_those_that_exist(self, store: Store) -> None:
        await started(store, "a", "b", "c")
        await write(store, ending("b"))
        await write(store, ending("c", status=Status.FAILED, ending=Ending(error=b"{}")))
        found = await store.endings(["a", "b", "c", "unknown", "a"])
        assert found == {"a": None, "b": (Status.COMPLETED, Ending(b"output")), "c": (Status.FAILED, Ending(error=b"{}"))}

    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            (InstanceFilter(), "fedcba"),
            (InstanceFilter(limit=2), "fe"),
            (InstanceFilter(status=(Status.COMPLETED,)), "fb"),
            (InstanceFilter(status=(Status.COMPLETED, Status.PENDING)), "feba"),
            (InstanceFilter(status=(Status.COMPLETED, Status.PENDING), limit=2), "fe"),
            (InstanceFilter(workflow="mail"), "dc"),
            (InstanceFilter(workflow="ai"), "dc"),
            (InstanceFilter(workflow="%"), ""),
            (InstanceFilter(workflow="mail", status=(Status.RUNNING,)), "dc"),
            (InstanceFilter(instance_id="d"), "d"),
            (InstanceFilter(instance_id="d", workflow="order"), ""),
            (InstanceFilter(instance_id="d", status=(Status.COMPLETED,)), ""),
            (InstanceFilter(instance_id="d", created_after=40), ""),
            (InstanceFilter(instance_id="zz"), ""),
            (InstanceFilter(created_after=20), "fedcb"),
            (InstanceFilter(created_before=30), "ba"),
            (InstanceFilter(created_after=20, created_before=30), "b"),
            (InstanceFilter(before=(30, "d")), "cba"),
            (InstanceFilter(before=(30, "d"), limit=1), "c"),
            (InstanceFilter(before=(30, "c"), status=(Status.COMPLETED, Status.RUNNING)), "b"),
            (InstanceFilter(before=(30, "c"), created_before=20), "a"),
            (InstanceFilter(before=(10, "a")), ""),
        ],
        ids=str,
    )
    async def test_lists(self, store: Store, query: InstanceFilter, expected: str) -> None:
        await write(store, create("a", now=10, owner=None), create("b", now=20), create("f", now=50))
        await write(store, create("d", now=30, workflow="mail"), create("c", now=30, workflow="mail"))
        await write(store, create("e", now=40, owner=None), ending("b"), ending("f"))
        assert "".join(one.row.instance_id for one in await store.list(query)) == expected

    async def test_a_list_brings_payloads_and_waits(self, store: Store) -> None:
        await started(store, "a", "b")
        await write(store, transition("a", waits=(WAIT,)), ending("b"))
        found = {one.row.instance_id: one for one in await store.list(InstanceFilter())}
        assert (found["a"].waits, found["a"].output) == ((WAIT,), None)
        assert (found["b"].waits, found["b"].output, found["b"].input) == ((), b"output", b"input")

    async def test_pages_meet_without_gap_or_overlap(self, store: Store) -> None:
        ids = [f"i{n:02}" for n in range(25)]
        await write(store, *(create(one, now=10 + n // 4) for n, one in enumerate(ids)))
        seen: list[str] = []
        before = None
        while page := await store.list(InstanceFilter(before=before, limit=4)):
            seen += [one.row.instance_id for one in page]
            before = (page[-1].row.created_at, page[-1].row.instance_id)
        assert seen == sorted(ids, reverse=True)

"""Group commit: who is told what, and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest

from romancy.errors import StoreError
from romancy.model.history import Attempt
from romancy.model.status import Status
from romancy.model.transition import Answer, Applied, Beat, Create, Refused, Transition, Write
from romancy.store.committer import Committer
from romancy.store.port import Store


class SlowStore:
    """Writes a batch when it is told to."""

    def __init__(self, lanes: int = 1) -> None:
        self.lanes = lanes
        self.batches: list[list[Write]] = []
        self.gate = asyncio.Semaphore(0)
        self.failures: list[BaseException] = []
        self.answers: dict[str, Answer | StoreError] = {}

    async def commit(self, batch: Sequence[Write]) -> list[Answer | StoreError]:
        self.batches.append(list(batch))
        await self.gate.acquire()
        if self.failures:
            raise self.failures.pop(0)
        return [self.answers.get(cast(Any, write).instance_id, Applied()) for write in batch]


class Source:
    def __init__(self, name: str) -> None:
        self.name = self.instance_id = name
        self.answers: list[Any] = []
        self.answered_once = asyncio.Event()

    def take(self) -> Transition:
        return Transition(self.name, 1, "w", 1, 1, Status.RUNNING, 0, True, 0)

    def answered(self, answer: Any) -> None:
        self.answers.append(answer)
        self.answered_once.set()


def create(name: str) -> Create:
    return Create(name, "wf", "", b"{}", b"", 0)


@pytest.fixture
async def store() -> SlowStore:
    return SlowStore()


@pytest.fixture
async def committer(store: SlowStore) -> AsyncIterator[Committer]:
    committer = Committer(cast(Store, store))
    committer.start()
    yield committer
    await committer.abandon()


async def rounds(number: int = 5) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_what_becomes_ready_while_a_batch_is_written_goes_into_the_next(
    store: SlowStore, committer: Committer
) -> None:
    first = committer.submit(create("a"))
    await rounds()
    others = [committer.submit(create(name)) for name in "bcd"]
    source = Source("run")
    committer.enlist(source)
    await rounds()
    assert not first.done()

    store.gate.release()
    await first
    store.gate.release()
    await asyncio.gather(*others)

    assert [len(batch) for batch in store.batches] == [1, 4]
    assert source.answers == [Applied()]


async def test_nothing_is_acknowledged_before_the_commit(store: SlowStore, committer: Committer) -> None:
    future = committer.submit(create("a"))
    await rounds(20)
    assert store.batches
    assert not future.done()
    store.gate.release()
    assert await future == Applied()


async def test_one_bad_write_is_told_alone(store: SlowStore, committer: Committer) -> None:
    store.answers = {"bad": StoreError("too large"), "old": Refused(Status.COMPLETED)}
    bad, old, good = (committer.submit(create(name)) for name in ("bad", "old", "good"))
    store.gate.release()

    assert await good == Applied()
    assert await old == Refused(Status.COMPLETED)
    with pytest.raises(StoreError, match="too large"):
        await bad


async def test_when_the_database_fails_callers_are_told_and_transitions_are_written_again(
    store: SlowStore, committer: Committer, caplog: pytest.LogCaptureFixture
) -> None:
    store.failures = [StoreError("the disk is full"), StoreError("the disk is full")]
    source = Source("run")
    committer.enlist(source)
    future = committer.submit(create("a"))
    for _ in range(3):
        store.gate.release()

    with pytest.raises(StoreError, match="the disk is full"):
        await future
    await source.answered_once.wait()

    assert source.answers == [Applied()]
    assert [[cast(Any, write).instance_id for write in batch] for batch in store.batches] == [["a", "run"], ["run"], ["run"]]
    assert "will try again" in caplog.text


async def test_a_committer_that_is_abandoned_tells_who_waits(store: SlowStore, committer: Committer) -> None:
    written = committer.submit(create("a"))
    await rounds()
    queued = committer.submit(create("b"))

    await committer.abandon()

    for future in (written, queued):
        with pytest.raises(StoreError):
            await future
    with pytest.raises(StoreError, match="not running"):
        await committer.submit(create("c"))


async def test_who_comes_while_a_committer_is_abandoned_is_left_unwritten(store: SlowStore, committer: Committer) -> None:
    await rounds()
    ending = asyncio.create_task(committer.abandon())
    await asyncio.sleep(0)

    committer.enlist(Source("late"))
    await ending
    committer.enlist(Source("later"))

    assert not store.batches


# --- two batches under way


@pytest.fixture
async def server() -> SlowStore:
    return SlowStore(lanes=2)


@pytest.fixture
async def on_server(server: SlowStore) -> AsyncIterator[Committer]:
    committer = Committer(cast(Store, server))
    committer.start()
    yield committer
    await committer.abandon()


def ids(store: SlowStore) -> list[list[str]]:
    return [[cast(Any, write).instance_id for write in batch] for batch in store.batches]


async def test_many_are_written_in_two_halves(server: SlowStore, on_server: Committer) -> None:
    sources = [Source(f"run-{number}") for number in range(10)]
    for source in sources:
        on_server.enlist(source)
    await rounds()
    assert [len(batch) for batch in server.batches] == [5, 5], "both are under way"

    server.gate.release()
    await sources[0].answered_once.wait()
    assert not sources[9].answers
    server.gate.release()
    await sources[9].answered_once.wait()
    await on_server.drained()
    assert all(source.answers == [Applied()] for source in sources)


async def test_of_many_calls_and_runs_the_calls_are_one_half(server: SlowStore, on_server: Committer) -> None:
    calls = [on_server.submit(create(f"call-{number}")) for number in range(5)]
    calls.append(on_server.submit(beat("run-0")))
    sources = [Source(f"run-{number}") for number in range(8)]
    for source in sources:
        on_server.enlist(source)
    await rounds()
    first, second = ids(server)
    assert first == [*(f"call-{number}" for number in range(5)), "run-0", "run-0"], "an attempt is shown, then ended"
    assert second == [f"run-{number}" for number in range(1, 8)]

    server.gate.release()
    server.gate.release()
    await asyncio.gather(*calls)
    await on_server.drained()
    assert all(source.answers == [Applied()] for source in sources)


async def test_runs_leave_a_batch_to_many_calls_but_not_before_their_attempts_are_shown(
    server: SlowStore, on_server: Committer
) -> None:
    calls = [on_server.submit(create(f"call-{number}")) for number in range(8)] + [on_server.submit(beat("run-0"))]
    sources = [Source("run-0"), Source("run-1")]
    for source in sources:
        on_server.enlist(source)
    await rounds()
    assert [len(batch) for batch in server.batches] == [9, 1], "both are under way"
    assert ids(server)[1] == ["run-1"]

    server.gate.release()
    await asyncio.gather(*calls)
    await rounds()
    assert ids(server)[2:] == [["run-0"]]
    server.gate.release()
    server.gate.release()
    await sources[0].answered_once.wait()
    await on_server.drained()


async def test_calls_wait_for_calls_and_runs_do_not(server: SlowStore, on_server: Committer) -> None:
    first = on_server.submit(create("a"))
    await rounds()
    second = on_server.submit(create("b"))
    source = Source("run")
    on_server.enlist(source)
    await rounds()
    assert ids(server) == [["a"], ["run"]]

    server.gate.release()
    await first
    await rounds()
    assert ids(server) == [["a"], ["run"], ["b"]]
    server.gate.release()
    server.gate.release()
    await second
    await source.answered_once.wait()


def beat(name: str) -> Beat:
    attempt = Attempt(op="a:1", attempt=1, name="a", open=True, worker="w", epoch=1, site="", scheduled_at=0, started_at=0)
    return Beat(name, 1, 1, attempt)


async def test_a_run_waits_until_its_open_attempt_is_shown(server: SlowStore, on_server: Committer) -> None:
    first = on_server.submit(create("a"))
    await rounds()
    shown = on_server.submit(beat("run"))
    source, other = Source("run"), Source("other")
    on_server.enlist(source)
    on_server.enlist(other)
    await rounds()
    assert ids(server) == [["a"], ["other"]]

    server.gate.release()
    await first
    await rounds()
    assert ids(server)[2:] == [["run", "run"]], "what shows it, then what it did"
    server.gate.release()
    server.gate.release()
    await shown
    await source.answered_once.wait()
    await on_server.drained()


async def test_a_run_waits_for_its_open_attempt_in_the_other_batch(server: SlowStore, on_server: Committer) -> None:
    shown = on_server.submit(beat("run"))
    await rounds()
    source = Source("run")
    on_server.enlist(source)
    await rounds()
    assert ids(server) == [["run"]]
    server.gate.release()
    await shown
    await rounds()
    assert ids(server) == [["run"], ["run"]]
    server.gate.release()
    await source.answered_once.wait()
    await on_server.drained()


async def test_a_call_that_waits_for_calls_lets_others_work(server: SlowStore, on_server: Committer) -> None:
    first = on_server.submit(create("a"))
    await rounds()
    second = on_server.submit(create("b"))
    await rounds()
    assert ids(server) == [["a"]]
    server.gate.release()
    server.gate.release()
    await asyncio.gather(first, second)
    assert ids(server) == [["a"], ["b"]]


async def test_a_third_batch_waits(server: SlowStore, on_server: Committer) -> None:
    sources = [Source(name) for name in "abc"]
    for source in sources:
        on_server.enlist(source)
        await rounds()
    assert ids(server) == [["a"], ["b"]]
    assert not on_server.idle
    for _ in range(3):
        server.gate.release()
    await sources[2].answered_once.wait()
    await on_server.drained()
    assert on_server.idle


async def test_of_two_batches_one_fails(server: SlowStore, on_server: Committer) -> None:
    server.failures = [StoreError("away")]
    sources = [Source(name) for name in "ab"]
    for source in sources:
        on_server.enlist(source)
        await rounds()
    for _ in range(3):
        server.gate.release()
    for source in sources:
        await source.answered_once.wait()
    await on_server.drained()
    assert [source.answers for source in sources] == [[Applied()], [Applied()]]


async def test_both_are_told_when_it_is_abandoned(server: SlowStore, on_server: Committer) -> None:
    source = Source("run")
    on_server.enlist(source)
    await rounds()
    written, queued = on_server.submit(create("a")), on_server.submit(create("b"))
    await rounds()
    await on_server.abandon()
    for future in (written, queued):
        with pytest.raises(StoreError):
            await future
    assert source.answers == []


async def test_what_nobody_foresaw_stops_it(server: SlowStore, on_server: Committer) -> None:
    server.failures = [ZeroDivisionError()]
    on_server.enlist(Source("run"))
    server.gate.release()
    while True:
        try:
            on_server.submit(create("a")).add_done_callback(lambda future: future.exception())
        except StoreError:
            break
        await asyncio.sleep(0)

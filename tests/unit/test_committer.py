"""Group commit: the answers to writes, and their order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest

from romancy.errors import StoreError
from romancy.model.history import AttemptRow, Entry, Kind, Outcome
from romancy.model.messaging import Event, Message, Publish, SendEvent
from romancy.model.status import Status
from romancy.model.transition import (
    AcceptEvents,
    Applied,
    AttemptUpdate,
    CreateInstance,
    Ending,
    PostMessage,
    Recurrence,
    Refused,
    Transition,
    Write,
    WriteResult,
    size_of,
)
from romancy.store.committer import Committer
from romancy.store.port import NotWrittenError, Store


class SlowStore:
    """Writes a batch when the test releases the gate."""

    def __init__(self, concurrent_batches: int = 1) -> None:
        self.concurrent_batches = concurrent_batches
        self.call_timeout = 30.0
        self.batches: list[list[Write]] = []
        self.gate = asyncio.Semaphore(0)
        self.failures: list[BaseException] = []
        self.answers: dict[str, WriteResult | StoreError] = {}

    async def commit(self, batch: Sequence[Write]) -> list[WriteResult | StoreError]:
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

    def take_transition(self) -> Transition:
        return Transition(self.name, 1, "w", 1, 1, Status.RUNNING, 0, True, 0)

    def on_answer(self, answer: Any) -> None:
        self.answers.append(answer)
        self.answered_once.set()


def unavailable(why: str) -> StoreError:
    error = StoreError(why)
    error.retryable = True
    return error


def create(name: str) -> CreateInstance:
    return CreateInstance(name, "wf", "", b"{}", b"", 0)


@pytest.fixture
async def store() -> SlowStore:
    return SlowStore()


@pytest.fixture
async def committer(store: SlowStore) -> AsyncIterator[Committer]:
    committer = Committer(cast(Store, store))
    committer.start()
    yield committer
    await committer.abandon()


async def run_event_loop(number: int = 5) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_what_becomes_ready_while_a_batch_is_written_goes_into_the_next(
    store: SlowStore, committer: Committer
) -> None:
    first = committer.submit(create("a"))
    await run_event_loop()
    others = [committer.submit(create(name)) for name in "bcd"]
    source = Source("run")
    committer.enqueue(source)
    await run_event_loop()
    assert not first.done()

    store.gate.release()
    await first
    store.gate.release()
    await asyncio.gather(*others)

    assert [len(batch) for batch in store.batches] == [1, 4]
    assert source.answers == [Applied()]


async def test_nothing_is_acknowledged_before_the_commit(store: SlowStore, committer: Committer) -> None:
    future = committer.submit(create("a"))
    await run_event_loop(20)
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
    store.failures = [unavailable("the disk is full"), unavailable("the disk is full")]
    source = Source("run")
    committer.enqueue(source)
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
    await run_event_loop()
    queued = committer.submit(create("b"))

    await committer.abandon()

    for future in (written, queued):
        with pytest.raises(StoreError):
            await future
    with pytest.raises(StoreError, match="not running"):
        await committer.submit(create("c"))


async def test_who_comes_while_a_committer_is_abandoned_is_left_unwritten(store: SlowStore, committer: Committer) -> None:
    await run_event_loop()
    ending = asyncio.create_task(committer.abandon())
    await asyncio.sleep(0)

    committer.enqueue(Source("late"))
    await ending
    committer.enqueue(Source("later"))

    assert not store.batches


# --- two batches at the same time


@pytest.fixture
async def server() -> SlowStore:
    return SlowStore(concurrent_batches=2)


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
        on_server.enqueue(source)
    await run_event_loop()
    assert [len(batch) for batch in server.batches] == [5, 5], "both are being written"

    server.gate.release()
    await sources[0].answered_once.wait()
    assert not sources[9].answers
    server.gate.release()
    await sources[9].answered_once.wait()
    await on_server.wait_until_idle()
    assert all(source.answers == [Applied()] for source in sources)


async def test_of_many_calls_and_runs_the_calls_are_one_half(server: SlowStore, on_server: Committer) -> None:
    calls = [on_server.submit(create(f"call-{number}")) for number in range(5)]
    calls.append(on_server.submit(beat("run-0")))
    sources = [Source(f"run-{number}") for number in range(8)]
    for source in sources:
        on_server.enqueue(source)
    await run_event_loop()
    first, second = ids(server)
    assert first == [*(f"call-{number}" for number in range(5)), "run-0", "run-0"], (
        "the start of an attempt comes before its end"
    )
    assert second == [f"run-{number}" for number in range(1, 8)]

    server.gate.release()
    server.gate.release()
    await asyncio.gather(*calls)
    await on_server.wait_until_idle()
    assert all(source.answers == [Applied()] for source in sources)


async def test_runs_leave_a_batch_to_many_calls_but_not_before_their_attempts_are_shown(
    server: SlowStore, on_server: Committer
) -> None:
    calls = [on_server.submit(create(f"call-{number}")) for number in range(8)] + [on_server.submit(beat("run-0"))]
    sources = [Source("run-0"), Source("run-1")]
    for source in sources:
        on_server.enqueue(source)
    await run_event_loop()
    assert [len(batch) for batch in server.batches] == [9, 1], "both are being written"
    assert ids(server)[1] == ["run-1"]

    server.gate.release()
    await asyncio.gather(*calls)
    await run_event_loop()
    assert ids(server)[2:] == [["run-0"]]
    server.gate.release()
    server.gate.release()
    await sources[0].answered_once.wait()
    await on_server.wait_until_idle()


async def test_calls_wait_for_calls_and_runs_do_not(server: SlowStore, on_server: Committer) -> None:
    first = on_server.submit(create("a"))
    await run_event_loop()
    second = on_server.submit(create("b"))
    source = Source("run")
    on_server.enqueue(source)
    await run_event_loop()
    assert ids(server) == [["a"], ["run"]]

    server.gate.release()
    await first
    await run_event_loop()
    assert ids(server) == [["a"], ["run"], ["b"]]
    server.gate.release()
    server.gate.release()
    await second
    await source.answered_once.wait()


def beat(name: str) -> AttemptUpdate:
    attempt = AttemptRow(
        op="a:1", attempt=1, name="a", open=True, worker="w", epoch=1, site="", scheduled_at=0, started_at=0
    )
    return AttemptUpdate(name, 1, 1, attempt)


async def test_a_run_waits_until_its_open_attempt_is_shown(server: SlowStore, on_server: Committer) -> None:
    first = on_server.submit(create("a"))
    await run_event_loop()
    shown = on_server.submit(beat("run"))
    source, other = Source("run"), Source("other")
    on_server.enqueue(source)
    on_server.enqueue(other)
    await run_event_loop()
    assert ids(server) == [["a"], ["other"]]

    server.gate.release()
    await first
    await run_event_loop()
    assert ids(server)[2:] == [["run", "run"]], "its start comes before its end"
    server.gate.release()
    server.gate.release()
    await shown
    await source.answered_once.wait()
    await on_server.wait_until_idle()


async def test_a_run_waits_for_its_open_attempt_in_the_other_batch(server: SlowStore, on_server: Committer) -> None:
    shown = on_server.submit(beat("run"))
    await run_event_loop()
    source = Source("run")
    on_server.enqueue(source)
    await run_event_loop()
    assert ids(server) == [["run"]]
    server.gate.release()
    await shown
    await run_event_loop()
    assert ids(server) == [["run"], ["run"]]
    server.gate.release()
    await source.answered_once.wait()
    await on_server.wait_until_idle()


async def test_a_call_that_waits_for_calls_lets_others_work(server: SlowStore, on_server: Committer) -> None:
    first = on_server.submit(create("a"))
    await run_event_loop()
    second = on_server.submit(create("b"))
    await run_event_loop()
    assert ids(server) == [["a"]]
    server.gate.release()
    server.gate.release()
    await asyncio.gather(first, second)
    assert ids(server) == [["a"], ["b"]]


async def test_a_third_batch_waits(server: SlowStore, on_server: Committer) -> None:
    sources = [Source(name) for name in "abc"]
    for source in sources:
        on_server.enqueue(source)
        await run_event_loop()
    assert ids(server) == [["a"], ["b"]]
    assert not on_server.is_idle
    for _ in range(3):
        server.gate.release()
    await sources[2].answered_once.wait()
    await on_server.wait_until_idle()
    assert on_server.is_idle


async def test_of_two_batches_one_fails(server: SlowStore, on_server: Committer) -> None:
    server.failures = [unavailable("away")]
    sources = [Source(name) for name in "ab"]
    for source in sources:
        on_server.enqueue(source)
        await run_event_loop()
    for _ in range(3):
        server.gate.release()
    for source in sources:
        await source.answered_once.wait()
    await on_server.wait_until_idle()
    assert [source.answers for source in sources] == [[Applied()], [Applied()]]


async def test_both_are_told_when_it_is_abandoned(server: SlowStore, on_server: Committer) -> None:
    source = Source("run")
    on_server.enqueue(source)
    await run_event_loop()
    written, queued = on_server.submit(create("a")), on_server.submit(create("b"))
    await run_event_loop()
    await on_server.abandon()
    for future in (written, queued):
        with pytest.raises(StoreError):
            await future
    assert source.answers == []


UNEXPECTED = [
    KeyError("row"),
    IndexError(),
    RuntimeError("bug"),
    MemoryError(),
    AssertionError(),
    ExceptionGroup("", [OSError()]),
]
"""Errors that a store should not raise."""


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("error", UNEXPECTED, ids=lambda error: type(error).__name__)
async def test_the_committer_goes_on_whatever_the_store_raises(
    server: SlowStore, on_server: Committer, caplog: pytest.LogCaptureFixture, error: Exception, times: int
) -> None:
    server.failures = [error] * times
    source = Source("run")
    on_server.enqueue(source)
    await run_event_loop()
    for _ in range(times + 2):
        server.gate.release()
    await source.answered_once.wait()
    assert source.answers == [Applied()]
    assert await on_server.submit(create("a")) == Applied()
    assert "Traceback" in caplog.text
    await on_server.wait_until_idle()


async def test_who_waits_for_what_failed_alone_is_told(store: SlowStore, committer: Committer) -> None:
    store.failures = [KeyError("row")]
    store.gate.release()
    with pytest.raises(StoreError, match=r"not known whether this was written.*KeyError") as caught:
        await committer.submit(create("a"))
    assert isinstance(caught.value.__cause__, KeyError)


class PoisonedStore(SlowStore):
    """Fails for every batch with a poisoned write."""

    def __init__(self, *poisoned: str) -> None:
        super().__init__()
        self.poisoned = set(poisoned)

    async def commit(self, batch: Sequence[Write]) -> list[WriteResult | StoreError]:
        self.batches.append(list(batch))
        if any(isinstance(write, PostMessage) or write.instance_id in self.poisoned for write in cast("list[Any]", batch)):
            raise KeyError("row")
        return [Applied() for _ in batch]


async def test_what_is_poisoned_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    store = PoisonedStore("call-1", "run-1")
    committer = Committer(cast(Store, store))
    calls, sources = [f"call-{number}" for number in range(3)], [Source(f"run-{number}") for number in range(3)]
    committer.start()
    try:
        waiting = [committer.submit(create(name)) for name in calls]
        said = committer.submit(PostMessage(Publish(Message("m", "c", b"")), 0))
        for source in sources:
            committer.enqueue(source)
        for source in (sources[0], sources[2]):
            await source.answered_once.wait()
        assert [await waiting[0], await waiting[2]] == [Applied(), Applied()]
        with pytest.raises(StoreError, match="failed unexpectedly"):
            await waiting[1]
        with pytest.raises(StoreError, match="not known"):
            await said
        assert not any(isinstance(write, PostMessage) for batch in store.batches[1:] for write in batch), (
            "it might be committed twice"
        )
        assert not sources[1].answers, "it is repeated"
        assert committer.problem is None, "other writes are committed"
        assert not committer.is_idle
        store.poisoned.clear()
        await sources[1].answered_once.wait()
        assert sources[1].answers == [Applied()]
        await committer.wait_until_idle()
    finally:
        await committer.abandon()


async def test_what_can_never_be_written_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("romancy.store.committer._FIRST_PAUSE", 0)
    store = PoisonedStore("poisoned")
    committer = Committer(cast(Store, store))
    committer.start()
    try:
        source = Source("poisoned")
        committer.enqueue(source)
        while not source.answers:
            assert await committer.submit(create("other")) == Applied()
        assert isinstance(source.answers[0], StoreError)
        await committer.wait_until_idle()
    finally:
        await committer.abandon()


async def test_a_database_that_goes_away_while_each_is_written_by_itself(store: SlowStore, committer: Committer) -> None:
    store.failures = [KeyError("row"), unavailable("gone")]
    waiting = [committer.submit(create(name)) for name in "abc"]
    source = Source("run")
    committer.enqueue(source)
    for _ in range(3):
        store.gate.release()
    for future in waiting:
        with pytest.raises(StoreError, match="gone"):
            await future
    await source.answered_once.wait()
    assert ids(store) == [["a", "b", "c", "run"], ["a"], ["run"]]


async def test_what_is_not_written_of_a_batch_is_written_again(store: SlowStore, committer: Committer) -> None:
    store.answers = {"call": NotWrittenError(unavailable("gone")), "second": NotWrittenError(unavailable("gone"))}
    first, second = Source("first"), Source("second")
    for source in (first, second):
        committer.enqueue(source)
    call = committer.submit(create("call"))
    store.gate.release()
    with pytest.raises(StoreError, match="gone"):
        await call
    await first.answered_once.wait()
    store.answers.clear()
    store.gate.release()
    await second.answered_once.wait()
    assert ids(store) == [["call", "first", "second"], ["second"]]
    assert first.answers == second.answers == [Applied()]


async def test_a_committer_says_that_nothing_can_be_written(store: SlowStore, committer: Committer) -> None:
    store.failures = [KeyError("row")] * 2
    for name in "ab":
        assert committer.problem is None
        store.gate.release()
        with pytest.raises(StoreError):
            await committer.submit(create(name))
    assert committer.problem is not None
    assert committer.is_stuck(0)
    assert not committer.is_stuck(3600)
    store.gate.release()
    assert await committer.submit(create("c")) == Applied()
    assert committer.problem is None
    assert not committer.is_stuck(0)


async def test_a_committer_that_has_died_says_so_and_answers_all_callers(server: SlowStore, on_server: Committer) -> None:
    server.failures = [asyncio.CancelledError()]
    written = on_server.submit(create("a"))
    await run_event_loop()
    queued = on_server.submit(create("b"))
    server.gate.release()
    for future in (written, queued):
        with pytest.raises(StoreError):
            await future
    assert on_server.is_dead
    assert on_server.is_stuck(3600)
    assert on_server.problem is not None
    with pytest.raises(StoreError, match="has stopped"):
        _ = on_server.submit(create("c"))


async def test_no_caller_waits_longer_than_a_call_may_take(store: SlowStore, committer: Committer) -> None:
    store.call_timeout = 0.05
    followed: list[WriteResult | StoreError] = []
    first = committer.submit(create("a"), followed.append)
    await run_event_loop()
    second = committer.submit(create("b"))
    with pytest.raises(StoreError, match="not known whether this was written"):
        await first
    with pytest.raises(StoreError, match="was not written"):
        await second
    assert not followed, "the batch is still being written"
    store.gate.release()
    await committer.wait_until_idle()
    assert followed == [Applied()]
    assert ids(store) == [["a"]]
    store.call_timeout = 30.0
    store.gate.release()
    assert await committer.submit(create("c")) == Applied()


def large(name: str, size: int) -> CreateInstance:
    return create(name)._replace(input=bytes(size))


class LargeSource(Source):
    def take_transition(self) -> Transition:
        entry = Entry(1, Kind.ACTIVITY, "a:1", Outcome.OK, 0, value=bytes(600))
        return super().take_transition()._replace(history=(entry,))


async def test_a_batch_has_a_bound_in_bytes(store: SlowStore, committer: Committer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("romancy.store.committer._MOST_BYTES", 1000)
    calls = [committer.submit(large(name, size)) for name, size in (("a", 5000), ("b", 900), ("c", 50), ("d", 60))]
    sources = [LargeSource(f"run-{number}") for number in range(3)]
    for source in sources:
        committer.enqueue(source)
    for _ in range(6):
        store.gate.release()
    await asyncio.gather(*calls)
    await sources[2].answered_once.wait()
    await committer.wait_until_idle()
    assert ids(store) == [["a"], ["b", "c"], ["d", "run-0"], ["run-1"], ["run-2"]]
    assert all(source.answers == [Applied()] for source in sources)


async def test_a_run_that_is_left_over_comes_after_what_shows_its_attempt(
    server: SlowStore, on_server: Committer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("romancy.store.committer._MOST_BYTES", 1000)
    waiting = [on_server.submit(large("a", 5000)), on_server.submit(beat("run-1"))]
    for number in range(3):
        on_server.enqueue(LargeSource(f"run-{number}"))
    for _ in range(8):
        server.gate.release()
    await asyncio.gather(*waiting)
    await on_server.wait_until_idle()
    written = [name for batch in ids(server) for name in batch]
    assert sorted(written) == ["a", "run-0", "run-1", "run-1", "run-2"]
    shown = next(place for place, batch in enumerate(server.batches) if any(type(one) is AttemptUpdate for one in batch))
    ended = [
        place
        for place, batch in enumerate(server.batches)
        if any(type(one) is Transition and one.instance_id == "run-1" for one in batch)
    ]
    assert shown <= ended[0]


PAYLOAD = bytes(1000)


@pytest.mark.parametrize(
    "write",
    [
        large("a", 1000),
        Source("a").take_transition()._replace(history=(Entry(1, Kind.ACTIVITY, "a:1", Outcome.OK, 0, input=PAYLOAD),)),
        Source("a").take_transition()._replace(ending=Ending(output=PAYLOAD)),
        Source("a").take_transition()._replace(recur=Recurrence(PAYLOAD)),
        Source("a").take_transition()._replace(effects=(SendEvent(Event("e", "/s", "t", PAYLOAD)),)),
        Source("a").take_transition()._replace(effects=(SendEvent(Event("e", "/s", "t"), (large("b", 1000),)),)),
        Source("a").take_transition()._replace(effects=(Publish(Message("m", "c", PAYLOAD)),)),
        AcceptEvents((Event("e", "/s", "t", PAYLOAD),), 0),
        AcceptEvents((Event("e", "/s", "t"),), 0, ((large("b", 1000),),)),
        PostMessage(Publish(Message("m", "c", PAYLOAD)), 0),
    ],
    ids=lambda write: type(write).__name__,
)
def test_payloads_are_counted_wherever_they_are(write: Write) -> None:
    assert size_of(write) == 1000

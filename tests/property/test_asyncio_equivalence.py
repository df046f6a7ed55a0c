"""A program on a run observes what it would observe on an ordinary loop, for the same order of resolutions.

The ordinary side is `asyncio.Runner` with CPython's loop. Its clock stands still, and its timers, like all operations,
resolve when the test says so. The sets that asyncio keeps are ordered there, too.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import sys
from asyncio import taskgroups
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.property.asyncio_programs import (
    Environment,
    Failure,
    Generated,
    Node,
    TaskNames,
    WaitFor,
    contains,
    describe,
    programs,
)
from tests.property.hypothesis_settings import examples, unhurried
from tests.property.replay_check import BEGIN, Recorder, RunEnvironment, evicting, prepare

from romancy.core import asyncio_patches
from romancy.core.commands import Fail, Finish, Resolution
from romancy.core.loop import Run
from romancy.errors import WorkflowStuckError
from romancy.model.history import Kind, Outcome

SECOND = 1_000_000
MAX_RESOLUTIONS = 200

# Excluded: generators left half-way, which asyncio ends at garbage collection and a run at its end; task names, which
# asyncio counts for the whole process; and `wait_for` of 3.11, which creates a task that a run does not.
DIFFERENT: tuple[type[Node], ...] = (TaskNames, Generated, *([WaitFor] if sys.version_info < (3, 12) else []))


class PlainLoop(asyncio.SelectorEventLoop):
    """CPython's loop with a clock and timers that the test controls."""

    def __init__(self) -> None:
        super().__init__()
        self.now = BEGIN / SECOND
        self.timers = 0
        self.open: dict[str, tuple[float | None, Callable[[str | None, str], None]]] = {}
        self.kept: list[asyncio.Task[Any]] = []
        self.set_exception_handler(lambda loop, context: None)
        self.set_task_factory(self.keep)

    def keep(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """Create a task and keep a reference, because asyncio refers to its tasks weakly."""
        self.kept.append(asyncio.Task(coro, loop=loop, **options))
        return self.kept[-1]

    def time(self) -> float:
        return self.now

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        if when <= self.now:
            return self.call_soon(callback, *args, context=context)
        self.timers += 1
        handle = PlainTimer(when, callback, args, self, context)
        handle.op = op = f"timer:{self.timers}"
        self.open[op] = (when, lambda error, text: self._ready.append(handle))  # type: ignore[attr-defined]
        return handle


class PlainTimer(asyncio.TimerHandle):
    """A timer that is removed from the list when it is cancelled."""

    op: str

    def cancel(self) -> None:
        super().cancel()
        loop: Any = self._loop  # type: ignore[attr-defined]
        if loop is not None:
            loop.open.pop(self.op, None)


class PlainEnvironment:
    """The environment of a program on an ordinary loop: operations are futures that the test resolves."""

    def __init__(self, loop: PlainLoop) -> None:
        self.loop = loop
        self.counts: dict[str, int] = {}
        self.trace: list[object] = []

    def operation(self, name: str, *, compensated: bool = False) -> asyncio.Future[Any]:
        self.counts[name] = self.counts.get(name, 0) + 1
        op = f"{name}:{self.counts[name]}"
        future: asyncio.Future[Any] = self.loop.create_future()

        def resolve(error: str | None, text: str) -> None:
            if error is None:
                future.set_result(text)
            else:
                future.set_exception(Failure(error))

        self.loop.open[op] = (None, resolve)
        future.add_done_callback(lambda _: self.loop.open.pop(op, None) if future.cancelled() else None)
        return future

    async def effect(self, name: str) -> None:
        return None

    def collect(self, futures: list[Any]) -> Collection[Any]:
        return futures

    def note(self, *seen: object) -> None:
        self.trace.append([describe(one) for one in seen])


@dataclass(frozen=True)
class EndMarker(Node):
    """The body on both sides. It marks its end in the trace: what is left then is cancelled in no defined order."""

    program: Node

    async def run(self, environment: Environment) -> object:
        try:
            return await self.program.run(environment)
        finally:
            environment.note(END)


END = "the body has ended"


def until_end(trace: list[object]) -> list[object]:
    """The trace up to the end of the body."""
    return trace[: trace.index([END])] if [END] in trace else trace[:]


class Schedule:
    """What happens next, derived from a seed: the same questions get the same answers on both sides."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.at = BEGIN
        self.asked: list[list[str]] = []

    def next(self, open_now: list[str]) -> tuple[str | None, str | None, str]:
        """The operation that ends (None: the body is cancelled), its error and its result."""
        self.asked.append(open_now)
        self.at += self.rng.choice((0, 1, SECOND // 2))
        text = f"r{len(self.asked)}"
        if self.rng.random() < 0.03:
            return None, None, text
        op = self.rng.choice(open_now)
        return op, text if self.rng.random() < 0.15 else None, text


class OrderedEnvironment(RunEnvironment):
    """The environment of a run, with lists instead of sets, because sets on asyncio have no defined order."""

    def collect(self, futures: list[Any]) -> Collection[Any]:
        return futures


Seen = tuple[object, list[object], list[list[str]]]


def run_on_run(program: Node, schedule: Schedule) -> Seen | None:
    """What a program observes on a run; None if it takes too long."""
    with evicting() as runs:
        program_run = prepare(EndMarker(program), [], Recorder, OrderedEnvironment)
        runs.append(program_run)
        run = program_run.run
        run.advance(Resolution(Kind.START, "", schedule.at))
        while run.body_outcome is None and [END] not in program_run.environment.trace:
            if len(schedule.asked) > MAX_RESOLUTIONS:
                return None
            feed(run, schedule)
        while run.body_outcome is None:
            op, waiting = next(iter(run.pending.items()))
            run.advance(Resolution(waiting.issue.kind, op, max(schedule.at, waiting.issue.due or 0), value=b"left over"))
        trace = until_end(program_run.environment.trace)
        match run.body_outcome:
            case Finish(value):
                return ["returned", describe(value)], trace, schedule.asked
            case Fail(error):
                return ["raised", comparable_error(error)], trace, schedule.asked
            case _:
                return "cancelled", trace, schedule.asked


def feed(run: Recorder, schedule: Schedule) -> None:
    """Feed one resolution to a run."""
    op, error, text = schedule.next(list(run.pending))
    if op is None:
        run.advance(Resolution(Kind.CANCEL, "", schedule.at))
        return
    issue = run.pending[op].issue
    if issue.due is not None:
        schedule.at = max(schedule.at, issue.due)
        run.advance(Resolution(issue.kind, op, schedule.at))
    else:
        outcome = Outcome.OK if error is None else Outcome.ERROR
        run.advance(Resolution(issue.kind, op, schedule.at, outcome, text.encode()))


def run_on_asyncio(program: Node, schedule: Schedule) -> Seen:
    """What a program observes on an ordinary loop."""
    loops: list[PlainLoop] = []

    def make() -> PlainLoop:
        loops.append(PlainLoop())
        return loops[0]

    with asyncio.Runner(loop_factory=make) as runner:
        runner.get_loop()
        environment = PlainEnvironment(loops[0])
        driver = Driver(loops[0], environment, schedule)
        try:
            ended: object = ["returned", describe(runner.run(driver.follow(program)))]
        except (Exception, asyncio.CancelledError) as error:
            ended = ["raised", comparable_error(error)]
    if driver.stuck is not None:
        return ["raised", WorkflowStuckError.__name__], driver.stuck, schedule.asked
    if driver.cancelled:
        ended = "cancelled"
    return ended, until_end(environment.trace), schedule.asked


class Driver:
    """Callback of the loop that resolves one operation whenever nothing else is ready."""

    def __init__(self, loop: PlainLoop, environment: PlainEnvironment, schedule: Schedule) -> None:
        self.loop = loop
        self.environment = environment
        self.schedule = schedule
        self.main: asyncio.Task[Any] | None = None
        self.cancelled = False
        self.stuck: list[object] | None = None

    async def follow(self, program: Node) -> object:
        self.main = asyncio.current_task()
        self.loop.call_soon(self.poll)
        return await EndMarker(program).run(self.environment)

    def poll(self) -> None:
        self.loop.call_soon(self.poll)
        if len(self.loop._ready) == 1:  # type: ignore[attr-defined]
            self.resolve_next()

    def resolve_next(self) -> None:
        loop = self.loop
        assert self.main is not None
        if [END] in self.environment.trace:
            if loop.open:
                self.resolve(next(iter(loop.open)), None, "left over")
        elif self.stuck is not None or not loop.open:
            self.stuck = self.stuck if self.stuck is not None else self.environment.trace[:]
            for task in asyncio.all_tasks(loop):
                task.cancel()
        else:
            op, error, text = self.schedule.next(list(loop.open))
            if op is None:
                loop.now = max(loop.now, self.schedule.at / SECOND)
                if not self.cancelled:  # the body is cancelled once, whatever follows
                    self.main.cancel()
                self.cancelled = True
            else:
                self.resolve(op, error, text)

    def resolve(self, op: str, error: str | None, text: str) -> None:
        when, resolve = self.loop.open.pop(op)
        if when is not None:
            self.schedule.at = max(self.schedule.at, round(when * SECOND))
        self.loop.now = max(self.loop.now, self.schedule.at / SECOND, when or 0)
        resolve(error, text)


def comparable_error(error: BaseException) -> object:
    """A comparable form of an error; for cancellations and stuck runs only the type."""
    if isinstance(error, asyncio.CancelledError | WorkflowStuckError):
        return type(error).__name__
    return describe(error)


# asyncio leaves tasks that were started during cleanup unfinished; their coroutines warn when they are collected.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@unhurried(examples(500))
@given(programs, st.integers(0, 2**32))
def test_a_program_sees_the_same_on_a_run_and_on_asyncio(program: Node, seed: int) -> None:
    assume(not contains(program, DIFFERENT))
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(asyncio_patches, "_in_run", lambda: isinstance(asyncio.get_running_loop(), Run | PlainLoop))
        monkeypatch.setattr(taskgroups, "set", asyncio_patches.OrderedSet, raising=False)
        compare(program, seed)


def compare(program: Node, seed: int) -> None:
    """Run a program on both sides and compare."""
    here = run_on_run(program, Schedule(seed))
    assume(here is not None)
    assert here == run_on_asyncio(program, Schedule(seed))

"""A program on a run sees what it would see on an ordinary loop, for the same order of events.

The ordinary side is `asyncio.Runner` with a loop of CPython's whose time stands still and whose timers, like all
operations, come due when the test says so. The sets that asyncio keeps are given an order there too.
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
    Failure,
    Generated,
    Node,
    TaskNames,
    WaitFor,
    World,
    contains,
    describe,
    programs,
)
from tests.property.hypothesis_settings import examples, unhurried
from tests.property.replay_check import BEGIN, InRun, Recorder, evicting, prepare

from romancy.core import asyncio_patches
from romancy.core.commands import Fail, Finish, Resolution
from romancy.core.loop import Run
from romancy.errors import WorkflowStuckError
from romancy.model.history import Kind, Outcome

SECOND = 1_000_000
LONGEST = 200

# Generators left half-way: asyncio ends them when the collector likes, a run at its end. Names: asyncio's count all
# tasks of the process. `wait_for` of 3.11 makes a task, a run's does not.
DIFFERENT: tuple[type[Node], ...] = (TaskNames, Generated, *([WaitFor] if sys.version_info < (3, 12) else []))


class PlainLoop(asyncio.SelectorEventLoop):
    """CPython's loop with a clock and timers of the test's own."""

    def __init__(self) -> None:
        super().__init__()
        self.now = BEGIN / SECOND
        self.timers = 0
        self.open: dict[str, tuple[float | None, Callable[[str | None, str], None]]] = {}
        self.kept: list[asyncio.Task[Any]] = []
        self.set_exception_handler(lambda loop, context: None)
        self.set_task_factory(self.keep)

    def keep(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """Make a task that the collector does not take: asyncio holds its tasks weakly."""
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
    """A timer that is off the list once it is cancelled."""

    op: str

    def cancel(self) -> None:
        super().cancel()
        loop: Any = self._loop  # type: ignore[attr-defined]
        if loop is not None:
            loop.open.pop(self.op, None)


class InPlain:
    """The world of a program on an ordinary loop: operations are futures that the test resolves."""

    def __init__(self, loop: PlainLoop) -> None:
        self.loop = loop
        self.counts: dict[str, int] = {}
        self.trace: list[object] = []

    def operation(self, name: str, *, undo: bool = False) -> asyncio.Future[Any]:
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

    def several(self, futures: list[Any]) -> Collection[Any]:
        return futures

    def note(self, *seen: object) -> None:
        self.trace.append([describe(one) for one in seen])


@dataclass(frozen=True)
class Witness(Node):
    """The body of both sides. It writes down when it ended: what is left over then is cancelled in no certain order."""

    program: Node

    async def run(self, world: World) -> object:
        try:
            return await self.program.run(world)
        finally:
            world.note(END)


END = "the body has ended"


def until_end(trace: list[object]) -> list[object]:
    """What a program saw before its body ended."""
    return trace[: trace.index([END])] if [END] in trace else trace[:]


class Fate:
    """What happens next, from a seed: the same questions get the same answers on both sides."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.at = BEGIN
        self.asked: list[list[str]] = []

    def next(self, open_now: list[str]) -> tuple[str | None, str | None, str]:
        """The operation that ends (None: the body is cancelled), its error and its result."""
        self.asked.append(open_now)
        self.at += self.chance.choice((0, 1, SECOND // 2))
        text = f"r{len(self.asked)}"
        if self.chance.random() < 0.03:
            return None, None, text
        op = self.chance.choice(open_now)
        return op, text if self.chance.random() < 0.15 else None, text


class InOrder(InRun):
    """The world of a run, for programs that keep no sets of their own: asyncio's have no certain order."""

    def several(self, futures: list[Any]) -> Collection[Any]:
        return futures


Seen = tuple[object, list[object], list[list[str]]]


def on_a_run(program: Node, fate: Fate) -> Seen | None:
    """What a program sees on a run; None if it takes too long."""
    with evicting() as runs:
        played = prepare(Witness(program), [], Recorder, InOrder)
        runs.append(played)
        run = played.run
        run.advance(Resolution(Kind.START, "", fate.at))
        while run.body_outcome is None and [END] not in played.world.trace:
            if len(fate.asked) > LONGEST:
                return None
            feed(run, fate)
        while run.body_outcome is None:
            op, waiting = next(iter(run.pending.items()))
            run.advance(Resolution(waiting.issue.kind, op, max(fate.at, waiting.issue.due or 0), value=b"left over"))
        trace = until_end(played.world.trace)
        match run.body_outcome:
            case Finish(value):
                return ["returned", describe(value)], trace, fate.asked
            case Fail(error):
                return ["raised", named(error)], trace, fate.asked
            case _:
                return "cancelled", trace, fate.asked


def feed(run: Recorder, fate: Fate) -> None:
    """Let one thing happen to a run."""
    op, error, text = fate.next(list(run.pending))
    if op is None:
        run.advance(Resolution(Kind.CANCEL, "", fate.at))
        return
    issue = run.pending[op].issue
    if issue.due is not None:
        fate.at = max(fate.at, issue.due)
        run.advance(Resolution(issue.kind, op, fate.at))
    else:
        outcome = Outcome.OK if error is None else Outcome.ERROR
        run.advance(Resolution(issue.kind, op, fate.at, outcome, text.encode()))


def on_asyncio(program: Node, fate: Fate) -> Seen:
    """What a program sees on an ordinary loop."""
    loops: list[PlainLoop] = []

    def make() -> PlainLoop:
        loops.append(PlainLoop())
        return loops[0]

    with asyncio.Runner(loop_factory=make) as runner:
        runner.get_loop()
        world = InPlain(loops[0])
        shepherd = Shepherd(loops[0], world, fate)
        try:
            ended: object = ["returned", describe(runner.run(shepherd.follow(program)))]
        except (Exception, asyncio.CancelledError) as error:
            ended = ["raised", named(error)]
    if shepherd.stuck is not None:
        return ["raised", WorkflowStuckError.__name__], shepherd.stuck, fate.asked
    if shepherd.cancelled:
        ended = "cancelled"
    return ended, until_end(world.trace), fate.asked


class Shepherd:
    """Waits, as a callback of the loop, until nothing is ready, and then lets one thing happen."""

    def __init__(self, loop: PlainLoop, world: InPlain, fate: Fate) -> None:
        self.loop = loop
        self.world = world
        self.fate = fate
        self.main: asyncio.Task[Any] | None = None
        self.cancelled = False
        self.stuck: list[object] | None = None

    async def follow(self, program: Node) -> object:
        self.main = asyncio.current_task()
        self.loop.call_soon(self.look)
        return await Witness(program).run(self.world)

    def look(self) -> None:
        self.loop.call_soon(self.look)
        if len(self.loop._ready) == 1:  # type: ignore[attr-defined]
            self.act()

    def act(self) -> None:
        loop = self.loop
        assert self.main is not None
        if [END] in self.world.trace:
            if loop.open:
                self.resolve(next(iter(loop.open)), None, "left over")
        elif self.stuck is not None or not loop.open:
            self.stuck = self.stuck if self.stuck is not None else self.world.trace[:]
            for task in asyncio.all_tasks(loop):
                task.cancel()
        else:
            op, error, text = self.fate.next(list(loop.open))
            if op is None:
                loop.now = max(loop.now, self.fate.at / SECOND)
                if not self.cancelled:  # the body is told once, whatever comes after
                    self.main.cancel()
                self.cancelled = True
            else:
                self.resolve(op, error, text)

    def resolve(self, op: str, error: str | None, text: str) -> None:
        when, resolve = self.loop.open.pop(op)
        if when is not None:
            self.fate.at = max(self.fate.at, round(when * SECOND))
        self.loop.now = max(self.loop.now, self.fate.at / SECOND, when or 0)
        resolve(error, text)


def named(error: BaseException) -> object:
    """An error so that it can be compared; the texts of cancellations and of stuck runs are their own."""
    if isinstance(error, asyncio.CancelledError | WorkflowStuckError):
        return type(error).__name__
    return describe(error)


# asyncio leaves what its cleaning up has started half-way: coroutines then end when they are collected, and complain.
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
    """Run a program on both sides."""
    here = on_a_run(program, Fate(seed))
    assume(here is not None)
    assert here == on_asyncio(program, Fate(seed))

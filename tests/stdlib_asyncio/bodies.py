"""Tests of `test.test_asyncio` as bodies of runs, live on virtual time and replayed.

A coroutine test is awaited. A synchronous test runs in a greenlet, and the run's main task awaits what the test passes to
`loop.run_until_complete(...)`. Wherever the test asks for a loop, it gets the run.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import io
import random
import unittest
from asyncio import events
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any
from unittest import mock

from greenlet import getcurrent, greenlet

from romancy.core import asyncio_patches
from romancy.core.commands import Fail, Finish, Resolution
from romancy.core.execution import Execution
from romancy.core.loop import Run
from romancy.model.history import Entry, Kind

MODULES = (
    "test_eager_task_factory", "test_futures", "test_futures2", "test_locks", "test_pep492", "test_queues",
    "test_staggered", "test_taskgroups", "test_tasks", "test_timeouts", "test_waitfor",
)  # fmt: skip
"""The modules about pure asyncio; the others are about sockets, processes and event loops."""
MOST_STEPS = 10_000
MOST_PREFIXES = 25
Case = Any
Body = Callable[["BodyRun"], Coroutine[Any, Any, Any]]


class BodyRun(Run):
    """A run that a test uses as its loop."""

    __slots__ = ("factory", "main", "trace")

    def __init__(self, body: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        super().__init__(body, "a test")
        self.trace: list[str] = []
        self.main: greenlet | None = None
        self.factory: Any = None

    def set_task_factory(self, factory: Any) -> None:
        """Accept a task factory, as some tests need, although a run refuses it."""
        self.factory = factory

    def create_task(self, coro: Any, **options: Any) -> Any:
        """Create a task with the factory, if there is one."""
        if self.factory is None or self._evicting:
            return super().create_task(coro, **options)
        name = options.pop("name", None)
        task = self.factory(self, coro, **options)
        if name is not None:
            task.set_name(name)
        return task

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        """Record the order of callbacks, which a replay must repeat."""
        soon = super().call_soon(callback, *args, context=context)
        owner = getattr(callback, "__self__", None)
        name = owner.get_name() if isinstance(owner, asyncio.Task) else ""
        whose = "" if name.startswith("Task-") else name  # asyncio counts these names for the whole process
        self.trace.append(f"{getattr(callback, '__qualname__', type(callback).__name__)} {whose}")
        return soon

    def run_until_complete(self, future: Any) -> Any:
        """Let the main task await the future."""
        here = getcurrent()
        if here.parent is None or self.main is None:
            raise AssertionError("run_until_complete() outside a test")
        return self.main.switch(asyncio.ensure_future(future, loop=self))

    def close(self) -> None:
        """Nothing to do: eviction closes a run."""

    def advance_time(self, by: float) -> None:
        """Nothing to do: virtual time passes by itself."""

    def set_debug(self, enabled: bool) -> None:
        """Nothing to do: a run has no debug mode."""

    def get_debug(self) -> bool:
        """Always False; not inherited, because a test may replace the method of the base class."""
        return False

    async def shutdown_asyncgens(self) -> None:
        """Nothing to do: a run closes them itself."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Nothing to do: a run has no executor."""


def cases(modules: Iterable[str] = MODULES) -> Iterator[tuple[str, Case]]:
    """Every test of the modules that this interpreter has, by name."""
    for name in modules:
        try:
            module = importlib.import_module(f"test.test_asyncio.{name}")
        except ImportError:
            continue
        for suite in unittest.defaultTestLoader.loadTestsFromModule(module):
            for case in suite:  # type: ignore[union-attr]
                yield f"{name}.{type(case).__name__}.{case._testMethodName}", case  # type: ignore[union-attr]


def body_of(case: Case) -> Body:
    """A test as a body."""
    return lambda run: _body(case, run)


async def _body(case: Case, run: BodyRun) -> str:
    """Run one test from its setup to its cleanup."""
    case = type(case)(case._testMethodName)
    method = getattr(case, case._testMethodName)
    skipped = getattr(type(case), "__unittest_skip__", False) or getattr(method, "__unittest_skip__", False)
    if skipped:
        return "skipped"
    case.new_test_loop = lambda gen=None: run
    case.set_event_loop = lambda loop, cleanup=True: None
    try:
        await _called(run, case.setUp)
        await _called(run, getattr(case, "asyncSetUp", _nothing))
        try:
            await _called(run, method)
        finally:
            await _called(run, getattr(case, "asyncTearDown", _nothing))
            await _called(run, case.tearDown)
            while case._cleanups:
                function, args, kwargs = case._cleanups.pop()
                await _called(run, lambda: function(*args, **kwargs))  # noqa: B023
    except unittest.SkipTest:
        return "skipped"
    return "passed"


def _nothing() -> None:
    """Stands for a missing part of a test."""


async def _called(run: BodyRun, function: Callable[[], Any]) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function()
    run.main = getcurrent()
    side = greenlet(function)
    wanted = side.switch()
    while not side.dead:
        try:
            result = await wanted
        except BaseException as error:
            run.main = getcurrent()
            wanted = side.throw(error)
        else:
            run.main = getcurrent()
            wanted = side.switch(result)
    return await wanted if inspect.isawaitable(wanted) else wanted


@dataclass
class BodyResult:
    """The result of a test."""

    outcome: str
    history: list[Entry]
    trace: list[str]
    marks: list[int]
    """The length of the trace after the start and after each entry."""


def live(body: Body) -> BodyResult:
    """Run a body live: whenever nothing else can happen, the next timer fires."""
    run, execution = _prepared(body, [])
    with _surroundings(run):
        execution.start(0)
        marks = [len(run.trace)]
        while run.body_outcome is None and len(marks) < MOST_STEPS:
            issue = execution.due_issues(10**18)[0]
            execution.feed(Resolution(Kind.TIMER, issue.op, max(issue.due or 0, run.at)))
            marks.append(len(run.trace))
        result = BodyResult(_outcome(run), list(execution.take_entries()), list(run.trace), marks)
        run.evict()
    return result


def replayed(body: Body, history: list[Entry]) -> BodyResult:
    """Replay a body to the end of a history."""
    run, execution = _prepared(body, history)
    with _surroundings(run):
        try:
            execution.replay(0, history)
            outcome = _outcome(run)
        except Exception as error:
            outcome = f"replay: {type(error).__name__}: {error}"
        result = BodyResult(outcome, history, list(run.trace), [])
        run.evict()
    return result


def check_replays(body: Body) -> tuple[str, BodyResult]:
    """Run a body live and replay every prefix of its history; returns the outcome and the live result."""
    first = live(body)
    prefixes = range(len(first.history)) if len(first.history) <= MOST_PREFIXES else []
    for length in prefixes:
        again = replayed(body, first.history[:length])
        if again.trace != first.trace[: first.marks[length]]:
            return f"another order of callbacks after {length} entries", first
    whole = replayed(body, first.history)
    if whole.trace != first.trace:
        return "another order of callbacks", first
    return whole.outcome if whole.outcome != first.outcome else first.outcome, first


def _prepared(body: Body, history: list[Entry]) -> tuple[BodyRun, Execution]:
    asyncio_patches.install()
    random.seed(1)  # some tests sleep for random times, which must be equal in every run
    make: Any = BodyRun
    run: BodyRun = make(lambda: body(run))
    return run, Execution(run, history, length=len(history))


def _surroundings(run: BodyRun) -> ExitStack:
    """Return the run wherever a test creates a loop, and suppress output."""
    stack = ExitStack()
    stack.enter_context(redirect_stdout(io.StringIO()))
    stack.enter_context(redirect_stderr(io.StringIO()))
    for module in (asyncio, events):
        stack.enter_context(mock.patch.object(module, "new_event_loop", return_value=run))
        stack.enter_context(mock.patch.object(module, "set_event_loop", return_value=None))
    return stack


def _outcome(run: Run) -> str:
    match run.body_outcome:
        case Finish(value):
            return str(value)
        case Fail(error):
            return f"{type(error).__name__}: {error}".partition("\n")[0]
        case other:
            return f"did not end: {other}"

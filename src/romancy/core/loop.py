"""The private, deterministic event loop that runs one workflow.

A `Run` is an asyncio loop that has nothing but a queue of ready callbacks: no selector, no clock, no threads.
`advance(resolution)` resolves an operation, runs callbacks until none is ready and returns the commands of the code.
Time is the recorded time of the resolution. One resolution, one drain: two results set before one drain would let
`FIRST_COMPLETED` return both where a replay returns one.
"""

from __future__ import annotations

import asyncio
import contextvars
import re
import sys
from asyncio import events, tasks
from collections import deque
from collections.abc import Callable, Container, Coroutine
from types import AsyncGeneratorType
from typing import TYPE_CHECKING, Any, NoReturn

from romancy.core.call_site import call_site
from romancy.core.commands import (
    UNTIL,
    BodyOutcome,
    Cancelled,
    Command,
    EffectCommand,
    Fail,
    Finish,
    Issue,
    Recur,
    Resolution,
    Withdraw,
)
from romancy.core.futures import (
    Evicted,
    EvictedFuture,
    Operation,
    ReadyHandle,
    Recurring,
    RunFuture,
    RunTask,
    Timer,
    WaitOperation,
)
from romancy.errors import (
    ActivityIDConflictError,
    DeterminismViolationError,
    InvalidWorkflowStateError,
    WorkflowIOError,
    WorkflowStuckError,
    WorkflowTimeoutError,
)
from romancy.model.history import TIMEOUT_TIMER, WAITS, Entry, Kind, Outcome

SPIN_LIMIT = 100_000
"""Callbacks in one advance after which a body counts as spinning."""
_SLICE = range(1_000)
"""Callbacks in one advance after which callbacks that only poll are postponed to the next advance."""
_SLICES = range(SPIN_LIMIT // len(_SLICE))
_POLLERS = frozenset({"CancelScope._deliver_cancellation"})
"""Callbacks that only poll. In anyio, a cancelled scope cancels again in every iteration until its tasks have ended."""
REFUSAL_LIMIT = 100
"""How often eviction throws into a body that swallows every exception before it gives up."""
_MICROS = 1_000_000
_CONTROL_KINDS = frozenset({Kind.START, Kind.RETRY, Kind.CANCEL, Kind.TIMEOUT})
"""Kinds of resolutions that are not the outcome of an operation."""
_TIMEOUT_CALLBACKS = frozenset({"_on_timeout", "_timeout"})
"""The callbacks of timers that limit something: those of `asyncio.timeout` and of the scopes of anyio."""
_RACE_KINDS = WAITS | {Kind.TIMER}
"""Kinds of operations that a body may leave pending without a warning once it has awaited them: the losers of a race."""
_ACTIVITY = Kind.ACTIVITY
_TIMER = Kind.TIMER
_LAST_SECOND = 253_402_300_799
"""The end of the year 9999. `asyncio.sleep(math.inf)` is a timer too, and its time must fit a column and a datetime."""

Body = Callable[[], Coroutine[Any, Any, Any]]
ArgumentComparer = Callable[[Issue, Entry | None], str | None]
"""Returns where the arguments of an operation differ from the recorded ones, or None if they mean the same. For an effect,
the entry is None: the function finds the recorded one itself."""
CODE_CHANGE_ADVICE = "Deploy the code with which the instance was started, or deploy the changed code as a new version."
NONDETERMINISM_ADVICE = (
    "If the code has not changed, it is not deterministic (time.time(), random, uuid4(), globals, the order of a set): use "
    "ctx.now(), ctx.random(), ctx.uuid4(), or an activity."
)
_leaked_coroutines: list[object] = []


if TYPE_CHECKING:
    # For a type checker, no method is abstract. At run time, methods that are not defined here refuse: see the file's end.
    _Loop = asyncio.SelectorEventLoop
else:
    _Loop = asyncio.AbstractEventLoop


class Run(_Loop):
    """One workflow body on its own loop."""

    # With slots: without them, an object of more than thirty attributes costs twice as much to make and to read.
    __slots__ = (
        "_adopted",
        "_body",
        "_closing",
        "_closing_generators",
        "_commands",
        "_counts",
        "_evicting",
        "_generators",
        "_generators_limit",
        "_inside",
        "_known_effects",
        "_label",
        "_main",
        "_manual",
        "_now",
        "_outer_state",
        "_parked",
        "_ready",
        "_recurrence",
        "_refusals",
        "_seq",
        "_stop",
        "_task_names",
        "_tasks",
        "_tasks_limit",
        "_unpruned",
        "_violation",
        "activities_by_name",
        "at",
        "body_outcome",
        "due",
        "find_difference",
        "pending",
        "problems",
        "replaying",
    )  # fmt: skip
    _made = 0

    def __init__(self, body: Body, label: str, known_effects: dict[str, bytes] | None = None) -> None:
        Run._made += 1
        self._seq = (Run._made & 0xFFFFF) << 40
        self._body = body
        self._label = label
        self._known_effects = known_effects or {}
        self._ready: deque[ReadyHandle] = deque()
        self._parked: list[ReadyHandle] = []
        self._now = 0.0
        self._inside = False
        self._evicting = False
        self._refusals = 0
        self._counts: dict[str, int] = {}
        self._manual: set[str] = set()
        self._commands: list[Command] = []
        self._tasks: list[RunTask] = []
        self._tasks_limit = 16
        self._unpruned = 0
        self._adopted: dict[object, contextvars.Context] = {}
        """The tasks that were made without the loop, with their contexts."""
        self._task_names = 0
        self._generators: list[AsyncGeneratorType[Any, Any]] = []
        self._generators_limit = 16
        self._outer_state: tuple[Any, Any, Any] = (None, None, None)
        self._main: RunTask | None = None
        self._stop: Resolution | None = None
        self._recurrence: bytes | None = None
        self._closing = False
        self._closing_generators = False
        self._violation: DeterminismViolationError | None = None
        self.pending: dict[str, Operation[Any] | Timer] = {}
        self.due: dict[str, int] = {}
        """Deadlines of the pending operations that a timer resolves."""
        self.at = 0
        self.find_difference: ArgumentComparer = always_differs
        """Called when the arguments of a recorded operation have another digest than those of the code now."""
        self.replaying = False
        self.body_outcome: BodyOutcome | None = None
        self.problems: list[str] = []
        self.activities_by_name: dict[str, Any] = {}
        """The activity that each name stands for in this body."""

    # --- called by durable functions

    def issue_operation(
        self,
        kind: Kind,
        name: str,
        decode: Callable[[Resolution], Any],
        op_id: str | None = None,
        digest: bytes = b"",
        input: bytes | None = None,
        due: int | None = None,
        detail: Any = None,
        compensation: Any = None,
        values: Any = None,
    ) -> Operation[Any]:
        """Issue a durable operation; it resolves when its outcome is fed."""
        if self._evicting:
            return self._evicted_future()  # type: ignore[return-value]
        if not self._inside or self.body_outcome is not None:
            self._require_inside(name)
        op = self._manual_id(op_id) if op_id is not None else self._next_id(name)
        if due is not None:
            due = min(due, _LAST_SECOND * _MICROS)
            if kind is _TIMER:
                digest = _encode_duration(due - self.at)
        # tuple.__new__ for speed: the constructor of the named tuple takes twice the time.
        issue = tuple.__new__(
            Issue, (op, kind, name, self.at, digest, input, due, detail, compensation, call_site(3), values)
        )
        # Activities are by far the most common, and a lookup in a set of enum members takes as long as a call.
        operation: Operation[Any] = (WaitOperation if kind is not _ACTIVITY and kind in _RACE_KINDS else Operation)(
            self, issue, decode
        )
        self.pending[op] = operation
        if due is not None:
            self.due[op] = due
        self._commands.append(issue)
        return operation

    def emit_effect(
        self,
        kind: Kind,
        name: str,
        *,
        digest: bytes = b"",
        input: bytes | None = None,
        detail: Any = None,
        compensation: Any = None,
        values: Any = None,
    ) -> Operation[None]:
        """Issue an effect, which is carried out by the commit that records it. One that is recorded already is checked."""
        if self._evicting:
            return self._evicted_future()  # type: ignore[return-value]
        self._require_inside(name)
        issue = Issue(
            self._next_id(name), kind, name, self.at, digest, input, None, detail, compensation, call_site(2), values
        )
        known = self._known_effects.pop(issue.op, None)
        if known is not None and known != digest and (found := self.find_difference(issue, None)) is not None:
            suffix = f": {found}" if found else ""
            what = f"{issue.op} was recorded with other arguments than the code passes now, at {issue.site}{suffix}"
            self.violate(f"{what}. {CODE_CHANGE_ADVICE} {NONDETERMINISM_ADVICE}")
        operation: Operation[None] = Operation(self, issue, lambda resolution: None)
        operation.set_result(None)
        self._commands.append(EffectCommand(issue, recorded=known is not None))
        return operation

    def is_next_effect_recorded(self, name: str) -> bool:
        """The next effect of this name is in the history already."""
        return f"{name}:{self._counts.get(name, 0) + 1}" in self._known_effects

    def is_effect_outstanding(self, op: str) -> bool:
        """The history has this effect, and the code has not issued it yet."""
        return op in self._known_effects

    def withdraw(self, op: str) -> None:
        """Withdraw a pending operation: the code no longer waits for it."""
        if self.pending.pop(op, None) is not None and not self._evicting:
            self.due.pop(op, None)
            self._commands.append(Withdraw(op))

    def recur(self, input: bytes) -> NoReturn:
        """End the body, to start again with this input, even if the body catches the exception that is raised here."""
        if self._evicting:
            raise Evicted
        self._require_inside("recur()")
        if tasks.current_task(self) is not self._main:
            raise InvalidWorkflowStateError(
                f"recur() was called in a task other than the main task of {self._label}. Let that task return, and call "
                "recur() in the workflow's own body."
            )
        flying = [op for op, waiting in self.pending.items() if waiting.issue.kind is Kind.ACTIVITY]
        if flying:
            raise InvalidWorkflowStateError(
                f"recur() was called in {self._label} while {', '.join(flying)} had not ended: the result would "
                "belong to no generation. Await it, or cancel it, before recur()."
            )
        self._recurrence = input
        raise Recurring

    def violate(self, message: str) -> NoReturn:
        """Raise that the code does not fit the history. The error is also stored, since user code may catch it."""
        self._violation = DeterminismViolationError(message)
        raise self._violation

    def next_seq(self) -> int:
        """The sequence number of a new future or task, by which it hashes."""
        self._seq += 1
        return self._seq

    def next_task_name(self) -> str:
        """A name for a task that was made without one."""
        self._task_names += 1
        return f"task-{self._task_names}"

    def _require_inside(self, name: str) -> None:
        if not self._inside:
            raise InvalidWorkflowStateError(
                f"{name} was called outside the body of {self._label}: durable operations belong to the workflow whose "
                "context they are given, while it runs."
            )
        if self.body_outcome is not None:
            raise InvalidWorkflowStateError(f"{name} was called after {self._label} had ended.")

    def _next_id(self, name: str) -> str:
        count = self._counts.get(name, 0) + 1
        self._counts[name] = count
        op = f"{name}:{count}"
        if self._manual and op in self._manual:
            raise _conflict(op, self._label)
        return op

    def _manual_id(self, op: str) -> str:
        name, _, number = op.rpartition(":")
        # Numbers that `_next_id` gives start at 1 and have no leading zeros.
        counted = number.isdecimal() and len(number) < 20 and 1 <= int(number) <= self._counts.get(name, 0)
        counted = counted and str(int(number)) == number
        if op in self._manual or counted:
            raise _conflict(op, self._label)
        self._manual.add(op)
        return op

    def renew_timeouts(self, at: int, retained: Container[str]) -> None:
        """Move deadlines when a failed instance is retried: the time between must not count against its waits.

        Waits and limits that ran out meanwhile start again. So do operations of the last step: code that was fixed issues
        them now. Timers until a time of day stay, and so do operations with `retained` results, which are over.
        """
        for op, due in self.due.items():
            waiting = self.pending[op]
            issue = waiting.issue
            ran_out = due <= at and (issue.kind in WAITS or issue.name == TIMEOUT_TIMER)
            if op not in retained and issue.detail is not UNTIL and (ran_out or issue.at == self.at):
                self.due[op] = at + due - issue.at
                waiting.issue = issue._replace(at=at, due=self.due[op])

    # --- stepping

    def advance(self, resolution: Resolution) -> list[Command]:
        """Feed one resolution, run until nothing is ready, and return the commands of the code.

        Raises `DeterminismViolationError` when the resolution does not fit the code.
        """
        self._commands = []
        self.at = resolution.at
        self._now = max(self._now, resolution.at / _MICROS)
        self._enter()
        try:
            self._apply(resolution)
            if self._parked:
                self._ready.extend(self._parked)
                self._parked.clear()
            self._drain()
            self._check_body_end()
        finally:
            self._leave()
        if self._violation is not None:
            raise self._violation
        return self._commands

    def _apply(self, resolution: Resolution) -> None:
        kind = resolution.kind
        if kind not in _CONTROL_KINDS:
            self._resolve(resolution)
        elif kind is Kind.START:
            self._main = self.create_task(self._body(), name="main", context=contextvars.Context())
        elif kind is not Kind.RETRY:
            assert self._main is not None
            if self._stop is None:
                self._main.cancel()
            if self._stop is None or kind is Kind.CANCEL:  # after a timeout, too: a cancel request was promised to succeed
                self._stop = resolution

    def _resolve(self, resolution: Resolution) -> None:
        target = self.pending.pop(resolution.op, None)
        self.due.pop(resolution.op, None)
        if target is None:
            raise DeterminismViolationError(f"{resolution.op} is not awaited by the code")
        if isinstance(target, Timer):
            self._ready.append(target.handle)
            self._now = max(self._now, target._when)  # otherwise a rounding error could leave it before the timer's time
            target._cancelled = True
            return
        try:
            value = target.decode(resolution)
        except DeterminismViolationError:
            raise
        except Exception as error:
            target.set_exception(error)
        else:
            target.set_result(value)

    def _drain(self) -> None:
        ready = self._ready
        for _ in _SLICES:
            for _ in _SLICE:
                if not ready:
                    return
                handle = ready.popleft()
                if handle.callback is None:
                    continue
                try:
                    handle.context.run(handle.callback, *handle.args)
                except KeyboardInterrupt:
                    raise
                except BaseException as error:  # SystemExit too: its task has stored it, and it must not end the worker
                    self._report("a callback failed", error)
                del handle  # the traceback of a failed task refers to this frame: it would keep the task from being deleted
            self._park_pollers()
        ready.clear()
        self._fail_stuck(
            f"ran {SPIN_LIMIT} callbacks without waiting for anything (a loop around `await asyncio.sleep(0)`?)"
        )

    def _park_pollers(self) -> None:
        """While operations are pending, postpone callbacks that only poll to the next advance."""
        if not self.pending:
            return
        here = list(self._ready)
        self._ready.clear()
        for handle in here:
            polls = getattr(handle.callback, "__qualname__", "") in _POLLERS
            (self._parked if polls else self._ready).append(handle)

    def _check_body_end(self) -> None:
        """Check whether the body has ended; if so, cancel the tasks that it left, as `asyncio.run` would."""
        main = self._main
        if self.body_outcome is not None or main is None:
            return
        if not main.done():
            if not self.pending:
                self._fail_stuck("can never continue: what it is waiting for can never happen")
            elif len(self._tasks) > 1:
                self._prune_tasks()
            return
        if not self._closing:
            self._closing = True
            if len(self._tasks) == 1 and not self.pending and not self._generators:
                self._conclude(self._decide_outcome(main))  # the common case: the body has left nothing behind
                return
            self._report_unawaited()
            for task in self.live_tasks():
                task.cancel()
            self._drain()
        if self._is_idle() and not self._closing_generators:
            self._closing_generators = True
            for generator in self._parked_generators():
                _ = self.create_task(generator.aclose(), context=main.context)
            self._drain()
        if self._is_idle():
            self._conclude(self._decide_outcome(main))

    def _is_idle(self) -> bool:
        return self.body_outcome is None and (not self.pending or not self.live_tasks())

    def override_outcome(self, resolution: Resolution) -> bool:
        """Replace the outcome of a body that has ended: by a cancellation, or by a timeout if it was to recur."""
        replaceable = (Finish, Fail, Recur) if resolution.kind is Kind.CANCEL else Recur
        if not isinstance(self.body_outcome, replaceable) or resolution.kind not in (Kind.CANCEL, Kind.TIMEOUT):
            return False
        self.at, self._stop = resolution.at, resolution
        self.body_outcome = self._stop_outcome(resolution)
        return True

    def _stop_outcome(self, by: Resolution) -> BodyOutcome:
        if by.kind is Kind.TIMEOUT:
            return Fail(WorkflowTimeoutError(f"{self._label} took longer than its timeout."))
        return Cancelled(by.value.decode() if by.value is not None else None)

    def _decide_outcome(self, main: RunTask) -> BodyOutcome:
        if self._stop is not None:
            return self._stop_outcome(self._stop)
        if self._recurrence is not None:
            self._report_lost(main)
            return Recur(self._recurrence)
        if main.cancelled():
            return Fail(asyncio.CancelledError())
        error = main.exception()
        return Finish(main.result()) if error is None else Fail(error)

    def _conclude(self, outcome: BodyOutcome) -> None:
        self.body_outcome = outcome
        self._commands += [Withdraw(op) for op in self.pending]
        self.pending.clear()
        self.due.clear()

    def _fail_stuck(self, why: str) -> None:
        where = ", ".join(f"{task.get_name()} at {_task_location(task)}" for task in self.live_tasks()) or "nothing"
        self._conclude(Fail(WorkflowStuckError(f"{self._label} {why}. Its tasks: {where}.")))

    def _report_unawaited(self) -> None:
        for op, waiting in self.pending.items():
            if isinstance(waiting, WaitOperation):
                forgotten = not waiting.awaited
            else:
                forgotten = isinstance(waiting, Operation) and not waiting._callbacks
            if forgotten:
                self.problems.append(f"{op} was started at {waiting.issue.site} but never awaited")

    def _report_lost(self, main: RunTask) -> None:
        """Report an error that the body raised while it was recurring: it has no effect on the instance."""
        error = None if main.cancelled() else main.exception()
        lost = error.split(Recurring)[1] if isinstance(error, BaseExceptionGroup) else error
        if lost is not None and not isinstance(lost, Recurring):
            self._report("the body failed while it was recurring", lost)

    def _report(self, message: str, error: BaseException | None) -> None:
        self.problems.append(f"{message}: {error!r}" if error is not None else message)

    @property
    def silent(self) -> bool:
        """The code is being replayed or evicted: what it does now must not be logged."""
        return self.replaying or self._evicting

    @property
    def stopped(self) -> bool:
        """A cancellation or a timeout of the whole run was fed."""
        return self._stop is not None

    def live_tasks(self) -> list[RunTask]:
        """The tasks that have not ended, in the order of their creation."""
        self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks_limit = max(16, 2 * len(self._tasks))
        return self._tasks

    def _prune_tasks(self) -> None:
        """Forget tasks that have ended: an exception that was not retrieved is reported when its task is deleted."""
        self._unpruned += 2
        if self._unpruned >= len(self._tasks):  # pruning every time would be O(n²)
            self._unpruned = 0
            self.live_tasks()

    def _parked_generators(self) -> list[AsyncGeneratorType[Any, Any]]:
        """The asynchronous generators that are suspended and not being run by a task."""
        return [one for one in self._generators if one.ag_frame is not None and not one.ag_running]

    def _track_generator(self, generator: Any) -> None:
        """Keep a generator until it has ended: the garbage collector would end it at any time, in the run or outside."""
        self._generators.append(generator)
        if len(self._generators) > self._generators_limit:
            self._generators = [one for one in self._generators if one.ag_frame is not None]
            self._generators_limit = max(16, 2 * len(self._generators))

    def refuse(self, call: str) -> NoReturn:
        """Raise that a call is not allowed in a workflow."""
        raise WorkflowIOError(
            f"{call}() was called in {self._label}. A workflow does no I/O, starts no threads or processes and "
            "does not change its loop: it would not happen again on replay. Move this into an activity."
        )

    # --- being the running loop

    def _enter(self) -> None:
        outer_loop = events._get_running_loop()
        task = None
        if outer_loop is not None:
            task = _current_task(outer_loop)
            if task is not None:
                tasks._leave_task(outer_loop, task)  # before the running loop changes: Python 3.14 requires it
        self._outer_state = (outer_loop, task, sys.get_asyncgen_hooks())
        events._set_running_loop(self)
        # The outer loop's hooks would finalize the run's generators on the outer loop, whenever the collector runs.
        sys.set_asyncgen_hooks(self._track_generator, _ignore)
        self._inside = True

    def _leave(self) -> None:
        outer_loop, task, hooks = self._outer_state
        self._outer_state = (None, None, None)
        self._inside = False
        sys.set_asyncgen_hooks(*hooks)
        events._set_running_loop(outer_loop)
        if task is not None:
            tasks._enter_task(outer_loop, task)

    # --- eviction

    def evict(self) -> list[str]:
        """End every coroutine of the run without letting it do anything durable. Return complaints about those that remain.

        Every run must be evicted, finished ones too: a forgotten coroutine is closed by the garbage collector while
        another run advances, and its `finally` blocks would act there. Children go before parents, each in its own
        context. An exception is thrown rather than the coroutine closed, because a throw can be repeated and reaches what
        an asynchronous generator awaits. Synchronous code in `finally` blocks does run.
        """
        self._evicting = True
        self._body = _evicted_body  # its context refers to the run: this breaks the reference cycle
        self._ready.clear()
        if not self.live_tasks() and not self._generators:
            self.pending.clear()
            self._main = None
            return []  # the common case: the body has ended, and no task is left
        self._enter()
        try:
            complaints = [name for task in reversed(self.live_tasks()) for name in self._end_task(task)]
            for generator in reversed(self._generators):
                _end_generator(generator)
        finally:
            self._ready.clear()
            self._parked.clear()
            self.pending.clear()
            self._tasks.clear()
            self._adopted.clear()
            self._generators.clear()
            self._main = None
            self._leave()
        return complaints

    def _end_task(self, task: RunTask) -> list[str]:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        coro: Any = task.get_coro()
        context = task.context if type(task) is RunTask else self._adopted[task]
        tasks._enter_task(self, task)
        try:
            for _ in range(REFUSAL_LIMIT):
                try:
                    context.run(coro.throw, Evicted())
                except BaseException:  # it has ended; errors while ending do not matter
                    return []
        finally:
            tasks._leave_task(self, task)
        _leaked_coroutines.append(coro)  # never collected: closing it could loop for ever, on any thread
        return [f"{task.get_name()} of {self._label} cannot be ended: it swallows BaseException"]

    def _evicted_future(self) -> EvictedFuture:
        """A future that refuses. After many refusals it blocks, so that code that swallows them yields to the loop."""
        self._refusals += 1
        return EvictedFuture(self, blocks=self._refusals > REFUSAL_LIMIT)

    # --- the interface of asyncio

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> ReadyHandle:
        """Run a callback in this advance."""
        handle = ReadyHandle(callback, args, context if context is not None else contextvars.copy_context())
        self._ready.append(handle)
        if type(callback) is _STEP:
            task: object = callback.__self__  # type: ignore[attr-defined]
            if type(task) is not RunTask:
                self._adopt(task, handle.context)
        return handle

    def _adopt(self, task: Any, context: contextvars.Context) -> None:
        """Register a task of the run that was made by `asyncio.Task(...)`, not by `create_task`."""
        if task in self._adopted or self._evicting:
            return
        self._adopted[task] = context
        self._tasks.append(task)
        if re.fullmatch(r"Task-\d+", task.get_name()):  # a default name, which counts the tasks of the whole process
            task.set_name(self.next_task_name())

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Timer | ReadyHandle:
        """Run a callback at a time of the run: a durable timer."""
        if self._evicting:
            return ReadyHandle(None, (), contextvars.Context())
        if when <= self._now:
            return self.call_soon(callback, *args, context=context)
        when = min(when, _LAST_SECOND)
        due = max(round(when * _MICROS), self.at)
        length = _encode_duration(due - self.at)
        name = TIMEOUT_TIMER if getattr(callback, "__name__", "") in _TIMEOUT_CALLBACKS else "timer"
        issue = Issue(self._next_id("timer"), Kind.TIMER, name, self.at, length, due=due, site=call_site(2))
        handle = ReadyHandle(callback, args, context if context is not None else contextvars.copy_context())
        timer = Timer(self, when, issue, handle)
        self.pending[issue.op] = timer
        self.due[issue.op] = due
        self._commands.append(issue)
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Timer | ReadyHandle:
        """Run a callback after a delay: a durable timer."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this run."""
        if self._evicting:
            return self._evicted_future()
        return RunFuture(self)

    def create_task(
        self, coro: Any, *, name: Any = None, context: contextvars.Context | None = None, **options: Any
    ) -> RunTask:
        """A task of this run. An operation is accepted too, so that `TaskGroup.create_task(charge(ctx))` works."""
        if self._evicting:
            if asyncio.iscoroutine(coro):
                coro.close()
            return self._evicted_future()  # type: ignore[return-value]
        if asyncio.isfuture(coro):
            coro = _wait_for(coro)
        context = context if context is not None else contextvars.copy_context()
        task = RunTask(coro, loop=self, name=name, context=context, **options)
        tasks._unregister_task(task)  # asyncio's registry is shared by all loops; the run has its own
        self._tasks.append(task)  # a strong reference, so that a pending task is not garbage-collected
        if len(self._tasks) > self._tasks_limit:
            self.live_tasks()
        return task

    def time(self) -> float:
        """The recorded time of the resolution that is being fed, in seconds."""
        return self._now

    def get_debug(self) -> bool:
        """Never."""
        return False

    def is_running(self) -> bool:
        """Always: only code inside the run calls it."""
        return True

    def is_closed(self) -> bool:
        """Never."""
        return False

    def get_task_factory(self) -> None:
        """None."""
        return

    def get_exception_handler(self) -> None:
        """None: exceptions that were not retrieved become problems of the run, which the worker logs."""
        return

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Add it to the problems of the run, which the worker logs."""
        self.call_exception_handler(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Add it to the problems of the run, which the worker logs."""
        if not self._evicting:
            self._report(str(context.get("message", "")), context.get("exception"))


def always_differs(issue: Issue, entry: Entry | None) -> str | None:
    """Without knowledge of the types, arguments with another digest differ."""
    return ""


def new_run(body: Body, label: str, known_effects: dict[str, bytes] | None = None) -> Run:
    """Make a run. (Type checkers take `Run` for abstract: the methods that refuse are added by name, below.)"""
    make: Callable[..., Run] = Run
    return make(body, label, known_effects)


def _conflict(op: str, label: str) -> ActivityIDConflictError:
    return ActivityIDConflictError(
        f"The activity id {op!r} is used twice in {label}. Give each call its own id, or none: without one, calls are "
        "numbered by name."
    )


async def _evicted_body() -> None:
    """The body of a run that was evicted."""


async def _wait_for(future: asyncio.Future[Any]) -> Any:
    return await future


def _encode_duration(micros: int) -> bytes:
    """A timer's duration, as it is recorded in the place of a digest."""
    return micros.to_bytes(8, "big", signed=True)


def _type_of_steps() -> Any:
    """The type of the callback by which a task makes a step. It has no public name: take it from a task."""
    found: list[Any] = []

    class Loop:
        def get_debug(self) -> bool:
            return False

        def call_soon(self, callback: Any, *args: Any, context: Any = None) -> None:
            found.append(callback)

    task: Any = asyncio.Task(_evicted_body(), loop=Loop())  # type: ignore[arg-type]
    task._log_destroy_pending = False
    task.get_coro().close()
    tasks._unregister_task(task)
    return type(found[0])


_STEP = _type_of_steps()

_current_task: Callable[[Any], asyncio.Task[Any] | None] = (
    tasks.current_task if sys.version_info >= (3, 12) else tasks._current_tasks.get  # type: ignore[attr-defined]
)
"""The current task of a loop. Until 3.11, `asyncio.current_task` is a slow Python function, and every step calls this."""


def _ignore(generator: object) -> None:
    """Do nothing: the run keeps its generators itself and ends them at eviction."""


def _end_generator(generator: Any) -> None:
    if generator.ag_frame is None:
        return
    ending: Any = generator.athrow(Evicted())
    try:
        ending.send(None)
        for _ in range(REFUSAL_LIMIT):
            ending.throw(Evicted())
    except BaseException:  # noqa: S110 (it has ended, or has yielded a value and will not end)
        pass
    if generator.ag_frame is not None:
        _leaked_coroutines.append(generator)


def _task_location(task: RunTask) -> str:
    frame = next(iter(task.get_stack(limit=1)), None)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "?"


def _refusing(name: str) -> Callable[..., NoReturn]:
    def refuse(self: Run, *args: Any, **kwargs: Any) -> NoReturn:
        for value in args:
            if asyncio.iscoroutine(value):
                value.close()
        self.refuse(f"loop.{name}")

    refuse.__name__ = name
    return refuse


# AbstractEventLoop's methods raise a bare NotImplementedError. Every method that a run does not define, in any Python
# version, raises an error that says what to do instead.
for _name in dir(asyncio.AbstractEventLoop):
    if not _name.startswith("__") and _name not in vars(Run):
        setattr(Run, _name, _refusing(_name))

__all__ = ["Body", "Evicted", "Operation", "Outcome", "Run"]

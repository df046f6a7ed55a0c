"""An app for tests: virtual time, forced replay after every step, named crash points."""

from __future__ import annotations

import asyncio
import contextlib
import re
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from romancy.app import App
from romancy.authoring.durations import Duration, micros
from romancy.authoring.workflow import Workflow
from romancy.clock import to_datetime, to_micros
from romancy.core.commands import BodyOutcome, Cancelled, Fail, Finish, Issue, Recur
from romancy.core.loop import Run
from romancy.crash_points import POINTS, SimulatedCrash
from romancy.errors import (
    ConfigurationError,
    DeterminismViolationError,
    InvalidWorkflowStateError,
    PayloadError,
    StoreError,
    WorkflowNotFoundError,
)
from romancy.model.history import Entry, Outcome
from romancy.testing.histories import RecordedHistory, record_history, replay_in_full
from romancy.worker.runner.runner import InstanceRunner
from romancy.worker.timers import TimerHeap
from romancy.worker.worker import WorkerOptions

_START_TIME = datetime(2030, 1, 1, tzinfo=UTC)
_ENDLESS_HORIZON = 1e9
_IDLE_ROUNDS = 3
"""Number of rounds of the event loop without work after which the app counts as settled."""
_ADDRESS = re.compile("0x[0-9a-f]{6,}")
"""The address of an object in the text of an exception, which differs between runs."""
_IDLE_ROUNDS_WITH_ACTIVITIES = 50
"""Rounds of one millisecond while activities run: an activity that does nothing for so long counts as waiting."""


class CrashPointNotReached(UserWarning):
    """A planned crash has not happened, so the test has shown nothing about it."""


class _PlannedCrash(NamedTuple):
    """A crash that the test has planned."""

    point: str
    """The name of the crash point; empty for any point."""
    nth: int
    before: int
    """Number of such points that had been passed when the crash was planned."""


class VirtualClock:
    """A clock that moves only when the environment moves it."""

    def __init__(self, start: datetime = _START_TIME) -> None:
        self._now = to_micros(start)

    def now(self) -> int:
        """Microseconds since 1970, UTC."""
        return self._now

    def move_to(self, when: int) -> None:
        """Move forward to a time; never back."""
        self._now = max(self._now, when)


class _VirtualTimerHeap(TimerHeap):
    """Timers that fire when the environment moves the clock."""

    def _arm(self) -> None:
        """Do nothing: no timer of the event loop is needed."""


class _TestApp(App):
    """An app with a virtual clock, its store in the caller's thread, and no heartbeat."""

    def __init__(self, environment: TestEnvironment, database: str, **options: Any) -> None:
        super().__init__(database, clock=environment.clock, **options)
        self._environment = environment
        self._use_inline_executor = True
        self._with_heartbeat = False
        self._crash_point = environment._pass_crash_point

    def _make_timers(self) -> TimerHeap:
        return _VirtualTimerHeap(self._clock.now)

    def _worker_options(self) -> WorkerOptions:
        return replace(super()._worker_options(), horizon=_ENDLESS_HORIZON, block_warning=0.0)

    def _is_alive(self) -> bool:
        return self._open_store is not None and not self._environment._crashed.is_set()

    async def _stop(self) -> None:
        # A start that fails because the process dies in it is a crash too: callers that wait for results keep waiting.
        await (self._die() if self._environment._crashed.is_set() else super()._stop())

    async def _start(self) -> None:
        self._environment._starting = True
        try:
            await super()._start()
        finally:
            self._environment._starting = False

    async def _start_worker(self) -> None:
        # All earlier workers of this database are dead, because the environment runs one process at a time.
        dead = [(row.id, row.heartbeat_at) for row in await self._store.workers()]
        await self._store.sweep(dead, now=self._clock.now(), limit=1_000_000)
        await super()._start_worker()
        assert self._worker is not None
        self._worker.on_blocked = self._environment._on_blocked
        if self._claimer is not None:
            await self._claimer.claim_blocked()  # as the first round of the maintenance of a worker does
        if self._environment.replay_always:
            self._worker.on_committed = self._environment._check_replay


class TestEnvironment:
    """Runs workflows on a virtual clock.

    The clock jumps to the next timer while the test awaits a result, or by `advance`. Activities run in real time; one that
    does nothing for 50 milliseconds counts as waiting, so that its timeout can fire. `replay_always` evicts every waiting
    instance from memory and replays each history after every commit, the last one too, to find code that is not
    deterministic. Calls that are not deterministic (clocks, randomness, files, blocking I/O) are refused in workflow code,
    unless the option `guard` allows them.
    """

    __test__ = False  # not a test class, although its name starts like one

    def __init__(
        self,
        database: str | None = None,
        *,
        workflows: Sequence[Workflow[..., Any]] | None = None,
        start: datetime = _START_TIME,
        replay_always: bool = False,
        **options: Any,
    ) -> None:
        self.clock = VirtualClock(start)
        self.replay_always = replay_always
        self.reached: list[str] = []
        """Every crash point that was passed, in order."""
        self.crashes = 0
        self.violations: list[str] = []
        """Violations that `replay_always` has found."""
        self._replays: set[asyncio.Task[Any]] = set()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._crashed = asyncio.Event()
        self._planned_crashes: list[_PlannedCrash] = []
        self._timekeeper: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        """Why no process could be started after the last crash."""
        self._dying = False
        self._starting = False
        self._restarting = asyncio.Lock()
        if replay_always:
            options.setdefault("cache_size", 0)
        options.setdefault("guard", "raise")
        options.setdefault("listen_notify", False)  # no notifications from a server, so that tests are deterministic
        self.app: App = _TestApp(self, database or self._own_database(), workflows=workflows, **options)

    def _own_database(self) -> str:
        """Return the path of a new database file, which is removed at the end."""
        self._folder = tempfile.TemporaryDirectory(prefix="romancy-test-")
        return str(Path(self._folder.name) / "test.db")

    # --- lifecycle

    async def __aenter__(self) -> Self:
        await self.app.startup()
        self._timekeeper = asyncio.get_running_loop().create_task(self._run_timekeeper(), name="romancy-timekeeper")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        plan, self._planned_crashes = self._planned_crashes, []
        if self._timekeeper is not None:
            async with self._restarting:  # wait for a starting process, because a half-started one cannot be shut down
                self._timekeeper.cancel()
            await asyncio.wait({self._timekeeper})
        self._crashed.clear()
        if self._replays:
            await asyncio.wait(self._replays)  # the last commits are checked too
        await self.app.shutdown()
        if self._folder is not None:
            self._folder.cleanup()
        if self.violations and error is None:
            raise DeterminismViolationError("; ".join(self.violations))
        if self._failure is not None and error is not self._failure and isinstance(error, StoreError | None):
            raise self._failure  # the error of the test may be a consequence of this failure
        if error is None:
            self._report_missed(plan)

    async def restart(self) -> None:
        """Simulate `kill -9` of the process, and start another one on the same database."""
        async with self._restarting:
            await self._restart()

    async def _restart(self) -> None:
        while True:
            self._dying = True
            try:
                await self.app._die()
            finally:
                self._dying = False
            self._crashed.clear()
            self.crashes += 1
            try:
                await self.app.startup()
            except (SimulatedCrash, StoreError):
                # The process may die again while it starts. If another task has passed the crash point, the start fails
                # with the error of a closed store.
                if not self._crashed.is_set():
                    raise
            else:
                return

    # --- time

    def now(self) -> datetime:
        """Return the time of the virtual clock."""
        return to_datetime(self.clock.now())

    async def advance(self, duration: Duration) -> None:
        """Move the clock forward. All timers that become due fire in order."""
        until = self.clock.now() + micros(duration, "The duration given to advance()")
        await self.settle()
        while (due := self._timers.next_due()) is not None and due <= until:
            await self._fire_timers(due)
        self.clock.move_to(until)

    async def settle(self) -> None:
        """Wait until the app is idle: every instance has ended, waits, or runs an activity that waits."""
        while not await self._try_settle():
            if self._failure is not None:
                raise self._failure
            await asyncio.sleep(0.001)  # meanwhile the timekeeper starts another process

    async def _try_settle(self) -> bool:
        """Settle; return False as soon as the process has died or could not be restarted."""
        idle_rounds, passed = 0, -1
        if self.app._claimer is not None:
            self.app._claimer.poll_soon()  # for work from outside the app: the caller's own transactions, a client
        while idle_rounds < (_IDLE_ROUNDS_WITH_ACTIVITIES if self._worker_busy() else _IDLE_ROUNDS):
            await asyncio.sleep(0.001 if self._worker_busy() else 0)
            if self._crashed.is_set() or self._failure is not None:
                return False
            idle_rounds = idle_rounds + 1 if self._is_idle() and passed == len(self.reached) else 0
            passed = len(self.reached)
        return True

    async def _fire_timers(self, due: int) -> None:
        self.clock.move_to(due)
        self._timers.fire()
        await self.settle()

    @property
    def _timers(self) -> TimerHeap:
        worker = self.app._worker
        if worker is None:
            raise InvalidWorkflowStateError("The environment is not running: use `async with TestEnvironment(...)`.")
        return worker.timers

    def _is_idle(self) -> bool:
        worker, claimer = self.app._worker, self.app._claimer
        if worker is None or claimer is None or self._starting or self._crashed.is_set():
            return False
        return worker.is_idle and claimer.is_idle and all(relay.is_idle for relay in self.app._relays)

    def _worker_busy(self) -> bool:
        worker = self.app._worker
        return worker is None or bool(worker.attempts) or worker.limiter.has_waiters

    async def _run_timekeeper(self) -> None:
        """Move the clock while the test awaits a result, and start another process after a crash."""
        try:
            await self._keep_time()
        except Exception as error:  # without a timekeeper, a waiting test would never end
            self._failure = error
            if self.app._results is not None:
                self.app._results.fail_all(error)

    async def _keep_time(self) -> None:
        while True:
            if self._crashed.is_set():
                await self.restart()
            results, worker = self.app._results, self.app._worker
            if results is None or worker is None or not results.has_waiters:
                await asyncio.sleep(0.001)
                continue
            settled = await self._try_settle()
            due = worker.timers.next_due()
            if settled and due is not None and results.has_waiters and self._is_idle():
                self.clock.move_to(due)
                worker.timers.fire()
            else:
                await asyncio.sleep(0.001)

    # --- crashes

    def crash_at(self, point: str, nth: int = 1) -> None:
        """Simulate a crash when the process passes `point` for the nth time from now on. A new process takes over."""
        if point not in POINTS:
            raise ConfigurationError(f"There is no crash point {point!r}. The crash points are: {', '.join(POINTS)}.")
        self._planned_crashes.append(_PlannedCrash(point, nth, self.reached.count(point)))

    def crash_at_step(self, number: int) -> None:
        """Simulate a crash when the process passes its nth crash point of any name from now on."""
        self._planned_crashes.append(_PlannedCrash("", number, len(self.reached)))

    def _passed_since(self, crash: _PlannedCrash) -> int:
        """Return how many matching crash points have been passed since the crash was planned."""
        return (self.reached.count(crash.point) if crash.point else len(self.reached)) - crash.before

    def _report_missed(self, plan: Sequence[_PlannedCrash]) -> None:
        for crash in plan:
            passed = self._passed_since(crash)
            if passed < crash.nth:
                plural = "s" * (crash.nth > 1)
                what = f"{crash.point!r} {crash.nth} time{plural}" if crash.point else f"{crash.nth} crash point{plural}"
                warnings.warn(
                    f"A crash was planned for when the process passes {what}, but it passed only {passed}: this test does "
                    "not show anything about a crash there.",
                    CrashPointNotReached,
                    stacklevel=3,
                )

    def _pass_crash_point(self, point: str) -> None:
        if self._dying or self._crashed.is_set():
            raise SimulatedCrash(point)
        self.reached.append(point)
        if any(crash.nth == self._passed_since(crash) and crash.point in ("", point) for crash in self._planned_crashes):
            self._crashed.set()
            raise SimulatedCrash(point)

    # --- replay

    async def history(self, instance_id: str) -> RecordedHistory:
        """Return the recorded history of an instance."""
        return await record_history(self.app, instance_id)

    def _on_blocked(self, instance_id: str, reason: str) -> None:
        """Fail the result of a blocked instance. In production it waits for other code, but a test would wait forever."""
        if self.replay_always:
            self.violations.append(f"{instance_id}: {reason}")
        if self.app._results is not None:
            self.app._results.fail(instance_id, DeterminismViolationError(f"{instance_id} is blocked: {reason}"))

    def _check_replay(self, runner: InstanceRunner) -> None:
        assert self.app._worker is not None
        task = self.app._worker.spawn_task(self._replay(runner))
        self._replays.add(task)
        task.add_done_callback(self._replays.discard)

    async def _replay(self, runner: InstanceRunner) -> None:
        live, open_before = runner.execution, [waiting.issue for waiting in runner.execution.run.pending.values()]
        outcome, length = live.body_outcome, live.seq
        try:
            history = await record_history(self.app, runner.instance_id)
        except WorkflowNotFoundError:
            return  # it has ended and has been deleted already
        if history.generation != runner.identity.generation or length != max(
            (one.seq for one in history.entries), default=0
        ):
            return  # it has continued meanwhile; the next commit is checked
        if outcome is None and (runner.gone or live.body_outcome is not None or live.has_entries):
            return
        with contextlib.suppress(SimulatedCrash):
            try:
                again, open_again = replay_in_full(runner.workflow, history, app=self.app, guard=self.app._options["guard"])
            except DeterminismViolationError as error:
                self.violations.append(f"{runner.instance_id}: {error}")
                return
            difference = _wait_difference(live.run, open_before, open_again) or _end_difference(
                runner.workflow, outcome, again.verdict
            )
            if difference:
                self.violations.append(f"{runner.instance_id}: {difference}")


def _wait_difference(run: Run, live: list[Issue], again: list[Issue]) -> str:
    """Describe how the waits of a replay differ from those of the live run; empty if they do not."""
    if [issue.op for issue in live] != [issue.op for issue in again]:
        return f"live, the code waits for {[one.op for one in live]}; in the replay, for {[one.op for one in again]}"
    for before, after in zip(live, again, strict=True):
        if before.kind is not after.kind:
            return f"{after.op} has another kind in the replay"
        recorded = Entry(0, before.kind, before.op, Outcome.OK, before.at, digest=before.digest, input=before.input)
        if before.digest != after.digest and (found := run.find_difference(after, recorded)) is not None:
            return f"{after.op}, started at {after.site}, has other arguments in the replay: {found}"
    return ""


def _end_difference(workflow: Workflow[..., Any], live: BodyOutcome | None, again: BodyOutcome | None) -> str:
    """Describe how the end of a replay differs from the stored end; empty if it does not."""
    ends = _describe_end(workflow, live), _describe_end(workflow, again)
    return "" if ends[0] == ends[1] else f"live, the code {ends[0]}; in the replay, it {ends[1]}"


def _describe_end(workflow: Workflow[..., Any], outcome: BodyOutcome | None) -> str:
    match outcome:
        case None:
            return "continues"
        case Finish(value):
            try:
                return f"returned {workflow.result.encode(value).decode(errors='replace')}"
            except PayloadError as error:
                return _describe_end(workflow, Fail(error))
        case Fail(error):
            return f"raised {type(error).__name__}: {_ADDRESS.sub('', str(error))}"
        case Cancelled(reason):
            return f"was cancelled: {reason}"
        case Recur(given):
            return f"recurred with {given.decode(errors='replace')}"

"""The worker of a process: its runners, the cache of parked instances, and the services that runners and attempts share."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from romancy.authoring.workflow import Workflow
from romancy.clock import MICROS, Clock, SystemClock, monotonic
from romancy.codec import is_encoded, is_encoded_digest, not_decoded
from romancy.crash_points import CrashPoint, SimulatedCrash
from romancy.errors import DeterminismViolationError, PayloadError, StoreError, no_recipient
from romancy.ids import Ids
from romancy.model.admin import ConcurrencyStall
from romancy.model.history import Entry, Kind
from romancy.model.instance import Inbox, InstanceRow, LoadedInstance
from romancy.model.messaging import Effect, Publish, SendEvent, SendTo, SendToGroup
from romancy.model.retry import RetryPolicy
from romancy.model.status import Status
from romancy.model.transition import (
    Accepted,
    AcceptEvents,
    Applied,
    AttemptUpdate,
    CreateInstance,
    Ending,
    JournalNote,
    PostMessage,
    Refused,
    Transition,
    WriteResult,
)
from romancy.registry.creation import starts_of
from romancy.registry.instantiation import execution_of
from romancy.registry.registry import Registry
from romancy.serde.failure import describe_failure, encode_failure
from romancy.serde.messaging import event_of_input
from romancy.store.committer import Committer
from romancy.store.port import Store
from romancy.thread_pool import ThreadPool
from romancy.worker import failure_log
from romancy.worker.activity_session import ActivitySessions
from romancy.worker.attempt import Attempt
from romancy.worker.hook_dispatcher import HookDispatcher
from romancy.worker.limiter import ConcurrencyLimiter
from romancy.worker.pending_writes import PendingWrites, owned_starts
from romancy.worker.runner.runner import InstanceRunner
from romancy.worker.runner.state import (
    Admitted,
    Begin,
    Claimed,
    Discarded,
    ItemArrived,
    Restore,
    RunnerIdentity,
    WaitMatched,
)
from romancy.worker.runner.transition import row_of
from romancy.worker.timers import TimerHeap

if TYPE_CHECKING:
    from romancy.app import App

_log = logging.getLogger("romancy.worker")
OnEnded = Callable[[str, Status, Ending], None]
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_MAX_READS = 5
"""After so many failed reads an instance counts as damaged and is blocked."""
_STALL_AFTER = 30 * MICROS
"""How long all concurrency slots are taken before that counts as a stall."""
_MAX_BLOCKING_CODES = 8
"""How many fingerprints of code that did not fit an instance keeps, so that workers with such code do not claim it again."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The options of a worker; times in seconds."""

    label: str = ""
    service: str = ""
    max_workflows: int = 1000
    max_activities: int = 100
    cache_size: int = 1000
    heartbeat_interval: float = 5.0
    lease_timeout: float = 30.0
    max_losses: int = 3
    """How many workers an instance may lose without recording anything in between before it is paused; 0: any number."""
    poll_interval: float = 1.0
    claim_pauses: tuple[float, ...] = (0.005, 0.02, 0.05)
    """Seconds between repeated polls for instances that are due but could not be claimed."""
    shutdown_timeout: float = 30.0
    block_warning: float = 1.0
    guard: str = "off"
    instance_retention: float | None = None
    event_retention: float = 7 * 86400.0
    message_retention: float = 7 * 86400.0
    archive_retention: float | None = None
    audit_retention: float | None = None
    archive_history: bool = True
    brokers: tuple[str, ...] = ()
    """The names of the brokers that get the events that are sent here."""
    horizon: float | None = None
    """How far ahead a poll asks for instances that will be due; default: two poll intervals."""
    default_retry: RetryPolicy = field(default_factory=RetryPolicy)
    codec_fingerprint: str = ""
    """The fingerprint of the codec: when it changes (a new key), blocked instances are tried again."""


class Worker:
    """Runs instances in this process."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        registry: Registry,
        options: WorkerOptions,
        *,
        clock: Clock,
        ids: Ids,
        timers: TimerHeap,
        app: App | None = None,
        on_ended: OnEnded | None = None,
        dispatcher: HookDispatcher | None = None,
        crash_point: CrashPoint | None = None,
    ) -> None:
        self.store = store
        self.committer = committer
        self.metrics = committer.metrics
        self.registry = registry
        self.options = options
        self.clock = clock
        self.timers = timers
        self.elapsed, self.stopwatch = clock.now, timers
        """The time for measuring durations, which ignores changes of the date. A test's own clock serves for both."""
        if isinstance(clock, SystemClock):
            self.elapsed, self.stopwatch = clock.elapsed, TimerHeap(clock.elapsed)
        self.app = app
        self.hook_dispatcher = dispatcher
        """Dispatches calls to hooks; None if the app has no hooks."""
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self.default_retry = options.default_retry
        self.limiter = ConcurrencyLimiter(options.max_activities)
        self.sessions = ActivitySessions(store)
        self.attempts: set[Attempt] = set()
        self.pending_writes = PendingWrites()
        """Instances that writes in flight may make owned by this worker."""
        self.pending_claims = PendingWrites()
        """Instances that are being claimed, or were claimed and have no runner yet."""
        self.stopping = False
        self.on_death: Callable[[], None] = self.lose_everything
        """Called when this incarnation was declared dead."""
        self.on_committed: Callable[[InstanceRunner], None] | None = None
        """Called after every commit of a runner; tests check replay here."""
        self.on_room: Callable[[], None] = _do_nothing
        """Called when there is room for an instance again."""
        self.on_due_elsewhere: Callable[[int], None] = _ignore_due
        """Called with the time at which an instance is due that must be claimed: it has no runner here."""
        self.on_blocked: Callable[[str, str], None] | None = None
        """Called with an instance's id and the reason when the code does not fit it."""
        self.on_outbox_enqueued: Callable[[], None] = _do_nothing
        """Called when a commit has enqueued an event to the outbox."""
        self.replays = 0
        """How many instances were loaded and replayed."""
        self.crash_point = crash_point
        """With it, tests let the process die at named points."""
        self._ids = ids
        self._on_ended = on_ended
        self._runners: dict[str, InstanceRunner] = {}
        self._parked: OrderedDict[str, InstanceRunner] = OrderedDict()
        self._waiting_for_room: dict[str, InstanceRunner] = {}
        """Parked instances that are due but had no room."""
        self._loading: dict[str, object] = {}
        """Instances that are being loaded, each with a marker. If the marker is gone, the loaded data is obsolete."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._threads: ThreadPool | None = None
        self._unreadable: Counter[str] = Counter()
        """How often an instance could not be read."""
        self.registered_at = 0
        """When this incarnation was registered."""
        self.id = ""
        self.rename()

    def rename(self) -> None:
        """Become a new incarnation: the store refuses what is written under the old id."""
        self.id = f"{self.options.label or socket.gethostname()}/{self._ids.incarnation()}"

    @property
    def threads(self) -> ThreadPool:
        """The thread pool for plain `def` activities, made on first use."""
        if self._threads is None:
            self._threads = ThreadPool(self.options.max_activities, "romancy-activity")
        return self._threads

    @property
    def room(self) -> int:
        """How many more instances may run here."""
        return 0 if self.stopping else max(self.options.max_workflows - len(self._runners), 0)

    @property
    def running(self) -> int:
        """How many instances this worker runs."""
        return len(self._runners)

    @property
    def warm(self) -> int:
        """How many waiting instances are parked in memory."""
        return len(self._parked)

    def concurrency_stall(self) -> ConcurrencyStall | None:
        """Return the activities that hold all slots, if attempts wait and none has begun for long."""
        waiting = self.limiter.queued
        if not waiting or not self.attempts:
            return None
        since = max(attempt.started_at for attempt in self.attempts)
        if self.clock.now() - since < _STALL_AFTER:
            return None
        return ConcurrencyStall(tuple(Counter(attempt.work.name for attempt in self.attempts).most_common()), waiting, since)

    @property
    def hides_payloads(self) -> bool:
        """Payloads go through a codec, which may encrypt them: no log line may contain them."""
        return bool(self.options.codec_fingerprint)

    def is_cached(self, instance_id: str) -> bool:
        """The instance runs or is parked here, so that it can be woken without a claim."""
        return instance_id in self._runners or instance_id in self._parked

    @property
    def owned_ids(self) -> frozenset[str]:
        """The instances that run here."""
        return frozenset(self._runners)

    def _find_runner(self, instance_id: str) -> InstanceRunner | None:
        return self._runners.get(instance_id) or self._parked.get(instance_id)

    @property
    def queued(self) -> int:
        """How many parked instances are due and wait for room."""
        return len(self._waiting_for_room)

    @property
    def is_idle(self) -> bool:
        """No read or write is in flight. Attempts may run, and instances may wait."""
        return not self._tasks and self.committer.is_idle

    def is_scheduled(self, instance_id: str, due: int) -> bool:
        """The instance runs here, or is parked here with a timer for that time: no claim is needed.

        If the store has another due time than a parked instance, another process has changed it (a cancellation).
        """
        parked = self._parked.get(instance_id)
        return instance_id in self._runners or (parked is not None and parked.next_due() == due)

    def is_parked(self, instance_id: str) -> bool:
        """The instance is parked here."""
        return instance_id in self._parked

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in a background task. Its failure is logged; `abandon` cancels it."""
        _ = self.spawn_task(work)

    def spawn_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """As `spawn`, returning the task, for a caller that waits for it."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, SimulatedCrash):
            _log.error("a task of the worker failed", exc_info=error)

    # --- starting and resuming instances

    def begin(self, create: CreateInstance, workflow: Workflow[..., Any]) -> None:
        """Run an instance that was just created here."""
        there = self._find_runner(create.instance_id)
        if self.pending_claims.is_named(create.instance_id) or (
            there is not None and there.identity.created_at == create.now
        ):
            return  # the result of the write came so late that the instance was freed and then claimed by this worker
        if there is not None:
            # Two instances with one id: one was deleted before the other was created. Load what the store has.
            self.drop(there)
            self.spawn(self._resume_owned(create.instance_id))
            return
        self.metrics.workflows[workflow.name].started += 1
        identity = RunnerIdentity(create.instance_id, 1, 0, create.deadline_at, None, create.now)
        runner = self._make_runner(identity, workflow, create.input, epoch=1)
        self._keep_owned(runner)
        if self.hook_dispatcher is not None:
            self.hook_dispatcher.workflow_started(create, self.id)
        runner.handle(Begin(create.now))

    async def resume(self, row: InstanceRow) -> None:
        """Run an instance that was just claimed: from the cache if it is parked here, otherwise by replay.

        Raises `StoreError` if it cannot be loaded now: it stays owned, and the caller must try again.
        """
        if self._resume_warm(row):
            return
        try:
            loaded = await self._load(row.instance_id)
            if loaded is not None and loaded.row.epoch == row.epoch and loaded.row.owner == self.id:
                self._resume_cold(loaded)
        except StoreError:
            raise
        except Exception as error:
            self._on_unreadable(row, error)
        self._unreadable.pop(row.instance_id, None)

    async def resume_owned(self, instance_id: str) -> bool:
        """Run an instance that this worker owns according to the store but that has no runner. Return whether it did.

        The loaded row counts only if no write or claim of the instance was in flight while it was read: only then will
        nothing else ever start it.
        """
        if self._is_handled(instance_id):
            return False
        loaded = await self._load(instance_id)
        # Check again: a write or claim may have begun during the load, and its result will start the instance.
        if loaded is None or loaded.row.owner != self.id or self._is_handled(instance_id):
            return False
        if self._resume_warm(loaded.row):
            return True
        try:
            self._resume_cold(loaded)
        except StoreError:
            raise
        except Exception as error:
            self._on_unreadable(loaded.row, error)
        self._unreadable.pop(instance_id, None)
        return True

    async def _resume_owned(self, instance_id: str) -> None:
        await self.resume_owned(instance_id)

    def _is_handled(self, instance_id: str) -> bool:
        there = instance_id in self._runners or instance_id in self.pending_writes or instance_id in self.pending_claims
        return there or self.stopping

    async def _load(self, instance_id: str) -> LoadedInstance | None:
        """Load an instance; None if there is none, or if it got a runner while it was being loaded."""
        self._loading[instance_id] = mark = object()
        try:
            loaded = await self.store.load(instance_id)
            return loaded if self._loading.get(instance_id) is mark else None
        finally:
            if self._loading.get(instance_id) is mark:
                del self._loading[instance_id]

    def _keep_owned(self, runner: InstanceRunner) -> None:
        """Enter a runner as running. This is the only place that does, so an instance never has two runners here."""
        instance_id = runner.instance_id
        there = self._runners.get(instance_id) or self._parked.get(instance_id, runner)
        if there is not runner:
            raise RuntimeError(f"{instance_id} runs here already, under epoch {there.epoch}")
        self._parked.pop(instance_id, None)
        self._loading.pop(instance_id, None)
        self._runners[instance_id] = runner

    def _drop_older_run(self, row: InstanceRow) -> bool:
        """Drop a runner of an older epoch than the loaded row. False if the runner here is as new as the row."""
        there = self._find_runner(row.instance_id)
        if there is None:
            return True
        if there.identity.created_at == row.created_at and there.epoch >= row.epoch:
            return False
        self.instance_lost(there)
        return True

    def _resume_warm(self, row: InstanceRow) -> bool:
        """Resume a parked instance without a replay if it matches the row; drop it if it does not."""
        parked = self._parked.get(row.instance_id)
        if parked is not None and parked.matches_row(row):
            self._keep_owned(parked)
            self.metrics.warm_hits += 1
            parked.handle(Claimed(row.epoch))
            return True
        if parked is not None:
            del self._parked[row.instance_id]
            parked.handle(Discarded())
        return False

    def _on_unreadable(self, row: InstanceRow, error: Exception) -> None:
        """Block an instance that repeatedly cannot be read: it was written by newer code, or is damaged."""
        self.forget(row.instance_id)
        self._unreadable[row.instance_id] += 1
        if self._unreadable[row.instance_id] < _MAX_READS:  # the cause may be a passing problem of this process
            _log.exception("%r cannot be read, will try again", row.instance_id)
            raise StoreError(f"Instance {row.instance_id!r} cannot be read: {error!r}") from error
        self._write_blocked(row, f"it cannot be read: {error!r}")

    def _resume_cold(self, loaded: LoadedInstance) -> None:
        row = loaded.row
        if not self._drop_older_run(row):
            return
        workflow = self.registry.find(row.workflow, row.version)
        if workflow is None:  # not expected: this worker claims only workflows that are registered here
            return
        if (encoded := find_encoded(loaded)) is not None:
            self._write_blocked(row, not_decoded("the stored data of this instance", encoded))
            return
        self.replays += 1
        fresh = row.epoch == 1 and not loaded.history
        if fresh:  # it has never run: a client created it, or a worker without room for it
            self.metrics.workflows[workflow.name].started += 1
            if self.hook_dispatcher is not None:
                self.hook_dispatcher.workflow_claimed_first(loaded, self.id, self.clock.now())
        try:
            deadline_at = _deadline_of(loaded, workflow)
            identity = RunnerIdentity(
                row.instance_id, row.generation, row.round, deadline_at, row.blocked_by, row.created_at
            )
            runner = self._make_runner(
                identity,
                workflow,
                loaded.input,
                loaded.history,
                length=row.length,
                epoch=row.epoch,
                inbox_seen=row.inbox_version,
            )
        except PayloadError as error:
            if event_of_input(loaded.input) is None and (row.code or loaded.history):
                self._write_blocked(row, f"its input no longer matches the parameters: {error}")
            else:
                self._write_failed_start(row, error)
            return
        self._keep_owned(runner)
        if not self._replay(runner, loaded, fresh=fresh):
            return
        runner.handle(Restore(loaded))

    def _replay(self, runner: InstanceRunner, loaded: LoadedInstance, *, fresh: bool) -> bool:
        """Replay the history; False if the code does not fit it (the instance is blocked then)."""
        dispatcher = None if fresh else self.hook_dispatcher
        if dispatcher is not None:
            dispatcher.replay_started(runner, loaded.history, self.clock.now())
        began, problem = monotonic(), None
        try:
            runner.execution.replay(loaded.begun_at, loaded.history)
        except DeterminismViolationError as error:
            problem = str(error)
        took = monotonic() - began
        if not fresh:
            self.metrics.replays.add(round(took * MICROS))
        if dispatcher is not None:
            dispatcher.replay_completed(runner, loaded.history, self.clock.now(), took, problem)
        if problem is not None:
            self.block(runner, problem)
        return problem is None

    def _make_runner(
        self,
        identity: RunnerIdentity,
        workflow: Workflow[..., Any],
        input: bytes,
        history: tuple[Entry, ...] = (),
        *,
        length: int = 0,
        epoch: int,
        inbox_seen: int = 0,
    ) -> InstanceRunner:
        execution = execution_of(
            workflow,
            instance_id=identity.instance_id,
            generation=identity.generation,
            input=input,
            history=history,
            length=length,
            worker_id=self.id,
            app=self.app,
            guard=self.options.guard,
        )
        return InstanceRunner(self, workflow, identity, execution, epoch=epoch, inbox_seen=inbox_seen)

    def wake_for_inbox(self, instance_id: str) -> bool:
        """Let an instance that runs or is parked here read its inbox. False if it is not here."""
        runner = self._find_runner(instance_id)
        if runner is None:
            return False
        runner.handle(ItemArrived())
        return True

    # --- sending and waking

    def with_starts(self, effect: Effect) -> Effect:
        """Complete an effect: to an event, add its brokers and the instances of this app's workflows that it starts."""
        if not isinstance(effect, SendEvent):
            return effect
        if not effect.local:
            return replace(effect, brokers=self.options.brokers)
        owner = self.id if self.room else None
        now = self.clock.now()
        starts = starts_of(self.registry, effect.event, self._ids, now=now, owner=owner)
        return replace(effect, starts=starts, fresh_id=self._ids.instance_id(now), brokers=self.options.brokers)

    async def emit(self, effect: Effect) -> None:
        """Send an event or message by itself, not as part of a transition, and wait for the commit."""
        now, effect = self.clock.now(), self.with_starts(effect)
        if isinstance(effect, SendEvent):
            write = AcceptEvents((effect.event,), now, (effect.starts,), (effect.fresh_id,), effect.local, effect.brokers)
            written = self.committer.submit(write, partial(self._on_emitted, effect))
            self.pending_writes.begin(owned_starts(effect.starts))
            answer = await written
        else:
            assert isinstance(effect, Publish | SendTo | SendToGroup)
            answer = await self.committer.submit(PostMessage(effect, now), partial(self._on_emitted, effect))
        if isinstance(answer, Refused):
            assert isinstance(effect, SendTo)
            raise no_recipient(effect.target, answer.status)

    def _on_emitted(self, effect: Effect, answer: WriteResult | StoreError) -> None:
        # A callback of the commit, not code after the await in `emit`: the awaiting attempt may be cancelled, and instances
        # that its event has started must be begun all the same.
        starts = effect.starts if isinstance(effect, SendEvent) else ()
        self.pending_writes.end(owned_starts(starts))
        if isinstance(answer, Applied | Accepted):
            self.announce_outbox([effect])
            self.propagate(answer, starts)

    def announce_outbox(self, effects: Iterable[Effect]) -> None:
        """Wake the relays if one of these durable effects is an event: it is in the outbox now."""
        if self.options.brokers and any(isinstance(effect, SendEvent) for effect in effects):
            self.on_outbox_enqueued()

    async def check_recipient(self, instance_id: str) -> None:
        """Raise if nothing can be sent to an instance."""
        status = (await self.store.statuses([instance_id])).get(instance_id)
        if status is None or status.ended:
            raise no_recipient(instance_id, status)

    def propagate(self, answer: Applied | Accepted, starts: Sequence[CreateInstance]) -> None:
        """Begin the instances that a commit started, and wake those that it woke."""
        if answer.started:
            self._begin_started(starts, answer.started)
            self.on_due_elsewhere(self.clock.now())  # some may be without an owner, because there was no room here
        if answer.woken:
            self.wake(answer.woken)

    def wake(self, ids: Iterable[str]) -> None:
        """Wake these instances: directly if they are cached here, otherwise by triggering a claim."""
        here = [self._find_runner(instance_id) for instance_id in ids]
        for runner in here:
            if runner is not None:
                runner.handle(WaitMatched())
        if None in here:
            self.on_due_elsewhere(self.clock.now())

    def _begin_started(self, creates: Iterable[CreateInstance], started: Collection[str]) -> None:
        for create in creates:
            workflow = self.registry.find(create.workflow, create.version)
            if create.ending is not None and create.instance_id in started:
                metrics = self.metrics.workflows[create.workflow]
                metrics.started += 1
                metrics.end(Status.FAILED, 0)
                if self.hook_dispatcher is not None:
                    self.hook_dispatcher.workflow_started(create, self.id)
            if create.instance_id not in started or create.ending is not None or workflow is None:
                continue
            if create.owner == self.id and not self.stopping:
                self.begin(create, workflow)

    def start_next_generation(self, runner: InstanceRunner, input: bytes, at: int, *, unread: bool) -> None:
        """Replace the runner of a generation whose end is durable by one for the next generation."""
        self.metrics.workflows[runner.workflow.name].recurred += 1
        identity = runner.identity._replace(generation=runner.identity.generation + 1)
        runner.handle(Discarded())
        try:
            next_runner = self._make_runner(
                identity, runner.workflow, input, epoch=runner.epoch, inbox_seen=runner.inbox.seen
            )
        except PayloadError as error:
            row = replace(row_of(runner), generation=identity.generation, length=0)
            self.drop(runner)
            self._write_blocked(row, f"its input does not match the parameters: {error}")
            return
        self._runners.pop(runner.instance_id, None)
        self._keep_owned(next_runner)
        if unread:  # read the inbox first: it must be possible to cancel a workflow that does nothing but recur
            self.spawn(self._begin_after_inbox(next_runner, at))
        else:
            next_runner.handle(Begin(at))

    async def _begin_after_inbox(self, runner: InstanceRunner, at: int) -> None:
        inbox = await self.read_inbox(runner)
        if inbox is not None:
            runner.handle(Begin(at, inbox))

    async def read_inbox(self, runner: InstanceRunner) -> Inbox | None:
        """Read an instance's inbox, retrying until it succeeds. None if the instance is no longer owned here."""
        pause = _FIRST_PAUSE
        while not runner.gone:
            try:
                inbox = await self.store.inbox(runner.instance_id)
            except StoreError as error:
                _log.warning("could not read the inbox of %r, will try again: %s", runner.instance_id, error)
            except Exception:  # without another try, the instance would miss what has arrived
                _log.exception("reading the inbox of %r failed, will try again", runner.instance_id)
            else:
                if (
                    item := next((one for one in inbox.items if is_encoded(one.body)), None)
                ) is not None and not runner.gone:
                    self.block(runner, not_decoded(f"the result of {item.op}", item.body or b""))
                return None if runner.gone else inbox
            self.metrics.errors["inbox"] += 1
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        return None

    # --- parking and removing instances

    def admit(self, runner: InstanceRunner) -> bool:
        """Return whether there is room for a parked instance that is due; if not, queue it until there is."""
        if self.room or runner.gone:
            return True
        self._waiting_for_room[runner.instance_id] = runner
        return False

    def _on_room_freed(self) -> None:
        """Give freed room to a queued parked instance or, if the worker was full until now, to the claimer."""
        if self._waiting_for_room:
            self.loop.call_soon(self._wake_next)
        elif len(self._runners) == self.options.max_workflows - 1:
            self.on_room()

    def _wake_next(self) -> None:
        """Resume queued instances while there is room."""
        while self._waiting_for_room and self.room:
            runner = self._waiting_for_room.pop(next(iter(self._waiting_for_room)))
            runner.handle(Admitted())

    def park(self, runner: InstanceRunner) -> None:
        """Keep a released runner in the cache, and evict the runners parked for longest if the cache is full."""
        self._runners.pop(runner.instance_id, None)
        self._parked[runner.instance_id] = runner
        self._parked.move_to_end(runner.instance_id)
        while len(self._parked) > self.options.cache_size:
            _, oldest = self._parked.popitem(last=False)
            due = self.clock.now() if oldest.has_unread else oldest.next_due()
            oldest.handle(Discarded())
            if due is not None:
                self.on_due_elsewhere(due)
        self._on_room_freed()

    def unpark(self, runner: InstanceRunner) -> None:
        """Move a parked runner back to the running ones."""
        if self._parked.get(runner.instance_id) is runner:
            self.metrics.warm_hits += 1
            self._keep_owned(runner)

    def instance_ended(self, runner: InstanceRunner, status: Status, ending: Ending) -> None:
        """Count, log and report the durable end of an instance, and drop its runner."""
        self.metrics.workflows[runner.workflow.name].end(status, self.clock.now() - runner.identity.created_at)
        if status is Status.FAILED:
            failure_log.log_instance_failed(
                runner.instance_id, runner.workflow.label, ending.error, hidden=self.hides_payloads
            )
        self.drop(runner)
        if self._on_ended is not None:
            self._on_ended(runner.instance_id, status, ending)

    def drop(self, runner: InstanceRunner) -> None:
        """Remove and discard a runner."""
        instance_id = runner.instance_id
        if self._runners.get(instance_id) is runner:
            del self._runners[instance_id]
        elif self._parked.get(instance_id) is runner:
            del self._parked[instance_id]
        runner.handle(Discarded())
        self._on_room_freed()

    def forget(self, instance_id: str) -> None:
        """Drop the runner of an instance, if there is one: an operator has ended the instance."""
        runner = self._find_runner(instance_id)
        if runner is not None:
            self.drop(runner)

    def instance_lost(self, runner: InstanceRunner) -> None:
        """Drop an instance whose write was refused: another worker owns it, or it was ended."""
        _log.info("%r is no longer owned by this worker: its epoch is no longer %d", runner.instance_id, runner.epoch)
        self.drop(runner)
        self.on_due_elsewhere(self.clock.now())

    def block(self, runner: InstanceRunner, reason: str) -> None:
        """Block an instance that the code does not fit, until a worker with other code claims it."""
        row = row_of(runner)
        self.drop(runner)
        self._write_blocked(row, reason)

    def _write_blocked(self, row: InstanceRow, reason: str) -> None:
        _log.error("%r is blocked: %s", row.instance_id, reason)
        self.metrics.workflows[row.workflow].blocked += 1
        if self.on_blocked is not None:
            self.on_blocked(row.instance_id, reason)
        workflow = self.registry.find(row.workflow, row.version)
        code = self.registry.code(workflow) if workflow is not None else ""
        transition = self._final_transition(row, Status.BLOCKED)._replace(
            notes=(JournalNote("blocked", reason),),
            blocked_by=",".join([*(row.blocked_by or "").split(","), self.code_key(code)][-_MAX_BLOCKING_CODES:]),
        )
        self._submit_final(_FinalTransition(self, transition))

    def _submit_final(self, final: _FinalTransition) -> None:
        self.pending_writes.begin([final.instance_id])  # so that `resume_owned` leaves it alone until it is written
        self.committer.enqueue(final)

    def code_key(self, code: str) -> str:
        """The fingerprint to store with a blocked instance: of the code and, with a codec, of its keys."""
        return f"{code}/{self.options.codec_fingerprint}" if self.options.codec_fingerprint else code

    def _write_failed_start(self, row: InstanceRow, error: PayloadError) -> None:
        """Fail an instance before its body starts: its input, from a client without the code, does not fit the workflow."""
        raw = encode_failure(error)
        ending = Ending(error=raw, fingerprint=describe_failure(raw).fingerprint)
        transition = self._final_transition(row, Status.FAILED)._replace(ending=ending)
        self._submit_final(_FinalTransition(self, transition, partial(self._on_failed_start, row)))

    def _on_failed_start(self, row: InstanceRow, instance_id: str, status: Status, ending: Ending) -> None:
        self.metrics.workflows[row.workflow].end(status, self.clock.now() - row.created_at)
        failure_log.log_instance_failed(instance_id, row.workflow, ending.error, hidden=self.hides_payloads)
        if self.hook_dispatcher is not None:
            self.hook_dispatcher.workflow_failed_at_once(row, ending, self.id, self.clock.now())
        if self._on_ended is not None:
            self._on_ended(instance_id, status, ending)

    def _final_transition(self, row: InstanceRow, status: Status) -> Transition:
        now = self.clock.now()
        return Transition(
            row.instance_id,
            row.generation,
            self.id,
            row.epoch,
            row.epoch,
            status,
            now,
            keep_owned=False,
            inbox_seen=row.inbox_version,
            has_messaging_state=True,
        )

    def record_attempt(self, runner: InstanceRunner, write: AttemptUpdate) -> None:
        """Write an open attempt's row; if that is refused, the instance is lost."""
        with contextlib.suppress(StoreError):  # submitted here, not in the task: before the end of the attempt is written
            self.spawn(self._await_attempt_record(runner, write, self.committer.submit(write)))

    async def record_attempt_durably(self, runner: InstanceRunner, write: AttemptUpdate) -> None:
        """Write an open attempt's row, and wait until it is durable."""
        with contextlib.suppress(StoreError):
            await self._await_attempt_record(runner, write, self.committer.submit(write))

    async def _await_attempt_record(
        self, runner: InstanceRunner, write: AttemptUpdate, written: asyncio.Future[WriteResult]
    ) -> None:
        try:
            answer = await written
        except StoreError:
            return  # harmless: the next heartbeat writes the row again
        if isinstance(answer, Refused) and not runner.gone and runner.epoch == write.epoch:
            self.instance_lost(runner)

    # --- stopping

    def lose_everything(self) -> None:
        """Drop all instances and take a new id: this incarnation was declared dead, and other workers may own them now."""
        _log.warning("worker %s was declared dead (was the machine asleep?): starting over with a new id", self.id)
        for runner in [*self._runners.values(), *self._parked.values()]:
            self.drop(runner)
        self.rename()

    async def stop(self) -> None:
        """Let attempts finish within `shutdown_timeout`, commit their results, and abandon the rest."""
        self.stopping = True
        deadline = self.loop.time() + self.options.shutdown_timeout
        while self.attempts and (left := deadline - self.loop.time()) > 0:
            await asyncio.wait({attempt.task for attempt in self.attempts}, timeout=left)
            await asyncio.sleep(0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(deadline - self.loop.time(), 1.0)):
                await self.committer.wait_until_idle()
        await self.abandon()

    async def abandon(self) -> None:
        """Drop all instances and cancel all tasks at once."""
        self.stopping = True
        tasks = [attempt.task for attempt in self.attempts] + list(self._tasks)
        for runner in [*self._runners.values(), *self._parked.values()]:
            self.drop(runner)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1)
        self.timers.close()
        self.stopwatch.close()
        await self.sessions.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def find_encoded(loaded: LoadedInstance) -> bytes | None:
    """Return a payload of the instance that could not be decoded, if there is one: the instance must not run then."""
    if is_encoded(loaded.input):
        return loaded.input
    for entry in loaded.history:
        for raw in (entry.input, entry.value):
            if is_encoded(raw):
                return raw
        if is_encoded_digest(entry.digest):
            return entry.digest
    rest = [raw for attempt in loaded.attempts for raw in (attempt.error, attempt.details)]
    return next((raw for raw in (*rest, *(item.body for item in loaded.inbox)) if is_encoded(raw)), None)


def _deadline_of(loaded: LoadedInstance, workflow: Workflow[..., Any]) -> int | None:
    """The deadline of the instance.

    Usually it is stored with the instance. It is computed here if the process that accepted the starting event did not know
    the workflow's timeout, or if a retry has removed a deadline that had passed: then the timeout starts again at the retry.
    """
    row = loaded.row
    retried = [entry.at for entry in loaded.history if entry.kind is Kind.RETRY]
    if row.deadline_at is not None or workflow.timeout is None:
        return row.deadline_at
    if not retried and event_of_input(loaded.input) is None:
        return None
    deadline_at = row.created_at + workflow.timeout
    for at in retried:
        if deadline_at <= at:
            deadline_at = at + workflow.timeout
    return deadline_at


class _FinalTransition:
    """Writes the transition that blocks or fails an instance that has no runner any more."""

    def __init__(self, worker: Worker, transition: Transition, on_ended: OnEnded | None = None) -> None:
        self.instance_id = transition.instance_id
        self._worker = worker
        self._transition = transition
        self._on_ended = on_ended

    def take_transition(self) -> Transition:
        return self._transition

    def on_answer(self, answer: object) -> None:
        """Finish, or write again if the instance is still owned. If it was refused, another worker owns the instance."""
        transition = self._transition
        if isinstance(answer, Applied) and answer.owned:
            # Something arrived that this transition had not seen: write it again as seen. It waits in the inbox.
            self._transition = transition._replace(inbox_seen=answer.inbox_version, notes=())
            self._worker.committer.enqueue(self)
            return
        self._worker.pending_writes.end([self.instance_id])
        if isinstance(answer, Applied) and transition.ending is not None and self._on_ended is not None:
            self._on_ended(transition.instance_id, transition.status, transition.ending)


def _ignore_due(due: int) -> None:
    """The default of `on_due_elsewhere`."""


def _do_nothing() -> None:
    """The default of callbacks without arguments."""

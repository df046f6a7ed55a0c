"""The worker: the hosts of this process, the warm cache, and what ties them to the store."""

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
from romancy.worker.runner import InstanceRunner, RunnerIdentity
from romancy.worker.timers import TimerHeap

if TYPE_CHECKING:
    from romancy.app import App

_log = logging.getLogger("romancy.worker")
OnEnded = Callable[[str, Status, Ending], None]
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_MAX_READS = 5
"""So often an instance is read until it counts as damaged."""
_STALL_AFTER = 30 * MICROS
"""So long every slot is held before it is worth a word."""
_MAX_BLOCKING_CODES = 8
"""So many fingerprints of code that did not fit are kept with an instance: workers of old code must not try in turn."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How a worker works; times in seconds."""

    label: str = ""
    service: str = ""
    max_workflows: int = 1000
    max_activities: int = 100
    cache_size: int = 1000
    heartbeat_interval: float = 5.0
    lease_timeout: float = 30.0
    max_losses: int = 3
    """So many workers an instance may lose without recording anything in between; 0: any number."""
    poll_interval: float = 1.0
    claim_pauses: tuple[float, ...] = (0.005, 0.02, 0.05)
    """Seconds after which what is due and could not be claimed is looked for again."""
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
    """The names of the brokers that get the events which are sent here."""
    horizon: float | None = None
    """How far ahead to look for what will be due; default: two poll intervals."""
    default_retry: RetryPolicy = field(default_factory=RetryPolicy)
    codec_fingerprint: str = ""
    """The fingerprint of what can be decoded here: with another key instances that were blocked are tried again."""


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
        """For how long something takes: no matter what the date becomes meanwhile. A test's own clock tells both."""
        if isinstance(clock, SystemClock):
            self.elapsed, self.stopwatch = clock.elapsed, TimerHeap(clock.elapsed)
        self.app = app
        self.hook_dispatcher = dispatcher
        """Tells the hooks what happens; None: there are none."""
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self.default_retry = options.default_retry
        self.limiter = ConcurrencyLimiter(options.max_activities)
        self.sessions = ActivitySessions(store)
        self.attempts: set[Attempt] = set()
        self.pending_writes = PendingWrites()
        """What is being written that may make instances ours."""
        self.pending_claims = PendingWrites()
        """What is being claimed, and what was claimed and does not run yet."""
        self.stopping = False
        self.on_death: Callable[[], None] = self.lose_everything
        """What to do when this incarnation was declared dead."""
        self.on_committed: Callable[[InstanceRunner], None] | None = None
        """Called after every commit of a host; tests check replay here."""
        self.on_room: Callable[[], None] = _do_nothing
        """Called when there is room for an instance again."""
        self.on_due_elsewhere: Callable[[int], None] = _ignore_due
        """Called with the time at which an instance is due that is no longer known here."""
        self.on_blocked: Callable[[str, str], None] | None = None
        """Called with an instance's id and the reason when the code does not fit it."""
        self.on_outbox_enqueued: Callable[[], None] = _do_nothing
        """Called when something was put into the outbox, durably."""
        self.replays = 0
        """How many runs were replayed cold."""
        self.crash_point = crash_point
        """Where a test may let the process die."""
        self._ids = ids
        self._on_ended = on_ended
        self._runners: dict[str, InstanceRunner] = {}
        self._parked: OrderedDict[str, InstanceRunner] = OrderedDict()
        self._waiting_for_room: dict[str, InstanceRunner] = {}
        """Parked instances that are due and for which there was no room."""
        self._loading: dict[str, object] = {}
        """Instances that are being read, each with a mark of its reading; without it the reading was overtaken."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._threads: ThreadPool | None = None
        self._unreadable: Counter[str] = Counter()
        """How often an instance could not be read, as it seems."""
        self.registered_at = 0
        """When this incarnation began."""
        self.id = ""
        self.rename()

    def rename(self) -> None:
        """Become a new incarnation: nothing written under the old name counts any more."""
        self.id = f"{self.options.label or socket.gethostname()}/{self._ids.incarnation()}"

    @property
    def threads(self) -> ThreadPool:
        """Where plain `def` activities run; made when the first one does."""
        if self._threads is None:
            self._threads = ThreadPool(self.options.max_activities, "romancy-activity")
        return self._threads

    @property
    def room(self) -> int:
        """How many more instances may run here."""
        return 0 if self.stopping else max(self.options.max_workflows - len(self._runners), 0)

    @property
    def running(self) -> int:
        """How many instances are in hand here."""
        return len(self._runners)

    @property
    def warm(self) -> int:
        """How many waiting instances are kept in memory."""
        return len(self._parked)

    def concurrency_stall(self) -> ConcurrencyStall | None:
        """Attempts wait for a slot, and none has begun for long."""
        waiting = self.limiter.queued
        if not waiting or not self.attempts:
            return None
        since = max(attempt.started_at for attempt in self.attempts)
        if self.clock.now() - since < _STALL_AFTER:
            return None
        return ConcurrencyStall(tuple(Counter(attempt.work.name for attempt in self.attempts).most_common()), waiting, since)

    @property
    def hides_payloads(self) -> bool:
        """Payloads go through a codec, which may encrypt them: no log may repeat what they say."""
        return bool(self.options.codec_fingerprint)

    def is_cached(self, instance_id: str) -> bool:
        """The instance runs here or is parked here: called, it goes on here."""
        return instance_id in self._runners or instance_id in self._parked

    @property
    def owned_ids(self) -> frozenset[str]:
        """The instances that run here."""
        return frozenset(self._runners)

    def _find_runner(self, instance_id: str) -> InstanceRunner | None:
        return self._runners.get(instance_id) or self._parked.get(instance_id)

    @property
    def queued(self) -> int:
        """How many of them are due and wait for room."""
        return len(self._waiting_for_room)

    @property
    def is_idle(self) -> bool:
        """Nothing is being read or written: only attempts, time or the outside can bring something about."""
        return not self._tasks and self.committer.is_idle

    def is_scheduled(self, instance_id: str, due: int) -> bool:
        """The instance runs here, or is parked here and its own alarm rings then: nobody need claim it.

        A parked one that is due at another time has been changed from outside (a cancellation by another process).
        """
        parked = self._parked.get(instance_id)
        return instance_id in self._runners or (parked is not None and parked.next_due() == due)

    def is_parked(self, instance_id: str) -> bool:
        """The instance is parked here."""
        return instance_id in self._parked

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside; its failure is logged."""
        _ = self.spawn_task(work)

    def spawn_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """As `spawn`, for one that waits for its end."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, SimulatedCrash):
            _log.error("a task of the worker failed", exc_info=error)

    # --- instances come

    def begin(self, create: CreateInstance, workflow: Workflow[..., Any]) -> None:
        """Run an instance that was just created here."""
        there = self._find_runner(create.instance_id)
        if self.pending_claims.is_named(create.instance_id) or (
            there is not None and there.identity.created_at == create.now
        ):
            return  # the answer took so long that the instance was taken away meanwhile, and came back by a claim
        if there is not None:
            # Two lives of one id: one was deleted before the other was created. The store says which of them there is.
            self.drop(there)
            self.spawn(self._resume_owned(create.instance_id))
            return
        self.metrics.workflows[workflow.name].started += 1
        identity = RunnerIdentity(create.instance_id, 1, 0, create.deadline_at, None, create.now)
        runner = self._make_runner(identity, workflow, create.input, epoch=1)
        self._keep_owned(runner)
        if self.hook_dispatcher is not None:
            self.hook_dispatcher.workflow_started(create, self.id)
        runner.begin(create.now)

    async def resume(self, row: InstanceRow) -> None:
        """Run an instance that was just claimed: warm where it stood, or replayed.

        Raises `StoreError` when it cannot be loaded now: it stays ours, and the call is to be repeated.
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
        """Run an instance that is ours according to the store, if nobody runs it; whether that was so.

        What the store says counts if it was read while nothing was under way here that is about the instance: then nothing
        is left that could begin it, and it never would.
        """
        if self._is_handled(instance_id):
            return False
        loaded = await self._load(instance_id)
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
        """Read an instance; None: there is none, or it was begun here while it was read."""
        self._loading[instance_id] = mark = object()
        try:
            loaded = await self.store.load(instance_id)
            return loaded if self._loading.get(instance_id) is mark else None
        finally:
            if self._loading.get(instance_id) is mark:
                del self._loading[instance_id]

    def _keep_owned(self, runner: InstanceRunner) -> None:
        """Have an instance in hand: the one place where a run comes into hand, and never beside another of its instance."""
        instance_id = runner.instance_id
        there = self._runners.get(instance_id) or self._parked.get(instance_id, runner)
        if there is not runner:
            raise RuntimeError(f"{instance_id} runs here already, under epoch {there.epoch}")
        self._parked.pop(instance_id, None)
        self._loading.pop(instance_id, None)
        self._runners[instance_id] = runner

    def _drop_older_run(self, row: InstanceRow) -> bool:
        """Nobody here runs the instance that was read, or nobody any more: what is of an older epoch is no longer ours."""
        there = self._find_runner(row.instance_id)
        if there is None:
            return True
        if there.identity.created_at == row.created_at and there.epoch >= row.epoch:
            return False
        self.instance_lost(there)
        return True

    def _resume_warm(self, row: InstanceRow) -> bool:
        """Let a parked run go on where it stands, if it stands where the row says. One that does not is dropped."""
        parked = self._parked.get(row.instance_id)
        if parked is not None and parked.matches_row(row):
            self._keep_owned(parked)
            self.metrics.warm_hits += 1
            parked.on_claimed(row.epoch)
            return True
        if parked is not None:
            del self._parked[row.instance_id]
            parked.discard()
        return False

    def _on_unreadable(self, row: InstanceRow, error: Exception) -> None:
        """Written by newer code, or damaged: that must not keep the worker from the others."""
        self.forget(row.instance_id)
        self._unreadable[row.instance_id] += 1
        if self._unreadable[row.instance_id] < _MAX_READS:  # it may be this process that cannot, for a moment
            _log.exception("%r cannot be read, will try again", row.instance_id)
            raise StoreError(f"Instance {row.instance_id!r} cannot be read: {error!r}") from error
        self._write_blocked(row, f"it cannot be read: {error!r}")

    def _resume_cold(self, loaded: LoadedInstance) -> None:
        row = loaded.row
        if not self._drop_older_run(row):
            return
        workflow = self.registry.find(row.workflow, row.version)
        if workflow is None:  # claimed by name a moment ago
            return
        if (encoded := find_encoded(loaded)) is not None:
            self._write_blocked(row, not_decoded("what is stored of it", encoded))
            return
        self.replays += 1
        fresh = row.epoch == 1 and not loaded.history
        if fresh:  # nobody has run it before: it was created by a client, or by somebody who had no room
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
                self._write_blocked(row, f"its input no longer fits: {error}")
            else:
                self._write_failed_start(row, error)
            return
        self._keep_owned(runner)
        if not self._replay(runner, loaded, fresh=fresh):
            return
        runner.restore(loaded.attempts, loaded.waits, loaded.losses)
        runner.apply_inbox(row.inbox_version, loaded.inbox)
        runner.check_due()

    def _replay(self, runner: InstanceRunner, loaded: LoadedInstance, *, fresh: bool) -> bool:
        """Bring a run to where its history ends; False if the code does not fit."""
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
        """Something arrived for an instance: if it is here, let it look."""
        runner = self._find_runner(instance_id)
        if runner is None:
            return False
        runner.wake_for_inbox()
        return True

    # --- instances talk

    def with_starts(self, effect: Effect) -> Effect:
        """What somebody said; if it is an event, with the brokers that get it and the instances that it starts here."""
        if not isinstance(effect, SendEvent):
            return effect
        if not effect.local:
            return replace(effect, brokers=self.options.brokers)
        owner = self.id if self.room else None
        now = self.clock.now()
        starts = starts_of(self.registry, effect.event, self._ids, now=now, owner=owner)
        return replace(effect, starts=starts, fresh_id=self._ids.instance_id(now), brokers=self.options.brokers)

    async def emit(self, effect: Effect) -> None:
        """Say something by itself, in a commit of its own."""
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
        # By the answer, not after the await: an attempt that ends meanwhile must not leave what it started never begun.
        starts = effect.starts if isinstance(effect, SendEvent) else ()
        self.pending_writes.end(owned_starts(starts))
        if isinstance(answer, Applied | Accepted):
            self.announce_outbox([effect])
            self.propagate(answer, starts)

    def announce_outbox(self, effects: Iterable[Effect]) -> None:
        """These were said, durably: what is for brokers lies in the outbox."""
        if self.options.brokers and any(isinstance(effect, SendEvent) for effect in effects):
            self.on_outbox_enqueued()

    async def check_recipient(self, instance_id: str) -> None:
        """Raise if nothing can be sent to an instance."""
        status = (await self.store.statuses([instance_id])).get(instance_id)
        if status is None or status.ended:
            raise no_recipient(instance_id, status)

    def propagate(self, answer: Applied | Accepted, starts: Sequence[CreateInstance]) -> None:
        """Let those go on here who were called, or start, by a commit."""
        if answer.started:
            self._begin_started(starts, answer.started)
            self.on_due_elsewhere(self.clock.now())  # what others must run, or what there was no room for
        if answer.woken:
            self.wake(answer.woken)

    def wake(self, ids: Iterable[str]) -> None:
        """Something has arrived for instances: let those look that are here, and look for the others."""
        here = [self._find_runner(instance_id) for instance_id in ids]
        for runner in here:
            if runner is not None:
                runner.wake_for_waits()
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
        """A generation is over, durably: the next one begins in its place."""
        self.metrics.workflows[runner.workflow.name].recurred += 1
        identity = runner.identity._replace(generation=runner.identity.generation + 1)
        runner.discard()
        try:
            next_runner = self._make_runner(
                identity, runner.workflow, input, epoch=runner.epoch, inbox_seen=runner.inbox_seen
            )
        except PayloadError as error:
            row = replace(runner.to_row(), generation=identity.generation, length=0)
            self.drop(runner)
            self._write_blocked(row, f"its input does not fit: {error}")
            return
        self._runners.pop(runner.instance_id, None)
        self._keep_owned(next_runner)
        if unread:  # first what arrived: a workflow that does nothing but recur must be stoppable
            self.spawn(self._begin_after_inbox(next_runner, at))
        else:
            next_runner.begin(at)

    async def _begin_after_inbox(self, runner: InstanceRunner, at: int) -> None:
        inbox = await self.read_inbox(runner)
        if inbox is not None:
            runner.begin(at, inbox)

    async def read_inbox(self, runner: InstanceRunner) -> Inbox | None:
        """What has arrived for an instance, as soon as the database can be read; None if it is not ours any more."""
        pause = _FIRST_PAUSE
        while not runner.gone:
            try:
                inbox = await self.store.inbox(runner.instance_id)
            except StoreError as error:
                _log.warning("could not read the inbox of %r, will try again: %s", runner.instance_id, error)
            except Exception:  # it would not hear of what has arrived
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

    # --- instances wait and go

    def admit(self, runner: InstanceRunner) -> bool:
        """There is room for a parked instance that is due; otherwise it is called when there is."""
        if self.room or runner.gone:
            return True
        self._waiting_for_room[runner.instance_id] = runner
        return False

    def _on_room_freed(self) -> None:
        """An instance has left. If there was no room before, others may wait for it: parked here, or known to nobody."""
        if self._waiting_for_room:
            self.loop.call_soon(self._wake_next)
        elif len(self._runners) == self.options.max_workflows - 1:
            self.on_room()

    def _wake_next(self) -> None:
        """Let instances go on for which there was no room."""
        while self._waiting_for_room and self.room:
            runner = self._waiting_for_room.pop(next(iter(self._waiting_for_room)))
            if not runner.owned:
                runner.check_due()

    def park(self, runner: InstanceRunner) -> None:
        """A host that owns nothing any more stays warm for a while."""
        self._runners.pop(runner.instance_id, None)
        self._parked[runner.instance_id] = runner
        self._parked.move_to_end(runner.instance_id)
        while len(self._parked) > self.options.cache_size:
            _, oldest = self._parked.popitem(last=False)
            due = self.clock.now() if oldest.has_unread else oldest.next_due()
            oldest.discard()
            if due is not None:
                self.on_due_elsewhere(due)
        self._on_room_freed()

    def unpark(self, runner: InstanceRunner) -> None:
        """A parked host goes on: it counts as running from now on."""
        if self._parked.get(runner.instance_id) is runner:
            self.metrics.warm_hits += 1
            self._keep_owned(runner)

    def instance_ended(self, runner: InstanceRunner, status: Status, ending: Ending) -> None:
        """An instance has ended, durably."""
        self.metrics.workflows[runner.workflow.name].end(status, self.clock.now() - runner.identity.created_at)
        if status is Status.FAILED:
            failure_log.log_instance_failed(
                runner.instance_id, runner.workflow.label, ending.error, hidden=self.hides_payloads
            )
        self.drop(runner)
        if self._on_ended is not None:
            self._on_ended(runner.instance_id, status, ending)

    def drop(self, runner: InstanceRunner) -> None:
        """Forget a host."""
        instance_id = runner.instance_id
        if self._runners.get(instance_id) is runner:
            del self._runners[instance_id]
        elif self._parked.get(instance_id) is runner:
            del self._parked[instance_id]
        runner.discard()
        self._on_room_freed()

    def forget(self, instance_id: str) -> None:
        """Forget an instance that somebody outside has ended."""
        runner = self._find_runner(instance_id)
        if runner is not None:
            self.drop(runner)

    def instance_lost(self, runner: InstanceRunner) -> None:
        """A write was refused: the instance belongs to somebody else, or has been ended."""
        _log.info("%r is no longer ours: its epoch was not %d", runner.instance_id, runner.epoch)
        self.drop(runner)
        self.on_due_elsewhere(self.clock.now())

    def block(self, runner: InstanceRunner, reason: str) -> None:
        """The code does not fit the instance: set it aside until other code comes."""
        row = runner.to_row()
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
        self.pending_writes.begin([final.instance_id])  # until it is written, the store says that the instance is ours
        self.committer.enqueue(final)

    def code_key(self, code: str) -> str:
        """How code is called in what it blocks: with other keys it may fit."""
        return f"{code}/{self.options.codec_fingerprint}" if self.options.codec_fingerprint else code

    def _write_failed_start(self, row: InstanceRow, error: PayloadError) -> None:
        """What it was started with by somebody without its code does not fit its workflow: it fails before it begins."""
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
        """Write an open attempt's row; if that is refused, the instance is not ours."""
        with contextlib.suppress(StoreError):  # submitted now: the end of the attempt must be written after it
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
            return  # a beat that was not written is no harm: the next one is
        if isinstance(answer, Refused) and not runner.gone and runner.epoch == write.epoch:
            self.instance_lost(runner)

    # --- the end

    def lose_everything(self) -> None:
        """This incarnation was declared dead: what it holds belongs to others."""
        _log.warning("worker %s was declared dead (was the machine asleep?): starting over under a new name", self.id)
        for runner in [*self._runners.values(), *self._parked.values()]:
            self.drop(runner)
        self.rename()

    async def stop(self) -> None:
        """Let attempts finish within the limit, write what they did, and let the rest go."""
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
        """Let everything go at once."""
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
    """Something of an instance that nobody could decode: it must not be run with that."""
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
    """When the instance must have ended.

    Who accepted the event that started it need not have known its timeout, and a retry lifts one that has passed: then it
    has as much time again.
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
    """The transition that blocks or fails an instance; it belongs to no host any more."""

    def __init__(self, worker: Worker, transition: Transition, on_ended: OnEnded | None = None) -> None:
        self.instance_id = transition.instance_id
        self._worker = worker
        self._transition = transition
        self._on_ended = on_ended

    def take_transition(self) -> Transition:
        return self._transition

    def on_answer(self, answer: object) -> None:
        """Refused: somebody else has it, and will see for himself. Kept because something arrived: that waits as well."""
        transition = self._transition
        if isinstance(answer, Applied) and answer.owned:
            self._transition = transition._replace(inbox_seen=answer.inbox_version, notes=())
            self._worker.committer.enqueue(self)
            return
        self._worker.pending_writes.end([self.instance_id])
        if isinstance(answer, Applied) and transition.ending is not None and self._on_ended is not None:
            self._on_ended(transition.instance_id, transition.status, transition.ending)


def _ignore_due(due: int) -> None:
    """Nobody wants to know."""


def _do_nothing() -> None:
    """Nobody waits."""

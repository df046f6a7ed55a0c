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

from romancy.authoring.registry import Registry
from romancy.authoring.running import execution_of
from romancy.authoring.starting import starts_of
from romancy.authoring.workflow import Workflow
from romancy.clock import MICROS, Clock, SystemClock, monotonic
from romancy.codec import is_encoded, is_encoded_digest, not_decoded
from romancy.crash import CrashPoint, SimulatedCrash
from romancy.errors import DeterminismViolationError, PayloadError, StoreError, no_recipient
from romancy.ids import Ids
from romancy.model.history import Entry, Kind
from romancy.model.instance import Inbox, Loaded, Row
from romancy.model.operators import Jam
from romancy.model.policy import RetryPolicy
from romancy.model.status import Status
from romancy.model.talk import Deed, Publish, SendEvent, SendTo, SendToGroup
from romancy.model.transition import (
    Accept,
    Accepted,
    Answer,
    Applied,
    Beat,
    Create,
    Ending,
    Note,
    Post,
    Refused,
    Transition,
)
from romancy.serde.failure import describe_failure, encode_failure
from romancy.serde.talk import event_of_input
from romancy.store.committer import Committer
from romancy.store.port import Store
from romancy.threads import Threads
from romancy.worker import failures
from romancy.worker.alarms import Alarms
from romancy.worker.attempt import Attempt
from romancy.worker.host import Host, Identity
from romancy.worker.sessions import Sessions
from romancy.worker.slots import Slots
from romancy.worker.telling import Teller
from romancy.worker.unanswered import Unanswered, begun_by

if TYPE_CHECKING:
    from romancy.app import App

_log = logging.getLogger("romancy.worker")
OnEnded = Callable[[str, Status, Ending], None]
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_READINGS = 5
"""So often an instance is read until it counts as damaged."""
_JAMMED = 30 * MICROS
"""So long every slot is held before it is worth a word."""
_CODES_REMEMBERED = 8
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
    decodes: str = ""
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
        alarms: Alarms,
        app: App | None = None,
        on_ended: OnEnded | None = None,
        teller: Teller | None = None,
        crash_point: CrashPoint | None = None,
    ) -> None:
        self.store = store
        self.committer = committer
        self.tally = committer.tally
        self.registry = registry
        self.options = options
        self.clock = clock
        self.alarms = alarms
        self.elapsed, self.stopwatch = clock.now, alarms
        """For how long something takes: no matter what the date becomes meanwhile. A test's own clock tells both."""
        if isinstance(clock, SystemClock):
            self.elapsed, self.stopwatch = clock.elapsed, Alarms(clock.elapsed)
        self.app = app
        self.teller = teller
        """Tells the hooks what happens; None: there are none."""
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self.default_retry = options.default_retry
        self.slots = Slots(options.max_activities)
        self.sessions = Sessions(store)
        self.attempts: set[Attempt] = set()
        self.unanswered = Unanswered()
        """What is being written that may make instances ours."""
        self.claiming = Unanswered()
        """What is being claimed, and what was claimed and does not run yet."""
        self.stopping = False
        self.on_death: Callable[[], None] = self.lose_everything
        """What to do when this incarnation was declared dead."""
        self.on_committed: Callable[[Host], None] | None = None
        """Called after every commit of a host; tests check replay here."""
        self.on_room: Callable[[], None] = _do_nothing
        """Called when there is room for an instance again."""
        self.on_evicted: Callable[[int], None] = _ignore
        """Called with the time at which an instance is due that is no longer known here."""
        self.on_blocked: Callable[[str, str], None] | None = None
        """Called with an instance's id and the reason when the code does not fit it."""
        self.on_put_out: Callable[[], None] = _do_nothing
        """Called when something was put into the outbox, durably."""
        self.replays = 0
        """How many runs were replayed cold."""
        self.crash_point = crash_point
        """Where a test may let the process die."""
        self._ids = ids
        self._on_ended = on_ended
        self._hosts: dict[str, Host] = {}
        self._parked: OrderedDict[str, Host] = OrderedDict()
        self._queue: dict[str, Host] = {}
        """Parked instances that are due and for which there was no room."""
        self._loading: dict[str, object] = {}
        """Instances that are being read, each with a mark of its reading; without it the reading was overtaken."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._threads: Threads | None = None
        self._unreadable: Counter[str] = Counter()
        """How often an instance could not be read, as it seems."""
        self.enlisted_at = 0
        """When this incarnation began."""
        self.id = ""
        self.rename()

    def rename(self) -> None:
        """Become a new incarnation: nothing written under the old name counts any more."""
        self.id = f"{self.options.label or socket.gethostname()}/{self._ids.incarnation()}"

    @property
    def threads(self) -> Threads:
        """Where plain `def` activities run; made when the first one does."""
        if self._threads is None:
            self._threads = Threads(self.options.max_activities, "romancy-activity")
        return self._threads

    @property
    def room(self) -> int:
        """How many more instances may run here."""
        return 0 if self.stopping else max(self.options.max_workflows - len(self._hosts), 0)

    @property
    def running(self) -> int:
        """How many instances are in hand here."""
        return len(self._hosts)

    @property
    def warm(self) -> int:
        """How many waiting instances are kept in memory."""
        return len(self._parked)

    def jam(self) -> Jam | None:
        """Attempts wait for a slot, and none has begun for long."""
        waiting = self.slots.queued
        if not waiting or not self.attempts:
            return None
        since = max(attempt.started_at for attempt in self.attempts)
        if self.clock.now() - since < _JAMMED:
            return None
        return Jam(tuple(Counter(attempt.work.name for attempt in self.attempts).most_common()), waiting, since)

    @property
    def hides_payloads(self) -> bool:
        """Payloads go through a codec, which may encrypt them: no log may repeat what they say."""
        return bool(self.options.decodes)

    def has(self, instance_id: str) -> bool:
        """The instance runs here or is parked here: called, it goes on here."""
        return instance_id in self._hosts or instance_id in self._parked

    @property
    def in_hand(self) -> frozenset[str]:
        """The instances that run here."""
        return frozenset(self._hosts)

    def _host_of(self, instance_id: str) -> Host | None:
        return self._hosts.get(instance_id) or self._parked.get(instance_id)

    @property
    def queued(self) -> int:
        """How many of them are due and wait for room."""
        return len(self._queue)

    @property
    def still(self) -> bool:
        """Nothing is being read or written: only attempts, time or the outside can bring something about."""
        return not self._tasks and self.committer.idle

    def expects(self, instance_id: str, due: int) -> bool:
        """The instance runs here, or is parked here and its own alarm rings then: nobody need claim it.

        A parked one that is due at another time has been changed from outside (a cancellation by another process).
        """
        parked = self._parked.get(instance_id)
        return instance_id in self._hosts or (parked is not None and parked.next_due() == due)

    def parked(self, instance_id: str) -> bool:
        """The instance is parked here."""
        return instance_id in self._parked

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside; its failure is logged."""
        _ = self.spawned(work)

    def spawned(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """As `spawn`, for one that waits for its end."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._spawned_ended)
        return task

    def _spawned_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, SimulatedCrash):
            _log.error("a task of the worker failed", exc_info=error)

    # --- instances come

    def begin(self, create: Create, workflow: Workflow[..., Any]) -> None:
        """Run an instance that was just created here."""
        there = self._host_of(create.instance_id)
        if self.claiming.names(create.instance_id) or (there is not None and there.identity.created_at == create.now):
            return  # the answer took so long that the instance was taken away meanwhile, and came back by a claim
        if there is not None:
            # Two lives of one id: one was deleted before the other was created. The store says which of them there is.
            self.drop(there)
            self.spawn(self._take_up(create.instance_id))
            return
        self.tally.workflows[workflow.name].started += 1
        identity = Identity(create.instance_id, 1, 0, create.deadline_at, None, create.now)
        host = self._host(identity, workflow, create.input, epoch=1)
        self._hold(host)
        if self.teller is not None:
            self.teller.started(create, self.id)
        host.begin(create.now)

    async def resume(self, row: Row) -> None:
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
            self._cannot_read(row, error)
        self._unreadable.pop(row.instance_id, None)

    async def take_up(self, instance_id: str) -> bool:
        """Run an instance that is ours according to the store, if nobody runs it; whether that was so.

        What the store says counts if it was read while nothing was under way here that is about the instance: then nothing
        is left that could begin it, and it never would.
        """
        if self._is_in_good_hands(instance_id):
            return False
        loaded = await self._load(instance_id)
        if loaded is None or loaded.row.owner != self.id or self._is_in_good_hands(instance_id):
            return False
        if self._resume_warm(loaded.row):
            return True
        try:
            self._resume_cold(loaded)
        except StoreError:
            raise
        except Exception as error:
            self._cannot_read(loaded.row, error)
        self._unreadable.pop(instance_id, None)
        return True

    async def _take_up(self, instance_id: str) -> None:
        await self.take_up(instance_id)

    def _is_in_good_hands(self, instance_id: str) -> bool:
        there = instance_id in self._hosts or instance_id in self.unanswered or instance_id in self.claiming
        return there or self.stopping

    async def _load(self, instance_id: str) -> Loaded | None:
        """Read an instance; None: there is none, or it was begun here while it was read."""
        self._loading[instance_id] = mark = object()
        try:
            loaded = await self.store.load(instance_id)
            return loaded if self._loading.get(instance_id) is mark else None
        finally:
            if self._loading.get(instance_id) is mark:
                del self._loading[instance_id]

    def _hold(self, host: Host) -> None:
        """Have an instance in hand: the one place where a run comes into hand, and never beside another of its instance."""
        instance_id = host.instance_id
        there = self._hosts.get(instance_id) or self._parked.get(instance_id, host)
        if there is not host:
            raise RuntimeError(f"{instance_id} runs here already, under epoch {there.epoch}")
        self._parked.pop(instance_id, None)
        self._loading.pop(instance_id, None)
        self._hosts[instance_id] = host

    def _makes_way(self, row: Row) -> bool:
        """Nobody here runs the instance that was read, or nobody any more: what is of an older epoch is no longer ours."""
        there = self._host_of(row.instance_id)
        if there is None:
            return True
        if there.identity.created_at == row.created_at and there.epoch >= row.epoch:
            return False
        self.lost(there)
        return True

    def _resume_warm(self, row: Row) -> bool:
        """Let a parked run go on where it stands, if it stands where the row says. One that does not is dropped."""
        parked = self._parked.get(row.instance_id)
        if parked is not None and parked.fits(row):
            self._hold(parked)
            self.tally.warm_hits += 1
            parked.claimed(row.epoch)
            return True
        if parked is not None:
            del self._parked[row.instance_id]
            parked.discard()
        return False

    def _cannot_read(self, row: Row, error: Exception) -> None:
        """Written by newer code, or damaged: that must not keep the worker from the others."""
        self.forget(row.instance_id)
        self._unreadable[row.instance_id] += 1
        if self._unreadable[row.instance_id] < _READINGS:  # it may be this process that cannot, for a moment
            _log.exception("%r cannot be read, will try again", row.instance_id)
            raise StoreError(f"Instance {row.instance_id!r} cannot be read: {error!r}") from error
        self._write_blocked(row, f"it cannot be read: {error!r}")

    def _resume_cold(self, loaded: Loaded) -> None:
        row = loaded.row
        if not self._makes_way(row):
            return
        workflow = self.registry.find(row.workflow, row.version)
        if workflow is None:  # claimed by name a moment ago
            return
        if (encoded := first_encoded(loaded)) is not None:
            self._write_blocked(row, not_decoded("what is stored of it", encoded))
            return
        self.replays += 1
        fresh = row.epoch == 1 and not loaded.history
        if fresh:  # nobody has run it before: it was created by a client, or by somebody who had no room
            self.tally.workflows[workflow.name].started += 1
            if self.teller is not None:
                self.teller.claimed_first(loaded, self.id, self.clock.now())
        try:
            deadline_at = _deadline(loaded, workflow)
            identity = Identity(row.instance_id, row.generation, row.round, deadline_at, row.blocked_by, row.created_at)
            host = self._host(
                identity, workflow, loaded.input, loaded.history, length=row.length, epoch=row.epoch, seen=row.signal
            )
        except PayloadError as error:
            if event_of_input(loaded.input) is None and (row.code or loaded.history):
                self._write_blocked(row, f"its input no longer fits: {error}")
            else:
                self._write_failed(row, error)
            return
        self._hold(host)
        if not self._replay(host, loaded, fresh=fresh):
            return
        host.restore(loaded.attempts, loaded.waits, loaded.losses)
        host.take_mail(row.signal, loaded.inbox)
        host.wake()

    def _replay(self, host: Host, loaded: Loaded, *, fresh: bool) -> bool:
        """Bring a run to where its history ends; False if the code does not fit."""
        teller = None if fresh else self.teller
        if teller is not None:
            teller.replaying(host, loaded.history, self.clock.now())
        began, problem = monotonic(), None
        try:
            host.execution.replay(loaded.begun_at, loaded.history)
        except DeterminismViolationError as error:
            problem = str(error)
        took = monotonic() - began
        if not fresh:
            self.tally.replays.add(round(took * MICROS))
        if teller is not None:
            teller.replayed(host, loaded.history, self.clock.now(), took, problem)
        if problem is not None:
            self.block(host, problem)
        return problem is None

    def _host(
        self,
        identity: Identity,
        workflow: Workflow[..., Any],
        input: bytes,
        history: tuple[Entry, ...] = (),
        *,
        length: int = 0,
        epoch: int,
        seen: int = 0,
    ) -> Host:
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
        return Host(self, workflow, identity, execution, epoch=epoch, seen=seen)

    def nudge(self, instance_id: str) -> bool:
        """Something arrived for an instance: if it is here, let it look."""
        host = self._host_of(instance_id)
        if host is None:
            return False
        host.nudge()
        return True

    # --- instances talk

    def with_starts(self, deed: Deed) -> Deed:
        """What somebody said; if it is an event, with the brokers that get it and the instances that it starts here."""
        if not isinstance(deed, SendEvent):
            return deed
        if not deed.local:
            return replace(deed, brokers=self.options.brokers)
        owner = self.id if self.room else None
        now = self.clock.now()
        starts = starts_of(self.registry, deed.event, self._ids, now=now, owner=owner)
        return replace(deed, starts=starts, fresh_id=self._ids.instance_id(now), brokers=self.options.brokers)

    async def send(self, deed: Deed) -> None:
        """Say something by itself, in a commit of its own."""
        now, deed = self.clock.now(), self.with_starts(deed)
        if isinstance(deed, SendEvent):
            said = Accept((deed.event,), now, (deed.starts,), (deed.fresh_id,), deed.local, deed.brokers)
            written = self.committer.submit(said, partial(self._said, deed))
            self.unanswered.ask(begun_by(deed.starts))
            answer = await written
        else:
            assert isinstance(deed, Publish | SendTo | SendToGroup)
            answer = await self.committer.submit(Post(deed, now), partial(self._said, deed))
        if isinstance(answer, Refused):
            assert isinstance(deed, SendTo)
            raise no_recipient(deed.target, answer.status)

    def _said(self, deed: Deed, answer: Answer | StoreError) -> None:
        # By the answer, not after the await: an attempt that ends meanwhile must not leave what it started never begun.
        starts = deed.starts if isinstance(deed, SendEvent) else ()
        self.unanswered.answered(begun_by(starts))
        if isinstance(answer, Applied | Accepted):
            self.put_out([deed])
            self.spread(answer, starts)

    def put_out(self, deeds: Iterable[Deed]) -> None:
        """These were said, durably: what is for brokers lies in the outbox."""
        if self.options.brokers and any(isinstance(deed, SendEvent) for deed in deeds):
            self.on_put_out()

    async def check_recipient(self, instance_id: str) -> None:
        """Raise if nothing can be sent to an instance."""
        status = (await self.store.statuses([instance_id])).get(instance_id)
        if status is None or status.ended:
            raise no_recipient(instance_id, status)

    def spread(self, answer: Applied | Accepted, starts: Sequence[Create]) -> None:
        """Let those go on here who were called, or start, by a commit."""
        if answer.started:
            self._begin_started(starts, answer.started)
            self.on_evicted(self.clock.now())  # what others must run, or what there was no room for
        if answer.woken:
            self.call(answer.woken)

    def call(self, ids: Iterable[str]) -> None:
        """Something has arrived for instances: let those look that are here, and look for the others."""
        here = [self._host_of(instance_id) for instance_id in ids]
        for host in here:
            if host is not None:
                host.call()
        if None in here:
            self.on_evicted(self.clock.now())

    def _begin_started(self, creates: Iterable[Create], started: Collection[str]) -> None:
        for create in creates:
            workflow = self.registry.find(create.workflow, create.version)
            if create.ending is not None and create.instance_id in started:
                figures = self.tally.workflows[create.workflow]
                figures.started += 1
                figures.end(Status.FAILED, 0)
                if self.teller is not None:
                    self.teller.started(create, self.id)
            if create.instance_id not in started or create.ending is not None or workflow is None:
                continue
            if create.owner == self.id and not self.stopping:
                self.begin(create, workflow)

    def turn_over(self, host: Host, input: bytes, at: int, *, unread: bool) -> None:
        """A generation is over, durably: the next one begins in its place."""
        self.tally.workflows[host.workflow.name].recurred += 1
        identity = host.identity._replace(generation=host.identity.generation + 1)
        host.discard()
        try:
            following = self._host(identity, host.workflow, input, epoch=host.epoch, seen=host.seen)
        except PayloadError as error:
            row = replace(host.as_row(), generation=identity.generation, length=0)
            self.drop(host)
            self._write_blocked(row, f"its input does not fit: {error}")
            return
        self._hosts.pop(host.instance_id, None)
        self._hold(following)
        if unread:  # first what arrived: a workflow that does nothing but recur must be stoppable
            self.spawn(self._begin_after_mail(following, at))
        else:
            following.begin(at)

    async def _begin_after_mail(self, host: Host, at: int) -> None:
        inbox = await self.read_inbox(host)
        if inbox is not None:
            host.begin(at, inbox)

    async def read_inbox(self, host: Host) -> Inbox | None:
        """What has arrived for an instance, as soon as the database can be read; None if it is not ours any more."""
        pause = _FIRST_PAUSE
        while not host.gone:
            try:
                inbox = await self.store.inbox(host.instance_id)
            except StoreError as error:
                _log.warning("could not read the inbox of %r, will try again: %s", host.instance_id, error)
            except Exception:  # it would not hear of what has arrived
                _log.exception("reading the inbox of %r failed, will try again", host.instance_id)
            else:
                if (mail := next((one for one in inbox.mails if is_encoded(one.body)), None)) is not None and not host.gone:
                    self.block(host, not_decoded(f"the result of {mail.op}", mail.body or b""))
                return None if host.gone else inbox
            self.tally.errors["inbox"] += 1
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        return None

    # --- instances wait and go

    def admits(self, host: Host) -> bool:
        """There is room for a parked instance that is due; otherwise it is called when there is."""
        if self.room or host.gone:
            return True
        self._queue[host.instance_id] = host
        return False

    def _left(self) -> None:
        """An instance has left. If there was no room before, others may wait for it: parked here, or known to nobody."""
        if self._queue:
            self.loop.call_soon(self._call_next)
        elif len(self._hosts) == self.options.max_workflows - 1:
            self.on_room()

    def _call_next(self) -> None:
        """Let instances go on for which there was no room."""
        while self._queue and self.room:
            host = self._queue.pop(next(iter(self._queue)))
            if not host.owned:
                host.wake()

    def park(self, host: Host) -> None:
        """A host that owns nothing any more stays warm for a while."""
        self._hosts.pop(host.instance_id, None)
        self._parked[host.instance_id] = host
        self._parked.move_to_end(host.instance_id)
        while len(self._parked) > self.options.cache_size:
            _, oldest = self._parked.popitem(last=False)
            due = self.clock.now() if oldest.called else oldest.next_due()
            oldest.discard()
            if due is not None:
                self.on_evicted(due)
        self._left()

    def unpark(self, host: Host) -> None:
        """A parked host goes on: it counts as running from now on."""
        if self._parked.get(host.instance_id) is host:
            self.tally.warm_hits += 1
            self._hold(host)

    def ended(self, host: Host, status: Status, ending: Ending) -> None:
        """An instance has ended, durably."""
        self.tally.workflows[host.workflow.name].end(status, self.clock.now() - host.identity.created_at)
        if status is Status.FAILED:
            failures.instance_failed(host.instance_id, host.workflow.label, ending.error, hidden=self.hides_payloads)
        self.drop(host)
        if self._on_ended is not None:
            self._on_ended(host.instance_id, status, ending)

    def drop(self, host: Host) -> None:
        """Forget a host."""
        instance_id = host.instance_id
        if self._hosts.get(instance_id) is host:
            del self._hosts[instance_id]
        elif self._parked.get(instance_id) is host:
            del self._parked[instance_id]
        host.discard()
        self._left()

    def forget(self, instance_id: str) -> None:
        """Forget an instance that somebody outside has ended."""
        host = self._host_of(instance_id)
        if host is not None:
            self.drop(host)

    def lost(self, host: Host) -> None:
        """A write was refused: the instance belongs to somebody else, or has been ended."""
        _log.info("%r is no longer ours: its epoch was not %d", host.instance_id, host.epoch)
        self.drop(host)
        self.on_evicted(self.clock.now())

    def block(self, host: Host, reason: str) -> None:
        """The code does not fit the instance: set it aside until other code comes."""
        row = host.as_row()
        self.drop(host)
        self._write_blocked(row, reason)

    def _write_blocked(self, row: Row, reason: str) -> None:
        _log.error("%r is blocked: %s", row.instance_id, reason)
        self.tally.workflows[row.workflow].blocked += 1
        if self.on_blocked is not None:
            self.on_blocked(row.instance_id, reason)
        workflow = self.registry.find(row.workflow, row.version)
        code = self.registry.code(workflow) if workflow is not None else ""
        transition = self._last_word(row, Status.BLOCKED)._replace(
            notes=(Note("blocked", reason),),
            blocked_by=",".join([*(row.blocked_by or "").split(","), self.sign(code)][-_CODES_REMEMBERED:]),
        )
        self._say_last(_LastWord(self, transition))

    def _say_last(self, word: _LastWord) -> None:
        self.unanswered.ask([word.instance_id])  # until it is written, the store says that the instance is ours
        self.committer.enlist(word)

    def sign(self, code: str) -> str:
        """How code is called in what it blocks: with other keys it may fit."""
        return f"{code}/{self.options.decodes}" if self.options.decodes else code

    def _write_failed(self, row: Row, error: PayloadError) -> None:
        """What it was started with by somebody without its code does not fit its workflow: it fails before it begins."""
        raw = encode_failure(error)
        ending = Ending(error=raw, fingerprint=describe_failure(raw).fingerprint)
        transition = self._last_word(row, Status.FAILED)._replace(ending=ending)
        self._say_last(_LastWord(self, transition, partial(self._failed_at_once, row)))

    def _failed_at_once(self, row: Row, instance_id: str, status: Status, ending: Ending) -> None:
        self.tally.workflows[row.workflow].end(status, self.clock.now() - row.created_at)
        failures.instance_failed(instance_id, row.workflow, ending.error, hidden=self.hides_payloads)
        if self.teller is not None:
            self.teller.failed_at_once(row, ending, self.id, self.clock.now())
        if self._on_ended is not None:
            self._on_ended(instance_id, status, ending)

    def _last_word(self, row: Row, status: Status) -> Transition:
        now = self.clock.now()
        return Transition(
            row.instance_id,
            row.generation,
            self.id,
            row.epoch,
            row.epoch,
            status,
            now,
            hold=False,
            seen=row.signal,
            bound=True,
        )

    def note(self, host: Host, write: Beat) -> None:
        """Write an open attempt's row; if that is refused, the instance is not ours."""
        with contextlib.suppress(StoreError):  # submitted now: the end of the attempt must be written after it
            self.spawn(self._note(host, write, self.committer.submit(write)))

    async def announce(self, host: Host, write: Beat) -> None:
        """Write an open attempt's row, and wait until it is durable."""
        with contextlib.suppress(StoreError):
            await self._note(host, write, self.committer.submit(write))

    async def _note(self, host: Host, write: Beat, written: asyncio.Future[Answer]) -> None:
        try:
            answer = await written
        except StoreError:
            return  # a beat that was not written is no harm: the next one is
        if isinstance(answer, Refused) and not host.gone and host.epoch == write.epoch:
            self.lost(host)

    # --- the end

    def lose_everything(self) -> None:
        """This incarnation was declared dead: what it holds belongs to others."""
        _log.warning("worker %s was declared dead (was the machine asleep?): starting over under a new name", self.id)
        for host in [*self._hosts.values(), *self._parked.values()]:
            self.drop(host)
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
                await self.committer.drained()
        await self.abandon()

    async def abandon(self) -> None:
        """Let everything go at once."""
        self.stopping = True
        tasks = [attempt.task for attempt in self.attempts] + list(self._tasks)
        for host in [*self._hosts.values(), *self._parked.values()]:
            self.drop(host)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1)
        self.alarms.close()
        self.stopwatch.close()
        await self.sessions.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def first_encoded(loaded: Loaded) -> bytes | None:
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
    return next((raw for raw in (*rest, *(mail.body for mail in loaded.inbox)) if is_encoded(raw)), None)


def _deadline(loaded: Loaded, workflow: Workflow[..., Any]) -> int | None:
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


class _LastWord:
    """The transition that blocks or fails an instance; it belongs to no host any more."""

    def __init__(self, worker: Worker, transition: Transition, on_ended: OnEnded | None = None) -> None:
        self.instance_id = transition.instance_id
        self._worker = worker
        self._transition = transition
        self._on_ended = on_ended

    def take(self) -> Transition:
        return self._transition

    def answered(self, answer: object) -> None:
        """Refused: somebody else has it, and will see for himself. Kept because something arrived: that waits as well."""
        transition = self._transition
        if isinstance(answer, Applied) and answer.held:
            self._transition = transition._replace(seen=answer.signal, notes=())
            self._worker.committer.enlist(self)
            return
        self._worker.unanswered.answered([self.instance_id])
        if isinstance(answer, Applied) and transition.ending is not None and self._on_ended is not None:
            self._on_ended(transition.instance_id, transition.status, transition.ending)


def _ignore(due: int) -> None:
    """Nobody wants to know."""


def _do_nothing() -> None:
    """Nobody waits."""

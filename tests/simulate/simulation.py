"""State of one simulation: processes on one database, a broker, and the facts that the checks need.

Everything that happens is recorded in a trace: the same seed produces the same trace, line by line.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import re
import threading
from collections.abc import Sequence
from typing import Any

from tests.explore.participants import Spec
from tests.model.messaging import InstanceState, MessagingModel
from tests.simulate.database_monitor import DatabaseMonitor
from tests.simulate.fault_plan import FaultPlan
from tests.simulate.loop import LivelockError, SimulatedLoop, lane
from tests.simulate.simulated_process import Process, SeededIds

from romancy import ActivityContext, BrokerError
from romancy.clock import MICROS
from romancy.errors import StoreError
from romancy.model.history import Kind, Outcome
from romancy.model.messaging import Effect, Event, SendEvent
from romancy.model.status import Status
from romancy.model.transition import Accepted, AcceptEvents, Applied, CreateInstance, Transition, Write, WriteResult

_BEGINNING = 1_893_456_000 * MICROS
_MAX_READS = 100_000
_PROCESS_DEPENDENT = re.compile(r"\bpid=\d+|\bcode='\w*'")
"""Texts that may differ between processes; bytecode differs because pytest rewrites modules."""
_POLLING_CALLS = frozenset(
    {"with_unread_inbox", "upcoming", "next_outbox_due", "workers", "kinds_waiting", "owned", "count_outbox", "emit_staged"}
)
"""Calls that processes repeat all the time; recorded only if they return something."""


class Failed(AssertionError):
    """The simulation cannot continue after a violation."""


class Clock:
    """The clock of all processes. It can jump."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._read = (0.0, 0)
        self.ahead = 0

    def now(self) -> int:
        """Microseconds since 1970, UTC."""
        now = self._loop.time()
        self._read = (now, self._read[1] + 1 if self._read[0] == now else 0)
        if self._read[1] > _MAX_READS:
            raise LivelockError(f"the clock was read {_MAX_READS} times while no time passed")
        return _BEGINNING + round(now * MICROS) + self.ahead


class SimulationModel(MessagingModel):
    """The reference model of messaging, with instances started by events and with events for the broker."""

    def __init__(self) -> None:
        super().__init__()
        self.for_broker: dict[str, None] = {}
        """The events that the broker must receive, by id."""

    def _apply(self, write: Write, answer: Applied | Accepted) -> None:
        for id in answer.started:
            self.instances[id] = InstanceState(events_before=len(self._events))
        if isinstance(write, Transition):
            for effect in write.effects:
                self._put_out(effect)
        elif isinstance(write, AcceptEvents) and write.brokers:
            self.for_broker.update(dict.fromkeys(event.id for event in write.events))
        super()._apply(write, answer)

    def _put_out(self, effect: Effect) -> None:
        if isinstance(effect, SendEvent) and effect.brokers:
            self.for_broker[effect.event.id] = None


class Simulation:
    """The simulation of one seed."""

    def __init__(self, seed: int, loop: SimulatedLoop, path: str, fault_plan: FaultPlan) -> None:
        self.seed = seed
        self.loop = loop
        self.path = path
        self.fault_plan = fault_plan
        self.rng = random.Random(f"{seed} simulation")
        self.clock = Clock(loop)
        self.ids = SeededIds(random.Random(f"{seed} ids"))
        self.lanes = self.rng.choice([1, 1, 2, 3])
        self.model = SimulationModel()
        self.monitor = DatabaseMonitor(path, self.fault)
        self.processes: list[Process] = []
        """All processes, also those that have ended."""
        self.acknowledged: list[str] = []
        """Ids of acknowledged events and messages."""
        self.started: dict[str, None] = {}
        """Instances whose start was acknowledged."""
        self.received: list[str] = []
        """Events that the broker received."""
        self.trace: list[str] = []
        self.acknowledged_ends: dict[str, frozenset[Status]] = {}
        """Instances whose cancellation or termination was acknowledged, with the statuses that are then allowed."""
        self._keys: dict[str, tuple[str, str]] = {}
        self._operations: dict[tuple[str, str], str] = {}
        self._finished: set[tuple[str, str, int]] = set()
        self._digest = hashlib.blake2b(digest_size=16)

    # --- trace

    def note(self, source: str, what: str, more: str = "") -> None:
        """Append a line to the trace; `more` is hashed but not shown."""
        line = f"{self.loop.time():10.4f} {source:10} {what}".replace(self.path, "FILE")
        self.trace.append(line)
        self._digest.update(f"{line} {_PROCESS_DEPENDENT.sub('', more).replace(self.path, 'FILE')}\n".encode())

    @property
    def digest(self) -> str:
        """Hash of the trace so far."""
        return self._digest.copy().hexdigest()

    def fault(self, what: str) -> None:
        """Record a violation."""
        self.note("", f"FAULT: {what}")
        self.model.fault(what)

    @property
    def up(self) -> list[Process]:
        """The processes that accept calls."""
        return [process for process in self.processes if process.up]

    # --- what processes do

    def on_store_call(self, process: Process, verb: str, args: Sequence[Any], kwargs: dict[str, Any], answer: Any) -> None:
        """Check a call of the store that took effect, whether or not the process receives the answer."""
        if verb in _POLLING_CALLS:
            if answer:
                self.note(process.name, verb, repr(answer))
            return
        self.note(process.name, _describe(verb, args), "" if verb == "save_source" else f"{args} {kwargs} {answer}")
        known = len(self.model.faults)
        if verb == "commit":
            self.monitor.check_batch(args[0], answer)
            self.model.apply(args[0], answer)
            self._check_answers(args[0], answer)
        elif verb in ("claim", "release", "sweep", "mark_unrunnable"):
            self.monitor.check_rows()
        for fault in self.model.faults[known:]:
            self.note("", f"FAULT: {fault}")

    def _check_answers(self, batch: Sequence[Write], answers: Sequence[WriteResult | StoreError]) -> None:
        for write, answer in zip(batch, answers, strict=True):
            if isinstance(answer, StoreError):
                self.fault(f"{type(write).__name__} failed: {answer}")

    def notify_others(self, process: Process) -> None:
        """Notify the other processes of a commit; notifications may be lost or doubled."""
        fault_plan = self.fault_plan
        for other in self.processes:
            if other is process or other.lane.dead or other.notified or not other.proxies:
                continue
            if fault_plan.happens(fault_plan.loses_notifications):
                continue
            other.notified = True
            for _ in range(2 if fault_plan.happens(fault_plan.doubles_notifications) else 1):
                self.loop.call_later(self.rng.uniform(0, 0.05), self._notify, other, context=other.lane.context())

    def _notify(self, process: Process) -> None:
        process.notified = False
        process.proxies[-1].notify()

    # --- what activities do

    async def record_attempt(self, ctx: ActivityContext, step: Spec, *, compensates: bool = False) -> None:
        """Check and record the beginning of an attempt; return once its effect is recorded."""
        self._check_begin(ctx, step, compensates)
        await asyncio.sleep(self.fault_plan.rng.choice([0.0, 0.0, 0.01, 0.2, 1.0, 3.0]))
        self._finished.add((ctx.instance_id, ctx.activity_id, ctx.attempt))

    def record_attempt_in_thread(self, ctx: ActivityContext, step: Spec) -> None:
        """The same for a synchronous activity."""
        self._check_begin(ctx, step, compensates=False)
        self._finished.add((ctx.instance_id, ctx.activity_id, ctx.attempt))

    def _check_begin(self, ctx: ActivityContext, step: Spec, compensates: bool) -> None:
        id, op = ctx.instance_id, ctx.activity_id
        self.note(lane().name, f"begins {op} of {id}, attempt {ctx.attempt}")
        key = (id, op)
        if self._keys.setdefault(ctx.idempotency_key, key) != key:
            self.fault(f"{key} and {self._keys[ctx.idempotency_key]} share an idempotency key")
        if self._operations.setdefault(key, ctx.idempotency_key) != ctx.idempotency_key:
            self.fault(f"{key} has two idempotency keys: {ctx.idempotency_key} and {self._operations[key]}")
        row = self.monitor.rows[id]
        if row.owner != ctx.worker_id:
            return  # a worker that was declared dead and does not know it yet: its attempt follows from older rows
        history = self.monitor.history(id, row.generation)
        if any(entry.op == op for entry in history):
            self.fault(f"{op} of {id} begins although its end is recorded")
        failed = self.monitor.failed(id, row.generation)
        if (op, ctx.attempt) in failed:
            self.fault(f"attempt {ctx.attempt} of {op} of {id} begins although its failure is recorded")
        if ctx.attempt > 1 and (op, ctx.attempt - 1) not in failed:
            self.fault(
                f"attempt {ctx.attempt} of {op} of {id} begins although the failure of the attempt before it is not recorded"
            )
        ended = sum(entry.kind == Kind.ACTIVITY for entry in history)
        if not compensates and ended < step["before"]:
            self.fault(
                f"{op} of {id} begins although only {ended} of the {step['before']} activities before it are recorded"
            )

    def check_recorded_effects(self, id: str, generation: int) -> None:
        """An activity that is recorded as completed did run to its end."""
        for entry in self.monitor.history(id, generation):
            done = entry.kind in (Kind.ACTIVITY, Kind.COMPENSATION) and entry.outcome == Outcome.OK
            if done and (id, entry.op, entry.attempt) not in self._finished:
                self.fault(f"{entry.op} of {id} is recorded as completed, but did not run to its end")

    # --- acknowledgements

    def acknowledge_event(self, source: str, id: str) -> None:
        """A client was told that an event is stored."""
        self.acknowledged.append(id)
        if not self.monitor.has_event(source, id):
            self.fault(f"event {id} was acknowledged before it was stored")

    def acknowledge_message(self, id: str) -> None:
        """A client was told that a message is stored."""
        self.acknowledged.append(id)
        if id not in self.model.sent:
            self.fault(f"message {id} was acknowledged before it was stored")

    def acknowledge_start(self, id: str) -> None:
        """A client was told that an instance has started."""
        self.started[id] = None
        if id not in self.monitor.rows:
            self.fault(f"{id} was acknowledged before it was stored")

    def acknowledge_end(self, id: str, *allowed: Status) -> None:
        """A client was told that an instance has ended or will end."""
        self.acknowledged_ends[id] = self.acknowledged_ends.get(id, frozenset()) | frozenset(allowed)


class SimulatedBroker:
    """A broker that fails at random."""

    name = "simulated"

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    async def start(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to do."""

    async def send(self, event: Event) -> None:
        """Receive an event, refuse it, or receive it and report an error."""
        simulation, fault_plan = self._simulation, self._simulation.fault_plan
        await asyncio.sleep(fault_plan.delay())
        if fault_plan.happens(fault_plan.broker_fails):
            raise BrokerError("not now")
        simulation.note("broker", f"receives {event.id}")
        if event.id not in simulation.model.for_broker:
            simulation.fault(f"the broker received {event.id}, which was never committed")
        simulation.received.append(event.id)
        if fault_plan.happens(fault_plan.broker_fails):
            raise BrokerError("the connection broke")
        if fault_plan.happens(fault_plan.broker_fails / 4):
            await asyncio.sleep(30)


class ErrorLogHandler(logging.Handler):
    """Turns every error that the engine logs into a fault of the simulation."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(logging.ERROR)
        self._simulation = simulation
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        """Record a logged error."""
        if record.thread != self._thread:
            return  # logged by an app of another test
        text = record.getMessage()
        if record.exc_info is not None and record.exc_info[1] is not None:
            text += f": {record.exc_info[1]!r}"
        self._simulation.fault(f"logged by {lane().name}: {text}")


def _describe(verb: str, args: Sequence[Any]) -> str:
    if verb != "commit":
        return verb
    return f"commit {', '.join(_summary(write) for write in args[0])}"


def _summary(write: Write) -> str:
    match write:
        case Transition():
            return f"{write.instance_id}@{write.epoch}>{write.new_epoch} {write.status}"
        case CreateInstance():
            return f"new {write.instance_id}"
        case AcceptEvents():
            return f"event {' '.join(event.id for event in write.events)}"
        case _:
            return type(write).__name__

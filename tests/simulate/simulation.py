"""The world of one seed: several processes on one database, everybody outside them, and what is known to be true.

Everything that happens is noted in a trace: the same seed gives the same trace, line by line.
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
from tests.model.messaging import Books, Party
from tests.simulate.database_monitor import Watch
from tests.simulate.fault_plan import Weather
from tests.simulate.loop import Restless, SimulatedLoop, lane
from tests.simulate.simulated_process import Process, SeededIds

from romancy import ActivityContext, BrokerError
from romancy.clock import MICROS
from romancy.errors import StoreError
from romancy.model.history import Kind, Outcome
from romancy.model.messaging import Effect, Event, SendEvent
from romancy.model.status import Status
from romancy.model.transition import Accepted, AcceptEvents, Applied, CreateInstance, Transition, Write, WriteResult

_BEGINNING = 1_893_456_000 * MICROS
_RESTLESS = 100_000
_ELSEWHERE = re.compile(r"\bpid=\d+|\bcode='\w*'")
"""What may differ from process to process; code is compiled in another way where pytest imports it."""
_ASKED_ALL_THE_TIME = frozenset(
    {"with_unread_inbox", "upcoming", "next_outbox_due", "workers", "kinds_waiting", "owned", "count_outbox", "emit_staged"}
)
"""What is asked all the time; noted by its answer alone."""


class Failed(AssertionError):
    """The engine did what it must not."""


class Clock:
    """Everybody's clock. It can jump."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._read = (0.0, 0)
        self.ahead = 0

    def now(self) -> int:
        """Microseconds since 1970, UTC."""
        now = self._loop.time()
        self._read = (now, self._read[1] + 1 if self._read[0] == now else 0)
        if self._read[1] > _RESTLESS:
            raise Restless(f"the clock was read {_RESTLESS} times, and no time has passed")
        return _BEGINNING + round(now * MICROS) + self.ahead


class Ledger(Books):
    """The books, with instances that events start, and with what is for the broker."""

    def __init__(self) -> None:
        super().__init__()
        self.for_broker: dict[str, None] = {}
        """Events that the broker must get."""

    def _enter(self, write: Write, answer: Applied | Accepted) -> None:
        for id in answer.started:
            self.parties[id] = Party(born=len(self._events))
        if isinstance(write, Transition):
            for effect in write.effects:
                self._put_out(effect)
        elif isinstance(write, AcceptEvents) and write.brokers:
            self.for_broker.update(dict.fromkeys(event.id for event in write.events))
        super()._enter(write, answer)

    def _put_out(self, effect: Effect) -> None:
        if isinstance(effect, SendEvent) and effect.brokers:
            self.for_broker[effect.event.id] = None


class World:
    """Everything there is."""

    def __init__(self, seed: int, loop: SimulatedLoop, path: str, weather: Weather) -> None:
        self.seed = seed
        self.loop = loop
        self.path = path
        self.weather = weather
        self.chance = random.Random(f"{seed} world")
        self.clock = Clock(loop)
        self.ids = SeededIds(random.Random(f"{seed} ids"))
        self.lanes = self.chance.choice([1, 1, 2, 3])
        self.ledger = Ledger()
        self.watch = Watch(path, self.fault)
        self.processes: list[Process] = []
        """All that ever were."""
        self.acknowledged: list[str] = []
        """Events and messages that were acknowledged, by id."""
        self.started: dict[str, None] = {}
        """Instances whose start was acknowledged."""
        self.received: list[str] = []
        """What the broker has got."""
        self.trace: list[str] = []
        self.ended_by_order: dict[str, frozenset[Status]] = {}
        """Instances whose end somebody was promised, and what they may be then."""
        self._keys: dict[str, tuple[str, str]] = {}
        self._operations: dict[tuple[str, str], str] = {}
        self._finished: set[tuple[str, str, int]] = set()
        self._digest = hashlib.blake2b(digest_size=16)

    # --- what happens

    def note(self, who: str, what: str, more: str = "") -> None:
        """Something happens."""
        line = f"{self.loop.time():10.4f} {who:10} {what}".replace(self.path, "FILE")
        self.trace.append(line)
        self._digest.update(f"{line} {_ELSEWHERE.sub('', more).replace(self.path, 'FILE')}\n".encode())

    @property
    def digest(self) -> str:
        """A text that stands for everything that has happened."""
        return self._digest.copy().hexdigest()

    def fault(self, what: str) -> None:
        """Something is wrong."""
        self.note("", f"WRONG: {what}")
        self.ledger.fault(what)

    @property
    def up(self) -> list[Process]:
        """The processes that take calls."""
        return [process for process in self.processes if process.up]

    # --- what processes do

    def done(self, process: Process, verb: str, args: Sequence[Any], kwargs: dict[str, Any], answer: Any) -> None:
        """A call of the store is done, whether or not the process ever learns it."""
        if verb in _ASKED_ALL_THE_TIME:
            if answer:
                self.note(process.name, verb, repr(answer))
            return
        self.note(process.name, _words(verb, args), "" if verb == "save_source" else f"{args} {kwargs} {answer}")
        known = len(self.ledger.faults)
        if verb == "commit":
            self.watch.committed(args[0], answer)
            self.ledger.enter(args[0], answer)
            self._check_answers(args[0], answer)
        elif verb in ("claim", "release", "sweep", "mark_unrunnable"):
            self.watch.look()
        for fault in self.ledger.faults[known:]:
            self.note("", f"WRONG: {fault}")

    def _check_answers(self, batch: Sequence[Write], answers: Sequence[WriteResult | StoreError]) -> None:
        for write, answer in zip(batch, answers, strict=True):
            if isinstance(answer, StoreError):
                self.fault(f"{type(write).__name__} was refused: {answer}")

    def tell_others(self, process: Process) -> None:
        """A process has written: the others learn it, or not, or twice."""
        weather = self.weather
        for other in self.processes:
            if other is process or other.lane.dead or other.told or not other.seams:
                continue
            if weather.happens(weather.loses):
                continue
            other.told = True
            for _ in range(2 if weather.happens(weather.doubles) else 1):
                self.loop.call_later(self.chance.uniform(0, 0.05), self._tell, other, context=other.lane.context())

    def _tell(self, process: Process) -> None:
        process.told = False
        process.seams[-1].tell()

    # --- what activities do

    async def act(self, ctx: ActivityContext, step: Spec, *, undoes: bool = False) -> None:
        """An attempt begins; returns when it has had its effect."""
        self._began(ctx, step, undoes)
        await asyncio.sleep(self.weather.chance.choice([0.0, 0.0, 0.01, 0.2, 1.0, 3.0]))
        self._finished.add((ctx.instance_id, ctx.activity_id, ctx.attempt))

    def act_at_once(self, ctx: ActivityContext, step: Spec) -> None:
        """The same in a thread."""
        self._began(ctx, step, undoes=False)
        self._finished.add((ctx.instance_id, ctx.activity_id, ctx.attempt))

    def _began(self, ctx: ActivityContext, step: Spec, undoes: bool) -> None:
        id, op = ctx.instance_id, ctx.activity_id
        self.note(lane().name, f"begins {op} of {id}, attempt {ctx.attempt}")
        key = (id, op)
        if self._keys.setdefault(ctx.idempotency_key, key) != key:
            self.fault(f"{key} and {self._keys[ctx.idempotency_key]} have one idempotency key")
        if self._operations.setdefault(key, ctx.idempotency_key) != ctx.idempotency_key:
            self.fault(f"{key} has two idempotency keys: {ctx.idempotency_key} and {self._operations[key]}")
        row = self.watch.rows[id]
        if row.owner != ctx.worker_id:
            return  # it was held for dead and does not know it: what it does follows from what was durable then
        history = self.watch.history(id, row.generation)
        if any(entry.op == op for entry in history):
            self.fault(f"{op} of {id} begins although its end is recorded")
        failed = self.watch.failed(id, row.generation)
        if (op, ctx.attempt) in failed:
            self.fault(f"attempt {ctx.attempt} of {op} of {id} begins although it is recorded that it failed")
        if ctx.attempt > 1 and (op, ctx.attempt - 1) not in failed:
            self.fault(f"attempt {ctx.attempt} of {op} of {id} begins although the one before is not recorded")
        ended = sum(entry.kind == Kind.ACTIVITY for entry in history)
        if not undoes and ended < step["before"]:
            self.fault(f"{op} of {id} begins although only {ended} of {step['before']} before it are recorded")

    def check_recorded(self, id: str, generation: int) -> None:
        """What is recorded as done was done."""
        for entry in self.watch.history(id, generation):
            done = entry.kind in (Kind.ACTIVITY, Kind.COMPENSATION) and entry.outcome == Outcome.OK
            if done and (id, entry.op, entry.attempt) not in self._finished:
                self.fault(f"{entry.op} of {id} is recorded as done, and was not")

    # --- promises

    def promise_event(self, source: str, id: str) -> None:
        """Somebody was told that an event is stored."""
        self.acknowledged.append(id)
        if not self.watch.has_event(source, id):
            self.fault(f"event {id} was acknowledged before it was stored")

    def promise_message(self, id: str) -> None:
        """Somebody was told that a message is stored."""
        self.acknowledged.append(id)
        if id not in self.ledger.sent:
            self.fault(f"message {id} was acknowledged before it was stored")

    def promise_start(self, id: str) -> None:
        """Somebody was told that an instance has started."""
        self.started[id] = None
        if id not in self.watch.rows:
            self.fault(f"{id} was acknowledged before it was stored")

    def promise_end(self, id: str, *may_be: Status) -> None:
        """Somebody was told that an instance will end, or has."""
        self.ended_by_order[id] = self.ended_by_order.get(id, frozenset()) | frozenset(may_be)


class SimulatedBroker:
    """Takes events, mostly."""

    name = "simulated"

    def __init__(self, world: World) -> None:
        self._world = world

    async def start(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to do."""

    async def send(self, event: Event) -> None:
        """Take an event; or not; or say that it was not taken."""
        world, weather = self._world, self._world.weather
        await asyncio.sleep(weather.delay())
        if weather.happens(weather.refuses):
            raise BrokerError("not now")
        world.note("broker", f"gets {event.id}")
        if event.id not in world.ledger.for_broker:
            world.fault(f"the broker got {event.id}, which was never committed")
        world.received.append(event.id)
        if weather.happens(weather.refuses):
            raise BrokerError("the line broke")
        if weather.happens(weather.refuses / 4):
            await asyncio.sleep(30)


class Complaints(logging.Handler):
    """What the engine itself calls an error is one."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        """An error was logged."""
        if record.thread != self._thread:
            return  # of an app of another test
        text = record.getMessage()
        if record.exc_info is not None and record.exc_info[1] is not None:
            text += f": {record.exc_info[1]!r}"
        self._world.fault(f"logged by {lane().name}: {text}")


def _words(verb: str, args: Sequence[Any]) -> str:
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

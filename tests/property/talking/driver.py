"""Plays a cast in one order after another, and tells what is wrong.

A round ends when nobody can go on, after everything that was not told was found by looking and every alarm has rung. Then
whatever was said must have been heard by those it was for, once, in order, and nobody may wait for what is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from unittest import mock

from tests.property.talking.actors import Cast, Outsider, Spec, addressed, hands, listen, seen, speak
from tests.property.talking.books import Books
from tests.property.talking.hand import Gate, Hand, Process, settle

from romancy import app as app_module
from romancy import InvalidWorkflowStateError, StoreError, WorkflowNotFoundError
from romancy.clock import MICROS, SystemClock
from romancy.errors import DeterminismViolationError, WorkflowNotCancellableError
from romancy.model.instance import Loaded
from romancy.model.status import Status
from romancy.model.transition import Accepted, Answer, Applied, Write
from romancy.store import committer
from romancy.store.open import open_store
from romancy.store.port import Store
from romancy.store.sqlite import store as sqlite_store
from romancy.testing import RecordedHistory, replay_history
from romancy.testing.environment import VirtualClock

_MEMORY = Path("/dev/shm")  # simulated crashes lose nothing the kernel has, so the disk is not needed
_LONG = 400
"""So many decisions, or looks, without coming to rest are too many."""
_UNREACHABLE = (StoreError, InvalidWorkflowStateError, WorkflowNotFoundError)


class Divergence(AssertionError):
    """The engine did what it must not."""


class Option(NamedTuple):
    """Something that can happen next."""

    name: str
    do: Callable[[], Coroutine[Any, Any, None]]
    weight: float = 1.0


class Chooser(Protocol):
    """Who decides what happens next."""

    disturbs: bool
    """Time passes, processes look unasked and are held for dead, instances are paused and ended."""
    crashes: int
    """How often a process may die."""

    def choose(self, options: Sequence[Option]) -> int:
        """Which of them."""
        ...


class Chance:
    """Decides by chance."""

    def __init__(self, seed: int, *, crashes: int = 0, disturbs: bool = True) -> None:
        self._random = random.Random(seed)
        self.crashes = crashes
        self.disturbs = disturbs

    def choose(self, options: Sequence[Option]) -> int:
        """Which of them."""
        weights = [option.weight for option in options]
        return self._random.choices(range(len(options)), weights)[0]



class Every:
    """Decides in every way there is, one round after another."""

    disturbs = False

    def __init__(self, *, crashes: int = 0) -> None:
        self._most = self.crashes = crashes
        self._told: list[int] = []
        self._taken: list[tuple[int, int, str]] = []
        self._before: list[tuple[int, int, str]] = []

    def choose(self, options: Sequence[Option]) -> int:
        """Which of them."""
        place, names = len(self._taken), ", ".join(_NUMBER.sub("", option.name) for option in options)
        index = self._told[place] if place < len(self._told) else 0
        if place < len(self._told) and self._before[place][2] != names:
            raise AssertionError(f"not the same again: {names}; before, {self._before[place][2]}")
        self._taken.append((index, len(options), names))
        return index

    def next(self) -> bool:
        """Begin the next way; False if there is none."""
        taken, self._taken = self._taken, []
        while taken and taken[-1][0] + 1 == taken[-1][1]:
            taken.pop()
        self._before = taken
        self._told = [index for index, _, _ in taken]
        if taken:
            self._told[-1] += 1
        self.crashes = self._most
        return bool(taken)


@dataclass
class Round:
    """What is known about one round besides the books."""

    cast: Cast
    books: Books
    acknowledged: list[str]
    trace: list[str]
    paused: dict[str, bool]
    """Who was paused, and whether it was not resumed since."""
    ended: set[str]
    """Ended by somebody outside."""
    claims: int = 0


class Laboratory:
    """Processes on one database that many rounds are played on."""

    def __init__(self, processes: Sequence[Process], hand: Hand, clock: VirtualClock, store: Store) -> None:
        self.processes = processes
        self.hand = hand
        self.clock = clock
        self._store = store
        self._unwritten: tuple[Sequence[Write], Sequence[Answer | StoreError]] | None = None
        self._work = 0
        self._round = Round(Cast((), (), ()), Books(), [], [], {}, set())

    # --- what the processes write

    def written(self, batch: Sequence[Write], answers: Sequence[Answer | StoreError]) -> None:
        """A batch has been written and not yet committed."""
        self._unwritten = (batch, answers)

    def passed(self, process: str, point: str) -> None:
        """A process has passed a point, or died."""
        if point == "death":
            self._unwritten = None
        elif point == "claim.after":
            self._work += 1
        elif point == "commit.after":
            self._committed(process)

    def _committed(self, process: str) -> None:
        """What was written is durable; the other processes can learn of it."""
        if self._unwritten is None:
            return
        (batch, answers), self._unwritten = self._unwritten, None
        self._work += 1
        self._round.books.enter(batch, answers)
        if any(isinstance(answer, Applied | Accepted) and answer.woken for answer in answers):
            for other in self.processes:
                if other.name != process:
                    self.hand.pass_on(other.name, "hear", other.hear)

    # --- one round

    async def play(self, cast: Cast, chooser: Chooser) -> int:
        """Play a round: how many decisions it took. Raises `Divergence`."""
        this = self._round = Round(cast, Books(), [], [], {}, set())
        self.hand.open = False
        tasks = [asyncio.create_task(self._send(one)) for one in cast.outsiders]
        tasks += [asyncio.create_task(self._start(spec, number)) for number, spec in enumerate(_instances(cast))]
        try:
            await self._decide(chooser, tasks)
            await self._come_to_rest()
            await self._check()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if this.books.faults:
            raise Divergence("; ".join(this.books.faults) + "\n" + " > ".join(this.trace))
        for task in tasks:
            task.result()
        await self._clean_up()
        return len(this.trace)

    async def _decide(self, chooser: Chooser, tasks: Sequence[asyncio.Task[None]]) -> None:
        for _ in range(_LONG):
            await settle()
            options = self._options(chooser)
            if not options or self._round.books.faults:
                return
            if chooser.disturbs and not self.hand.gates and all(task.done() for task in tasks):
                return
            option = options[chooser.choose(options)]
            self._round.trace.append(option.name)
            await option.do()
        if not chooser.disturbs:
            self._round.books.fault("it never comes to rest")

    def _options(self, chooser: Chooser) -> list[Option]:
        options = [self._gate_option(gate) for gate in self.hand.gates]
        for gate in self.hand.gates:
            if chooser.crashes and gate.what == "commit":
                options += [Option(f"{gate.process} dies {when}", partial(self._die, chooser, gate, when), 0.2) for when in _WHEN]
        calls = list(self.hand.calls)
        options += [Option(f"tell {process} {what}", partial(self._tell, (process, what))) for process, what in calls]
        if calls and (chooser.disturbs or not self.hand.gates):
            options.append(Option("tell nothing", self._lose, 0.1))
        for process in self.processes:
            if process.dead:
                options.append(Option(f"{process.name} restarts", process.restart))
        return options + (self._disturbances(chooser) if chooser.disturbs else [])

    def _gate_option(self, gate: Gate) -> Option:
        async def let() -> None:
            self.hand.let(gate)

        return Option(f"{gate.process} {gate.what}", let)

    async def _die(self, chooser: Chooser, gate: Gate, when: str) -> None:
        chooser.crashes -= 1
        process = next(one for one in self.processes if one.name == gate.process)
        process.crash_at = f"commit.{when}"
        self.hand.let(gate)
        if not chooser.disturbs:
            await settle()
            await process.restart()

    async def _tell(self, key: tuple[str, str]) -> None:
        self.hand.calls.pop(key)()

    async def _lose(self) -> None:
        self.hand.calls.clear()

    # --- what else happens

    def _disturbances(self, chooser: Chooser) -> list[Option]:
        options = [Option("time passes", self._pass_time, 0.3)]
        for process in self.processes:
            if process.dead:
                continue
            options.append(Option(f"{process.name} looks", partial(_call, process.look), 0.2))
            if process.buried:
                options.append(Option(f"{process.name} learns that it was held for dead", process.revive, 0.2))
            else:
                options.append(Option(f"{process.name} is held for dead", partial(self._bury, process), 0.05))
            options.append(Option(f"a commit of {process.name} fails", partial(_set, process, "storms", 1), 0.05))
            options.append(Option(f"{process.name} cannot read", partial(_set, process, "blind", 1), 0.05))
            if chooser.crashes:
                for point in _POINTS:
                    options.append(Option(f"{process.name} dies at {point}", partial(self._arm, chooser, process, point), 0.02))
        for spec in self._round.cast.listeners:
            options += self._steering(spec["id"])
        return options

    def _steering(self, id: str) -> list[Option]:
        this = self._round
        if id not in this.books.parties or this.books.parties[id].ended or id in this.ended:
            return []
        if this.paused.get(id):
            return [Option(f"resume {id}", partial(self._steer, "resume", id), 0.3)]
        return [Option(f"{what} {id}", partial(self._steer, what, id), 0.02) for what in ("pause", "cancel", "terminate")]

    async def _arm(self, chooser: Chooser, process: Process, point: str) -> None:
        if process.crash_at is None:
            chooser.crashes -= 1
            process.crash_at = point

    async def _pass_time(self) -> None:
        due = min((due for due in map(Process.next_due, self.processes) if due is not None), default=0)
        now = self.clock.now()
        self.clock.move_to(max(due, now + 1) if due <= now + 3600 * MICROS else now + 1)
        for process in self.processes:
            process.ring()

    async def _bury(self, process: Process) -> None:
        await self._store.sweep([(process.worker_id, beat) for beat in await self._beats(process)], now=self.clock.now(), limit=1_000)
        process.buried = True

    async def _beats(self, process: Process) -> list[int]:
        return [row.beat_at for row in await self._store.workers() if row.id == process.worker_id]

    async def _steer(self, what: str, id: str) -> None:
        process = next((one for one in self.processes if not one.dead), None)
        if process is None:
            return
        this = self._round
        if what in ("pause", "resume"):
            this.paused[id] = what == "pause"
        else:
            this.ended.add(id)
        calls = {
            "pause": process.pause_workflow,
            "resume": process.resume_workflow,
            "cancel": process.cancel_workflow,
            "terminate": process.terminate_workflow,
        }
        task = asyncio.create_task(_unless_refused(calls[what](id)))
        _steering.add(task)
        task.add_done_callback(_steering.discard)

    # --- who talks

    async def _start(self, spec: Spec, number: int) -> None:
        process = self.processes[number % len(self.processes)]
        await self.hand.late(process.name, f"start {spec['id']}")
        what = speak if "items" in spec else listen
        while True:
            try:
                await process.start_workflow(what.with_options(instance_id=spec["id"]), spec)
                return
            except _UNREACHABLE:
                await self.hand.gate(process.name, f"start {spec['id']} again")

    async def _send(self, outsider: Outsider) -> None:
        process = self.processes[outsider.process % len(self.processes)]
        for item in outsider.items:
            await self.hand.gate(process.name, f"send {item['data']['n']} of {outsider.name}")
            for _ in range(2 if item["again"] else 1):
                with contextlib.suppress(*_UNREACHABLE):
                    self._round.acknowledged.append(await _say(process, item))

    # --- the end of a round

    async def _come_to_rest(self) -> None:
        hand = self.hand
        hand.open = True
        hand.calls.clear()
        for process in self.processes:
            process.crash_at = None
            process.storms = process.blind = 0
        for gate in list(hand.gates):
            hand.let(gate)
        for _ in range(_LONG):
            await settle()
            for process in self.processes:
                if process.dead:
                    await process.restart()
                elif process.buried:
                    await process.revive()
            await self._resume_paused()
            if await self._look_around():
                continue
            due = min((due for due in map(Process.next_due, self.processes) if due is not None), default=None)
            if due is None:
                return
            self.clock.move_to(due)
            for process in self.processes:
                process.ring()
        self._round.books.fault("it never comes to rest")

    async def _look_around(self) -> bool:
        """Everybody looks for what they were not told; whether there was something."""
        before = self._work
        for process in self.processes:
            process.look()
        await settle()
        if self._work == before:
            for process in self.processes:
                await process.keep_up()
            await settle()
        return self._work != before

    async def _resume_paused(self) -> None:
        for id in self._round.paused:
            loaded = await self._load(id)
            if loaded.row.status is Status.PAUSED or any(mail.kind == "pause" for mail in loaded.inbox):
                await _unless_refused(self.processes[0].resume_workflow(id))

    async def _check(self) -> None:
        this = self._round
        books = this.books
        for id in this.acknowledged:
            if id not in books.sent:
                books.fault(f"{id} was acknowledged, and was never said")
        for spec in this.cast.listeners:
            await self._check_listener(spec["id"])
        for spec in this.cast.speakers:
            await self._check_speaker(spec)

    async def _check_listener(self, id: str) -> None:
        books = self._round.books
        party, loaded = books.parties[id], await self._load(id)
        for op, ask in party.waits.items():
            lying = next(books.available(id, ask), None)
            if lying is not None:
                books.fault(f"{id} waits for {op}, and {lying.id} lies there")
        self._check_wake_source(loaded)
        if party.ended != loaded.row.status.ended:
            books.fault(f"{id} is {loaded.row.status}")
        history = RecordedHistory(
            loaded.row.workflow, "", id, loaded.row.generation, loaded.begun_at, loaded.input, loaded.history
        )
        try:
            replay_history(listen, history)
        except DeterminismViolationError as error:
            books.fault(f"{id} cannot be replayed: {error}")
        if seen[id] != party.got:
            books.fault(f"{id} has heard {seen[id]}; it was given {party.got}")

    def _check_wake_source(self, loaded: Loaded) -> None:
        row = loaded.row
        if not row.status.ended and row.wake_at is None and (row.owner is not None or not loaded.waits):
            self._round.books.fault(f"{row.instance_id} is {row.status}, and nothing will wake it: {row}")

    async def _check_speaker(self, spec: Spec) -> None:
        books, id = self._round.books, spec["id"]
        loaded = await self._load(id)
        if loaded.row.status is not Status.COMPLETED:
            books.fault(f"{id} is {loaded.row.status}: {loaded.row}")
        said = [sent.data["n"] for sent in books.sent.values() if sent.data["by"] == id]
        wanted = [item["data"]["n"] for item in spec["items"] if item["how"] != "to"]
        if [number for number in said if number in wanted] != wanted:
            books.fault(f"{id} was to say {wanted} and said {said}")

    async def _load(self, id: str) -> Loaded:
        loaded = await self._store.load(id)
        assert loaded is not None
        return loaded

    async def _clean_up(self) -> None:
        """Nobody of this round is left for the next."""
        for spec in self._round.cast.listeners:
            if not self._round.books.parties[spec["id"]].ended:
                await self.processes[0].terminate_workflow(spec["id"])
                for process in self.processes:
                    if process._worker is not None:
                        process._worker.forget(spec["id"])
            seen.pop(spec["id"], None)
        await self._come_to_rest()


_NUMBER = re.compile(r"\b\d+/")
"""What names begin with: the number of their round."""
_WHEN = ("before", "after")
_POINTS = ("commit.before", "commit.after", "claim.before", "claim.after", "activity.before", "activity.after")
_steering: set[asyncio.Task[None]] = set()


def _instances(cast: Cast) -> list[Spec]:
    return [*cast.listeners, *cast.speakers]


async def _say(process: Process, item: Spec) -> str:
    match item["how"]:
        case "event":
            accepted = await process.send_event(
                item["type"], "/out", item["data"], subject=item["subject"], event_id=item["id"], extensions=addressed(item)
            )
            return accepted.id
        case "publish":
            return await process.publish(item["channel"], item["data"])
        case "group":
            return await process.send_to_group(item["group"], item["channel"], item["data"])
        case _:
            return await process.send_to(item["to"], item["channel"], item["data"])


async def _unless_refused(call: Coroutine[Any, Any, None]) -> None:
    with contextlib.suppress(*_UNREACHABLE, WorkflowNotCancellableError):
        await call


async def _call(callback: Callable[[], None]) -> None:
    callback()


async def _set(process: Process, name: str, value: int) -> None:
    setattr(process, name, value)


# --- where it is played


@contextlib.asynccontextmanager
async def laboratory(processes: int, hand: Hand, *, warm: int = 1000) -> AsyncIterator[Laboratory]:
    """Processes on a new database."""
    clock = VirtualClock()
    hands.append(hand)
    with _folder() as folder, _quiet():
        path = str(folder / "talking.db")
        store = open_store(path, clock=SystemClock(), threads="inline")
        await store.open()
        there: list[Laboratory] = []
        names = "ab"[:processes]
        apps = [
            Process(name, path, [listen, speak], hand, clock, lambda process, point: there[0].passed(process, point), warm) for name in names
        ]
        there.append(Laboratory(apps, hand, clock, store))
        try:
            with _watched(there[0]):
                for app in apps:
                    await app.startup()
                await settle()
                yield there[0]
        finally:
            hand.open = True
            for app in apps:
                await app._die()
            await store.close()
            hands.remove(hand)


@contextlib.contextmanager
def _watched(laboratory: Laboratory) -> Iterator[None]:
    """Whatever a batch does is known by the time it is committed."""
    original = sqlite_store.write_whole

    def write_whole(cursor: sqlite3.Cursor, batch: Sequence[Write]) -> list[Answer | StoreError]:
        answers = original(cursor, batch)
        laboratory.written(batch, answers)
        return answers

    with (
        mock.patch.object(sqlite_store, "write_whole", write_whole),
        mock.patch.object(committer, "_FIRST_PAUSE", 0.0),
        mock.patch.object(app_module, "source_of", cache(app_module.source_of)),  # read again at every start, from a file
    ):
        yield


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="romancy-talking-", dir=_MEMORY if _MEMORY.is_dir() else None) as name:
        yield Path(name)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What is planned to go wrong need not be told."""
    logger = logging.getLogger("romancy")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)

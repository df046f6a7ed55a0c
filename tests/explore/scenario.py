"""One round: who takes part, what they do, and what can happen to them next."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.explore.controlled_process import Process
from tests.explore.participants import Cast, Outsider, Spec, addressed, listen, speak
from tests.explore.scheduler import Gate, Hand, settle
from tests.explore.strategies import Chooser, Option
from tests.model.messaging import Books

from romancy import InvalidWorkflowStateError, StoreError, WorkflowNotCancellableError, WorkflowNotFoundError
from romancy.clock import MICROS
from romancy.crash_points import POINTS
from romancy.model.instance import LoadedInstance
from romancy.model.status import Status
from romancy.store.port import Store
from romancy.testing.environment import VirtualClock

_REFUSALS = (StoreError, InvalidWorkflowStateError, WorkflowNotFoundError, WorkflowNotCancellableError)
"""What callers get when the process has died, or the instance has ended."""
_SOON = 3600 * MICROS
"""Alarms later than this are left alone while others can go on."""


@dataclass(frozen=True)
class Stage:
    """Where rounds are played: processes on one database, and a reader of its own."""

    processes: Sequence[Process]
    hand: Hand
    clock: VirtualClock
    store: Store

    async def load(self, id: str) -> LoadedInstance:
        """An instance, as the database has it."""
        loaded = await self.store.load(id)
        assert loaded is not None
        return loaded

    def next_due(self) -> int | None:
        """When the next alarm is due anywhere."""
        return min((due for due in map(Process.next_due, self.processes) if due is not None), default=None)

    def move_to(self, when: int) -> None:
        """Let time pass, and the alarms ring that are due."""
        self.clock.move_to(when)
        for process in self.processes:
            process.ring()


@dataclass
class Scene:
    """A cast on its stage."""

    stage: Stage
    cast: Cast
    books: Books = field(default_factory=Books)
    acknowledged: list[str] = field(default_factory=list[str])
    """What senders outside were told is durable, by id."""
    trace: list[str] = field(default_factory=list[str])
    """What was decided, in order."""
    _paused: dict[str, bool] = field(default_factory=dict[str, bool])
    """Who was paused, and whether it was not resumed since."""
    _ended: set[str] = field(default_factory=set[str])
    """Whose end somebody outside has asked for."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    # --- who takes part

    def begin(self) -> None:
        """Let everybody begin."""
        processes = self.stage.processes
        for outsider in self.cast.outsiders:
            self._spawn(self._send(outsider, processes[outsider.process % len(processes)]))
        for number, spec in enumerate((*self.cast.listeners, *self.cast.speakers)):
            self._spawn(self._start(spec, processes[number % len(processes)]))

    async def end(self) -> None:
        """Nobody goes on. Raises what went wrong with the senders themselves."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for problem in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(problem, Exception):
                raise problem

    @property
    def over(self) -> bool:
        """Nobody waits for leave, and everything was sent."""
        return not self._tasks and not self.stage.hand.gates

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is None:  # what failed is kept for `end`
            self._tasks.discard(task)

    async def _start(self, spec: Spec, process: Process) -> None:
        hand, what = self.stage.hand, speak if "items" in spec else listen
        await hand.late(process.name, f"start {spec['id']}")
        while True:
            try:
                await process.start_workflow(what.with_options(instance_id=spec["id"]), spec)
                return
            except (StoreError, InvalidWorkflowStateError):
                await hand.gate(process.name, f"start {spec['id']} again")

    async def _send(self, outsider: Outsider, process: Process) -> None:
        for item in outsider.items:
            await self.stage.hand.gate(process.name, f"send {item['data']['n']} of {outsider.name}")
            for _ in range(2 if item["again"] else 1):
                with contextlib.suppress(*_REFUSALS):
                    await self._say(process, item)

    async def _say(self, process: Process, item: Spec) -> None:
        data, said = item["data"], self.acknowledged
        match item["how"]:
            case "event":
                more: dict[str, Any] = {"subject": item["subject"], "extensions": addressed(item)}
                said.append((await process.send_event(item["type"], "/out", data, event_id=item["id"], **more)).id)
            case "publish":
                said.append(await process.publish(item["channel"], data))
            case "group":
                said.append(await process.send_to_group(item["group"], item["channel"], data))
            case "cancel" | "terminate":
                await _steering_calls(process)[item["how"]](item["to"])
            case _:
                said.append(await process.send_to(item["to"], item["channel"], data))

    # --- what can happen next

    def options(self, chooser: Chooser) -> list[Option]:
        """Everything that can happen next; nothing: the round is over."""
        options = [*self._passages(), *self._deaths(chooser), *self._tellings(chooser), *self._restarts()]
        if chooser.disturbs:
            return [] if self.over else [*options, *self._disturbances(chooser)]
        if options and chooser.delays:
            options.append(Option("time passes", partial(self._delay, chooser)))
        return options

    def _passages(self) -> Iterator[Option]:
        for gate in self.stage.hand.gates:
            yield Option(f"{gate.process} {gate.what}", partial(_now, partial(self.stage.hand.let, gate)))

    def _deaths(self, chooser: Chooser) -> Iterator[Option]:
        for gate in self.stage.hand.gates:
            if chooser.crashes and gate.what == "commit":
                yield Option(f"{gate.process} dies before", partial(self._die, chooser, gate, "commit.before"), 0.2)
                yield Option(f"{gate.process} dies after", partial(self._die, chooser, gate, "commit.after"), 0.2)

    async def _die(self, chooser: Chooser, gate: Gate, point: str) -> None:
        chooser.crashes -= 1
        process = next(one for one in self.stage.processes if one.name == gate.process)
        process.crash_at = point
        self.stage.hand.let(gate)
        if not chooser.disturbs:
            await settle()
            await process.restart()

    def _tellings(self, chooser: Chooser) -> Iterator[Option]:
        calls = self.stage.hand.calls
        for process, what in calls:
            yield Option(f"tell {process} {what}", partial(_now, partial(self._tell, (process, what))))
        if calls and (chooser.disturbs or not self.stage.hand.gates):
            yield Option("tell nothing", partial(_now, calls.clear), 0.1)

    def _tell(self, key: tuple[str, str]) -> None:
        self.stage.hand.calls.pop(key)()

    def _restarts(self) -> Iterator[Option]:
        for process in self.stage.processes:
            if process.dead:
                yield Option(f"{process.name} restarts", process.restart)

    async def _delay(self, chooser: Chooser) -> None:
        chooser.delays -= 1
        self._pass_time()

    # --- what else may happen

    def _disturbances(self, chooser: Chooser) -> Iterator[Option]:
        yield Option("time passes", partial(_now, self._pass_time), 0.3)
        for process in self.stage.processes:
            if not process.dead:
                yield from self._troubles(process, chooser)
        for spec in self.cast.listeners:
            yield from self._steering(spec["id"])

    def _pass_time(self) -> None:
        now, due = self.stage.clock.now(), self.stage.next_due()
        self.stage.move_to(due if due is not None and now < due < now + _SOON else now + 1)

    def _troubles(self, process: Process, chooser: Chooser) -> Iterator[Option]:
        name = process.name
        yield Option(f"{name} looks", partial(_now, process.look), 0.2)
        yield Option(f"a commit of {name} fails", partial(_now, partial(setattr, process, "storms", 1)), 0.05)
        yield Option(f"{name} cannot read", partial(_now, partial(setattr, process, "blind", 1)), 0.05)
        if process.buried:
            yield Option(f"{name} learns that it was held for dead", process.revive, 0.2)
        else:
            yield Option(f"{name} is held for dead", process.be_buried, 0.05)
        if chooser.crashes and process.crash_at is None:
            for point in POINTS:
                yield Option(f"{name} dies at {point}", partial(self._doom, chooser, process, point), 0.02)

    async def _doom(self, chooser: Chooser, process: Process, point: str) -> None:
        chooser.crashes -= 1
        process.crash_at = point

    def _steering(self, id: str) -> Iterator[Option]:
        party = self.books.parties.get(id)
        if party is None or party.ended or id in self._ended:
            return
        if self._paused.get(id):
            yield Option(f"resume {id}", partial(self._steer, "resume", id), 0.3)
            return
        for what in ("pause", "cancel", "terminate"):
            yield Option(f"{what} {id}", partial(self._steer, what, id), 0.02)

    async def _steer(self, what: str, id: str) -> None:
        process = next((one for one in self.stage.processes if not one.dead), None)
        if process is None:
            return
        if what in ("pause", "resume"):
            self._paused[id] = what == "pause"
        else:
            self._ended.add(id)
        self._spawn(_unless_refused(_steering_calls(process)[what](id)))

    async def resume_paused(self) -> None:
        """Nobody stays paused."""
        for id in self._paused:
            loaded = await self.stage.load(id)
            if loaded.row.status is Status.PAUSED or any(mail.kind == "pause" for mail in loaded.inbox):
                await _unless_refused(self.stage.processes[0].resume_workflow(id))


def _steering_calls(process: Process) -> dict[str, Callable[[str], Awaitable[None]]]:
    return {
        "pause": process.pause_workflow,
        "resume": process.resume_workflow,
        "cancel": process.cancel_workflow,
        "terminate": process.terminate_workflow,
    }


async def _unless_refused(call: Awaitable[None]) -> None:
    with contextlib.suppress(*_REFUSALS):
        await call


async def _now(do: Callable[[], None]) -> None:
    do()

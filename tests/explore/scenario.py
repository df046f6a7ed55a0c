"""One round: its participants, what they do, and the options for what happens next."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.explore.controlled_process import Process
from tests.explore.participants import ExternalSender, Participants, Spec, addressed, listen, send_items
from tests.explore.scheduler import Gate, Scheduler, settle
from tests.explore.strategies import Option, Strategy
from tests.model.messaging import MessagingModel

from romancy import InvalidWorkflowStateError, StoreError, WorkflowNotCancellableError, WorkflowNotFoundError
from romancy.clock import MICROS
from romancy.crash_points import POINTS
from romancy.model.instance import LoadedInstance
from romancy.model.status import Status
from romancy.store.port import Store
from romancy.testing.environment import VirtualClock

_REFUSALS = (StoreError, InvalidWorkflowStateError, WorkflowNotFoundError, WorkflowNotCancellableError)
"""Errors that callers get when the process has died or the instance has ended."""
_SOON = 3600 * MICROS
"""Timers later than this are not fired while anything else can happen."""


@dataclass(frozen=True)
class Cluster:
    """The processes on one database, with their scheduler and clock, and a reader over its own connection."""

    processes: Sequence[Process]
    scheduler: Scheduler
    clock: VirtualClock
    store: Store

    async def load(self, id: str) -> LoadedInstance:
        """An instance as read from the database."""
        loaded = await self.store.load(id)
        assert loaded is not None
        return loaded

    def next_due(self) -> int | None:
        """The time of the next timer in any process."""
        return min((due for due in map(Process.next_due, self.processes) if due is not None), default=None)

    def move_to(self, when: int) -> None:
        """Set the clock and fire the timers that are due."""
        self.clock.move_to(when)
        for process in self.processes:
            process.fire_timers()


@dataclass
class Scenario:
    """The state of one round on a cluster."""

    cluster: Cluster
    participants: Participants
    model: MessagingModel = field(default_factory=MessagingModel)
    acknowledged: list[str] = field(default_factory=list[str])
    """Ids of what external senders were told is durable."""
    trace: list[str] = field(default_factory=list[str])
    """The decisions so far."""
    _paused: dict[str, bool] = field(default_factory=dict[str, bool])
    """Instances that were paused, and whether they have not been resumed since."""
    _ended: set[str] = field(default_factory=set[str])
    """Instances for which a cancellation or termination was requested."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    # --- participants

    def begin(self) -> None:
        """Start all participants."""
        processes = self.cluster.processes
        for external_sender in self.participants.external_senders:
            self._spawn(self._send(external_sender, processes[external_sender.process % len(processes)]))
        for number, spec in enumerate((*self.participants.listeners, *self.participants.senders)):
            self._spawn(self._start(spec, processes[number % len(processes)]))

    async def end(self) -> None:
        """Cancel all participants. Raises the error of a participant that failed by itself."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for problem in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(problem, Exception):
                raise problem

    @property
    def over(self) -> bool:
        """True when nothing waits at a gate and everything was sent."""
        return not self._tasks and not self.cluster.scheduler.gates

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is None:  # a failed task is kept for `end`
            self._tasks.discard(task)

    async def _start(self, spec: Spec, process: Process) -> None:
        scheduler, what = self.cluster.scheduler, send_items if "items" in spec else listen
        await scheduler.extra_gate(process.name, f"start {spec['id']}")
        while True:
            try:
                await process.start_workflow(what.with_options(instance_id=spec["id"]), spec)
                return
            except (StoreError, InvalidWorkflowStateError):
                await scheduler.gate(process.name, f"start {spec['id']} again")

    async def _send(self, external_sender: ExternalSender, process: Process) -> None:
        for item in external_sender.items:
            await self.cluster.scheduler.gate(process.name, f"send {item['data']['n']} of {external_sender.name}")
            for _ in range(2 if item["again"] else 1):
                with contextlib.suppress(*_REFUSALS):
                    await self._send_item(process, item)

    async def _send_item(self, process: Process, item: Spec) -> None:
        data, acknowledged = item["data"], self.acknowledged
        match item["how"]:
            case "event":
                more: dict[str, Any] = {"subject": item["subject"], "extensions": addressed(item)}
                acknowledged.append((await process.send_event(item["type"], "/out", data, event_id=item["id"], **more)).id)
            case "publish":
                acknowledged.append(await process.publish(item["channel"], data))
            case "group":
                acknowledged.append(await process.send_to_group(item["group"], item["channel"], data))
            case "cancel" | "terminate":
                await _control_calls(process)[item["how"]](item["to"])
            case _:
                acknowledged.append(await process.send_to(item["to"], item["channel"], data))

    # --- options

    def options(self, strategy: Strategy) -> list[Option]:
        """Everything that can happen next; empty when the round is over."""
        options = [
            *self._gate_options(),
            *self._crash_options(strategy),
            *self._notification_options(strategy),
            *self._restart_options(),
        ]
        if strategy.injects_faults:
            return [] if self.over else [*options, *self._fault_options(strategy)]
        if options and strategy.delays:
            options.append(Option("time passes", partial(self._delay, strategy)))
        return options

    def _gate_options(self) -> Iterator[Option]:
        for gate in self.cluster.scheduler.gates:
            yield Option(f"{gate.process} {gate.what}", partial(_run_now, partial(self.cluster.scheduler.release, gate)))

    def _crash_options(self, strategy: Strategy) -> Iterator[Option]:
        for gate in self.cluster.scheduler.gates:
            if strategy.crashes and gate.what == "commit":
                yield Option(f"{gate.process} dies before", partial(self._die, strategy, gate, "commit.before"), 0.2)
                yield Option(f"{gate.process} dies after", partial(self._die, strategy, gate, "commit.after"), 0.2)

    async def _die(self, strategy: Strategy, gate: Gate, point: str) -> None:
        strategy.crashes -= 1
        process = next(one for one in self.cluster.processes if one.name == gate.process)
        process.crash_at = point
        self.cluster.scheduler.release(gate)
        if not strategy.injects_faults:
            await settle()
            await process.restart()

    def _notification_options(self, strategy: Strategy) -> Iterator[Option]:
        notifications = self.cluster.scheduler.notifications
        for process, what in notifications:
            yield Option(
                f"notify {process}: {what}", partial(_run_now, partial(self._deliver_notification, (process, what)))
            )
        if notifications and (strategy.injects_faults or not self.cluster.scheduler.gates):
            yield Option("lose all notifications", partial(_run_now, notifications.clear), 0.1)

    def _deliver_notification(self, key: tuple[str, str]) -> None:
        self.cluster.scheduler.notifications.pop(key)()

    def _restart_options(self) -> Iterator[Option]:
        for process in self.cluster.processes:
            if process.dead:
                yield Option(f"{process.name} restarts", process.restart)

    async def _delay(self, strategy: Strategy) -> None:
        strategy.delays -= 1
        self._pass_time()

    # --- faults and control requests as options

    def _fault_options(self, strategy: Strategy) -> Iterator[Option]:
        yield Option("time passes", partial(_run_now, self._pass_time), 0.3)
        for process in self.cluster.processes:
            if not process.dead:
                yield from self._process_faults(process, strategy)
        for spec in self.participants.listeners:
            yield from self._control_options(spec["id"])

    def _pass_time(self) -> None:
        now, due = self.cluster.clock.now(), self.cluster.next_due()
        self.cluster.move_to(due if due is not None and now < due < now + _SOON else now + 1)

    def _process_faults(self, process: Process, strategy: Strategy) -> Iterator[Option]:
        name = process.name
        yield Option(f"{name} polls", partial(_run_now, process.poll), 0.2)
        yield Option(f"a commit of {name} fails", partial(_run_now, partial(setattr, process, "commit_failures", 1)), 0.05)
        yield Option(f"{name} cannot read", partial(_run_now, partial(setattr, process, "read_failures", 1)), 0.05)
        if process.declared_dead:
            yield Option(f"{name} learns that it was declared dead", process.revive, 0.2)
        else:
            yield Option(f"{name} is declared dead", process.be_declared_dead, 0.05)
        if strategy.crashes and process.crash_at is None:
            for point in POINTS:
                yield Option(f"{name} dies at {point}", partial(self._plan_crash, strategy, process, point), 0.02)

    async def _plan_crash(self, strategy: Strategy, process: Process, point: str) -> None:
        strategy.crashes -= 1
        process.crash_at = point

    def _control_options(self, id: str) -> Iterator[Option]:
        instance = self.model.instances.get(id)
        if instance is None or instance.ended or id in self._ended:
            return
        if self._paused.get(id):
            yield Option(f"resume {id}", partial(self._control, "resume", id), 0.3)
            return
        for what in ("pause", "cancel", "terminate"):
            yield Option(f"{what} {id}", partial(self._control, what, id), 0.02)

    async def _control(self, what: str, id: str) -> None:
        process = next((one for one in self.cluster.processes if not one.dead), None)
        if process is None:
            return
        if what in ("pause", "resume"):
            self._paused[id] = what == "pause"
        else:
            self._ended.add(id)
        self._spawn(_unless_refused(_control_calls(process)[what](id)))

    async def resume_paused(self) -> None:
        """Resume every instance that is still paused."""
        for id in self._paused:
            loaded = await self.cluster.load(id)
            if loaded.row.status is Status.PAUSED or any(item.kind == "pause" for item in loaded.inbox):
                await _unless_refused(self.cluster.processes[0].resume_workflow(id))


def _control_calls(process: Process) -> dict[str, Callable[[str], Awaitable[None]]]:
    return {
        "pause": process.pause_workflow,
        "resume": process.resume_workflow,
        "cancel": process.cancel_workflow,
        "terminate": process.terminate_workflow,
    }


async def _unless_refused(call: Awaitable[None]) -> None:
    with contextlib.suppress(*_REFUSALS):
        await call


async def _run_now(do: Callable[[], None]) -> None:
    do()

"""Faults of a campaign, injected according to a plan that follows from the seed."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tests.chaos.campaign.campaign_processes import DidNotStop, ProcessSlot, ServerSlot
from tests.chaos.campaign.database_targets import DatabaseTarget
from tests.chaos.campaign.network_namespace import NetworkNamespace
from tests.chaos.campaign.tcp_proxy import TcpProxy
from tests.chaos.worker_processes import LEASE, write_lock

_STOP_TIMEOUT = 15.0
"""Seconds after which the schedule no longer waits for a new process."""


class FaultKind(StrEnum):
    """The kinds of faults."""

    KILL_WORKER = "a worker is killed"
    KILL_SERVER = "a server is killed"
    STOP_WORKER = "a worker is stopped for longer than its lease"
    STOP_SERVER = "a server is stopped for longer than its lease"
    REPLACE_SERVER = "a server is shut down and another started"
    CUT = "a process is cut off from the database"
    FREEZE = "traffic between a process and the database is blocked"
    BLOCK_RESPONSES = "responses of the database to a process are blocked"
    BLOCK_REQUESTS = "requests of a process to the database are blocked"
    UNPLUG = "packets between a process and the database are lost"
    CLIENTS_CUT = "a server is cut off from its clients"
    CLIENTS_BLOCK_RESPONSES = "responses of a server to its clients are blocked"
    RESTART = "the database is shut down and started"
    CRASH = "the database is killed and started"
    LOCK = "the write lock of the file is held"


PROCESSES = (
    FaultKind.KILL_WORKER,
    FaultKind.KILL_SERVER,
    FaultKind.STOP_WORKER,
    FaultKind.STOP_SERVER,
    FaultKind.REPLACE_SERVER,
)
CLIENT_CONNECTIONS = (FaultKind.CLIENTS_CUT, FaultKind.CLIENTS_BLOCK_RESPONSES)
NAMESPACES = (FaultKind.UNPLUG,)
CONNECTIONS = (
    FaultKind.CUT,
    FaultKind.FREEZE,
    FaultKind.BLOCK_RESPONSES,
    FaultKind.BLOCK_REQUESTS,
    *CLIENT_CONNECTIONS,
    FaultKind.RESTART,
    FaultKind.CRASH,
)
FILES = (FaultKind.LOCK, *CLIENT_CONNECTIONS)


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One fault of the plan."""

    kind: FaultKind
    victim: float
    """Selects the target among the candidates: a number from 0 to 1."""
    seconds: float
    """How long the fault lasts."""
    breaks: bool
    """Whether a connection that was blocked breaks afterwards, with the data on it lost."""
    pause: float
    """Seconds until the next fault."""


def plan(kinds: Sequence[FaultKind], seed: str, pause: float) -> Iterator[PlannedFault]:
    """An endless plan; each round contains every kind once."""
    rng = random.Random(seed)
    while True:
        for kind in rng.sample(kinds, len(kinds)):
            long = (
                LEASE * (1.5 + rng.random())
                if kind in (FaultKind.STOP_WORKER, FaultKind.STOP_SERVER)
                else 2.5 * rng.random()
            )
            yield PlannedFault(kind, rng.random(), long, rng.random() < 0.5, pause * rng.random())


@dataclass
class FaultSchedule:
    """Injects faults into processes and, concurrently, into connections and the database."""

    target: DatabaseTarget
    workers: list[ProcessSlot]
    server_slots: list[ServerSlot]
    folder: Path
    seed: int
    pause: float = 1.0
    problems: list[str] = field(default_factory=list[str])
    """Processes that behaved wrongly."""
    done: Counter[FaultKind] = field(default_factory=Counter[FaultKind])

    async def run(self, over: asyncio.Event) -> None:
        """Inject faults until the event is set; no fault lasts longer than this call."""
        others = FILES if self.target.server is None else (*CONNECTIONS, *(NAMESPACES if self._namespaces else ()))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._inject_each(PROCESSES, over))
            group.create_task(self._inject_each(others, over))

    async def _inject_each(self, kinds: Sequence[FaultKind], over: asyncio.Event) -> None:
        for planned in plan(kinds, f"{self.seed} {kinds[0]}", self.pause):
            if over.is_set():
                return
            await self._inject(planned)
            self.done[planned.kind] += 1
            await _sleep_unless(over, planned.pause)

    async def _inject(self, planned: PlannedFault) -> None:
        with (self.folder / "faults-injected").open("a") as log:
            log.write(f"{time.strftime('%H:%M:%S')} {planned}\n")
        match planned.kind:
            case FaultKind.KILL_WORKER | FaultKind.KILL_SERVER:
                await self._kill(self._slot(planned), planned)
            case FaultKind.STOP_WORKER | FaultKind.STOP_SERVER:
                await self._stop(self._slot(planned), planned)
            case FaultKind.REPLACE_SERVER:
                await self._restart_in_order(self._slot(planned))
            case FaultKind.RESTART | FaultKind.CRASH:
                await self._restart(hard=planned.kind is FaultKind.CRASH)
            case FaultKind.UNPLUG:
                await self._unplug(self._namespaces[int(planned.victim * len(self._namespaces))], planned)
            case FaultKind.LOCK:
                await asyncio.to_thread(self._lock, planned.seconds)
            case _:
                await self._disrupt(self._proxy(planned), planned)

    @property
    def _namespaces(self) -> list[NetworkNamespace]:
        return [slot.namespace for slot in self.workers if slot.namespace is not None]

    def _slot(self, planned: PlannedFault) -> ProcessSlot:
        candidates = self.workers if planned.kind in (FaultKind.KILL_WORKER, FaultKind.STOP_WORKER) else self.server_slots
        return candidates[int(planned.victim * len(candidates))]

    def _proxy(self, planned: PlannedFault) -> TcpProxy:
        if planned.kind in CLIENT_CONNECTIONS:
            return self.server_slots[int(planned.victim * len(self.server_slots))].client_proxy
        slots = [*self.workers, *self.server_slots]
        proxy = slots[int(planned.victim * len(slots))].proxy
        assert proxy is not None
        return proxy

    async def _kill(self, slot: ProcessSlot, planned: PlannedFault) -> None:
        assert slot.process is not None
        await asyncio.to_thread(slot.process.kill)
        await asyncio.sleep(planned.seconds / 10)
        await self._replace(slot)

    async def _stop(self, slot: ProcessSlot, planned: PlannedFault) -> None:
        assert slot.process is not None
        slot.process.stop()
        await asyncio.sleep(planned.seconds)
        slot.process.go_on()

    async def _restart_in_order(self, slot: ProcessSlot) -> None:
        try:
            await asyncio.to_thread(slot.finish)
        except DidNotStop as error:
            self.problems.append(str(error))
        await self._replace(slot)

    async def _replace(self, slot: ProcessSlot) -> None:
        """Start the next process and wait a while for it, so that the next fault has a target."""
        slot.start()
        with suppress(AssertionError):
            await slot.until_ready(_STOP_TIMEOUT)

    async def _restart(self, *, hard: bool) -> None:
        assert self.target.server is not None
        await asyncio.to_thread(self.target.server.stop, hard=hard)
        await asyncio.to_thread(self.target.server.start)

    def _lock(self, seconds: float) -> None:
        with write_lock(self.folder):
            time.sleep(seconds)

    async def _unplug(self, namespace: NetworkNamespace, planned: PlannedFault) -> None:
        namespace.unplug()
        await asyncio.sleep(planned.seconds)
        namespace.plug()

    async def _disrupt(self, proxy: TcpProxy, planned: PlannedFault) -> None:
        if planned.kind in (FaultKind.CUT, FaultKind.CLIENTS_CUT):
            proxy.cut()
        else:
            blocks_responses, blocks_requests = (
                planned.kind in (FaultKind.BLOCK_RESPONSES, FaultKind.CLIENTS_BLOCK_RESPONSES),
                planned.kind is FaultKind.BLOCK_REQUESTS,
            )
            proxy.freeze(there=not blocks_responses, back=not blocks_requests)
        await asyncio.sleep(planned.seconds)
        if planned.breaks:
            proxy.cut()
        proxy.restore()


async def _sleep_unless(over: asyncio.Event, seconds: float) -> None:
    """Sleep, unless the event is set before."""
    try:
        async with asyncio.timeout(seconds):
            await over.wait()
    except TimeoutError:
        return

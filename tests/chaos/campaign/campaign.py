"""A campaign, from starting the processes to comparing the result."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from tests.chaos import hotel_workload
from tests.chaos.campaign import campaign_workflows, client_log, clients, database_targets, network_namespace
from tests.chaos.campaign.campaign_processes import DidNotStop, ProcessSlot, ServerSlot
from tests.chaos.campaign.client_log import CallKind
from tests.chaos.campaign.clients import Client
from tests.chaos.campaign.comparison import Fault, Sort, compare
from tests.chaos.campaign.database_state import DatabaseState, read_database
from tests.chaos.campaign.database_targets import DatabaseTarget
from tests.chaos.campaign.fault_schedule import FaultKind, FaultSchedule
from tests.chaos.campaign.network_namespace import NetworkNamespace

_LONG_RUNNING_NAMES = ", ".join(f"'{name}'" for name in campaign_workflows.LONG_RUNNING)
ORDERS_LEFT = f"SELECT count(*) FROM romancy_instances WHERE ended_at IS NULL AND workflow NOT IN ({_LONG_RUNNING_NAMES})"
LONG_RUNNING_LEFT = f"SELECT count(*) FROM romancy_instances WHERE ended_at IS NULL AND workflow IN ({_LONG_RUNNING_NAMES})"
_CHANNELS = f"'{campaign_workflows.LETTERS}', '{campaign_workflows.NEWS}'"
SUBSCRIBED = f"SELECT count(*) FROM romancy_subscriptions WHERE channel IN ({_CHANNELS})"
COUNTED = f"SELECT count(*) FROM romancy_instances WHERE workflow IN ({_LONG_RUNNING_NAMES})"


@dataclass(frozen=True)
class Campaign:
    """The settings of a campaign."""

    kind: str
    seconds: float
    seed: int
    folder: Path
    workers: int = 3
    servers: int = 2
    clients: int = 3
    at_once: int = 4
    pause: float = 2.0
    timeout: float = 120.0
    """Seconds within which all orders must end once the faults have stopped."""


@dataclass
class Report:
    """The result of a campaign."""

    faults: list[Fault] = field(default_factory=list[Fault])
    injected: Counter[FaultKind] = field(default_factory=Counter[FaultKind])
    problems: list[str] = field(default_factory=list[str])
    """Processes that behaved wrongly."""
    totals: dict[str, int] = field(default_factory=dict[str, int])


async def run_campaign(campaign: Campaign, say: Callable[[str], None] = lambda text: None) -> Report:
    """Run a campaign. The folder keeps the evidence."""
    target = await asyncio.to_thread(database_targets.begin, campaign.kind, campaign.folder)
    report = Report()
    try:
        await hotel_workload.rows(target.address, campaign_workflows.ROWS)
        async with _processes(campaign, target) as (workers, server_slots):
            await _run_load(campaign, target, workers, server_slots, report, say)
            await _finish([*workers, *server_slots], report)
        say("comparing")
        await compare_state(target.address, campaign.folder, report)
    finally:
        target.remove()
    return report


@asynccontextmanager
async def _processes(
    campaign: Campaign, target: DatabaseTarget
) -> AsyncIterator[tuple[list[ProcessSlot], list[ServerSlot]]]:
    namespaces = [NetworkNamespace()] if target.port is not None and not network_namespace.why_not() else []
    isolated = [ProcessSlot(f"isolated{n}", campaign.folder, target, one) for n, one in enumerate(namespaces)]
    workers = [
        *isolated,
        *(ProcessSlot(f"worker{n}", campaign.folder, target) for n in range(campaign.workers - len(isolated))),
    ]
    server_slots = [ServerSlot(f"server{n}", campaign.folder, target) for n in range(campaign.servers)]
    try:
        for slot in [*server_slots, *workers]:
            await slot.open()
        server_slots[0].start()  # alone, because it creates the tables
        await server_slots[0].until_ready()
        for slot in [*server_slots[1:], *workers]:
            slot.start()
        for slot in [*server_slots, *workers]:
            await slot.until_ready()
        yield workers, server_slots
    finally:
        for slot in [*server_slots, *workers]:
            await slot.close()


async def _run_load(
    campaign: Campaign,
    target: DatabaseTarget,
    workers: list[ProcessSlot],
    server_slots: list[ServerSlot],
    report: Report,
    say: Callable[[str], None],
) -> None:
    def open(number: int) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{server_slots[number].client_proxy.port}", timeout=clients.TIMEOUT
        )

    names = ["operator", *(f"c{n}" for n in range(campaign.clients))]
    async with clients.open_clients(names, len(server_slots), open, campaign.folder, campaign.seed) as (operator, *others):
        await start_long_running(operator, target.address, campaign.timeout)
        fault_schedule = FaultSchedule(target, workers, server_slots, campaign.folder, campaign.seed, campaign.pause)
        report.injected, report.problems = fault_schedule.done, fault_schedule.problems
        over = asyncio.Event()
        say(f"{campaign.seconds:g} s of load and faults")
        async with asyncio.TaskGroup() as group:
            for client in others:
                group.create_task(client.live(over, at_once=campaign.at_once))
            group.create_task(fault_schedule.run(over))
            await asyncio.sleep(campaign.seconds)
            over.set()
            say("the faults stop; waiting for all orders to end")
        await none_left(target.address, ORDERS_LEFT, campaign.timeout)
        await _finish(server_slots, report)  # ends requests whose clients have given up
        for server_slot in server_slots:
            server_slot.start()
        await stop_long_running(operator, target.address, campaign.timeout)


async def _finish(slots: Sequence[ProcessSlot], report: Report) -> None:
    ends = await asyncio.gather(*(asyncio.to_thread(slot.finish) for slot in slots), return_exceptions=True)
    report.problems += [str(end) for end in ends if isinstance(end, DidNotStop)]
    if others := [end for end in ends if isinstance(end, BaseException) and not isinstance(end, DidNotStop)]:
        raise others[0]


async def start_long_running(operator: Client, address: str, timeout: float) -> None:
    """Start the long-running workflows and wait until they have subscribed."""
    for name, number in campaign_workflows.LONG_RUNNING.items():
        for one in range(number):
            await operator.start(name, f"{name}-{one}")
    listening, all = (
        campaign_workflows.LONG_RUNNING["clerk"] + campaign_workflows.LONG_RUNNING["reader"],
        sum(campaign_workflows.LONG_RUNNING.values()),
    )
    deadline = time.monotonic() + timeout
    while await hotel_workload.count(address, SUBSCRIBED) < listening or await hotel_workload.count(address, COUNTED) < all:
        assert time.monotonic() < deadline, "the long-running workflows do not start"
        await asyncio.sleep(0.05)


async def stop_long_running(operator: Client, address: str, timeout: float) -> None:
    """Stop the long-running workflows and wait until they have ended."""
    for one in range(campaign_workflows.LONG_RUNNING["clerk"]):
        await operator.message(campaign_workflows.LETTERS, f"letters-operator{one}.{campaign_workflows.STOP}")
    await operator.message(campaign_workflows.NEWS, f"news-operator.{campaign_workflows.STOP}")
    await operator.event("stop-event-counter", campaign_workflows.FINISHED, campaign_workflows.STOP, subject="event_counter")
    await operator.event("stop-ticker", campaign_workflows.STOP_TICKING, None)
    await none_left(address, LONG_RUNNING_LEFT, timeout)


async def none_left(address: str, left: str, timeout: float) -> None:
    """Wait until a count is zero, or until the timeout: the comparison reports what is left."""
    deadline = time.monotonic() + timeout
    while await hotel_workload.count(address, left) != 0 and time.monotonic() < deadline:
        await asyncio.sleep(0.1)


async def compare_state(address: str, folder: Path, report: Report) -> None:
    """Compare the client logs with the database."""
    lines, found = client_log.read(folder), await read_database(address, folder)
    report.faults = [*(Fault(Sort.BROKEN, what) for what in report.problems), *compare(lines, found)]
    report.totals = _totals(lines, found)
    if report.faults:
        (folder / "faults").write_text("\n".join(str(fault) for fault in report.faults) + "\n")
        (folder / "database.json").write_text(json.dumps(_as_json(found), indent=1))


def _as_json(found: DatabaseState) -> dict[str, object]:
    recorded = [[*key, times] for key, times in found.recorded.items()]
    return {**vars(found), "recorded": recorded}


def _totals(lines: list[client_log.Line], found: DatabaseState) -> dict[str, int]:
    call_records = client_log.call_records(lines).values()
    ends = Counter(one.status for one in found.instances.values())
    return {
        **{f"{kind} acknowledged": sum(1 for one in call_records if one.kind is kind and one.done) for kind in CallKind},
        "requests of unknown outcome": sum(1 for line in lines if line.state is client_log.State.UNKNOWN),
        "requests refused": sum(1 for line in lines if line.state is client_log.State.REFUSED),
        **{f"instances {status}": times for status, times in sorted(ends.items())},
        "messages received": len(found.messages),
        "events consumed": len(found.consumed),
        "rows written": len(found.rows),
    }

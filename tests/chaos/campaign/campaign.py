"""A campaign, from the first process to the comparison."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter as Tally
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from tests.chaos import hotel_workload
from tests.chaos.campaign import campaign_workflows, client_log, clients, database_targets, network_namespace
from tests.chaos.campaign.campaign_processes import Counter, DidNotStop, Post
from tests.chaos.campaign.client_log import CallKind
from tests.chaos.campaign.clients import Client
from tests.chaos.campaign.comparison import Fault, Sort, compare
from tests.chaos.campaign.database_state import Found, look
from tests.chaos.campaign.database_targets import Place
from tests.chaos.campaign.fault_schedule import Blow, Weather
from tests.chaos.campaign.network_namespace import Island

_RESIDENTS = ", ".join(f"'{name}'" for name in campaign_workflows.RESIDENTS)
ORDERS_LEFT = f"SELECT count(*) FROM romancy_instances WHERE ended_at IS NULL AND workflow NOT IN ({_RESIDENTS})"
RESIDENTS_LEFT = f"SELECT count(*) FROM romancy_instances WHERE ended_at IS NULL AND workflow IN ({_RESIDENTS})"
_CHANNELS = f"'{campaign_workflows.LETTERS}', '{campaign_workflows.NEWS}'"
SUBSCRIBED = f"SELECT count(*) FROM romancy_subscriptions WHERE channel IN ({_CHANNELS})"
COUNTED = f"SELECT count(*) FROM romancy_instances WHERE workflow IN ({_RESIDENTS})"


@dataclass(frozen=True)
class Campaign:
    """What is wanted."""

    kind: str
    seconds: float
    seed: int
    folder: Path
    workers: int = 3
    servers: int = 2
    clients: int = 3
    at_once: int = 4
    calm: float = 2.0
    patience: float = 120.0
    """Seconds that everything gets to come to its end when the faults have stopped."""


@dataclass
class Report:
    """What came of it."""

    faults: list[Fault] = field(default_factory=list[Fault])
    blows: Tally[Blow] = field(default_factory=Tally[Blow])
    trouble: list[str] = field(default_factory=list[str])
    """What processes did that they must not do."""
    figures: dict[str, int] = field(default_factory=dict[str, int])


async def wage(campaign: Campaign, say: Callable[[str], None] = lambda text: None) -> Report:
    """Do it all. What is left in the folder is the evidence."""
    place = await asyncio.to_thread(database_targets.begin, campaign.kind, campaign.folder)
    report = Report()
    try:
        await hotel_workload.rows(place.address, campaign_workflows.ROWS)
        async with _processes(campaign, place) as (workers, counters):
            await _live(campaign, place, workers, counters, report, say)
            await _finish([*workers, *counters], report)
        say("comparing")
        await judge(place.address, campaign.folder, report)
    finally:
        place.remove()
    return report


@asynccontextmanager
async def _processes(campaign: Campaign, place: Place) -> AsyncIterator[tuple[list[Post], list[Counter]]]:
    islands = [Island()] if place.port is not None and not network_namespace.why_not() else []
    apart = [Post(f"island{n}", campaign.folder, place, one) for n, one in enumerate(islands)]
    workers = [*apart, *(Post(f"worker{n}", campaign.folder, place) for n in range(campaign.workers - len(apart)))]
    counters = [Counter(f"server{n}", campaign.folder, place) for n in range(campaign.servers)]
    try:
        for post in [*counters, *workers]:
            await post.open()
        counters[0].start()  # alone, while the tables are made
        await counters[0].until_ready()
        for post in [*counters[1:], *workers]:
            post.start()
        for post in [*counters, *workers]:
            await post.until_ready()
        yield workers, counters
    finally:
        for post in [*counters, *workers]:
            await post.close()


async def _live(
    campaign: Campaign,
    place: Place,
    workers: list[Post],
    counters: list[Counter],
    report: Report,
    say: Callable[[str], None],
) -> None:
    def open(number: int) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=f"http://127.0.0.1:{counters[number].line.port}", timeout=clients.TIMEOUT)

    names = ["mayor", *(f"c{n}" for n in range(campaign.clients))]
    async with clients.some(names, len(counters), open, campaign.folder, campaign.seed) as (mayor, *others):
        await settle(mayor, place.address, campaign.patience)
        weather = Weather(place, workers, counters, campaign.folder, campaign.seed, campaign.calm)
        report.blows, report.trouble = weather.done, weather.trouble
        over = asyncio.Event()
        say(f"{campaign.seconds:g} s of load and faults")
        async with asyncio.TaskGroup() as group:
            for client in others:
                group.create_task(client.live(over, at_once=campaign.at_once))
            group.create_task(weather.rage(over))
            await asyncio.sleep(campaign.seconds)
            over.set()
            say("the faults stop, and what was begun goes on to its end")
        await none_left(place.address, ORDERS_LEFT, campaign.patience)
        await _finish(counters, report)  # requests that nobody waits for any more are over after this
        for counter in counters:
            counter.start()
        await close(mayor, place.address, campaign.patience)


async def _finish(posts: Sequence[Post], report: Report) -> None:
    ends = await asyncio.gather(*(asyncio.to_thread(post.finish) for post in posts), return_exceptions=True)
    report.trouble += [str(end) for end in ends if isinstance(end, DidNotStop)]
    if others := [end for end in ends if isinstance(end, BaseException) and not isinstance(end, DidNotStop)]:
        raise others[0]


async def settle(mayor: Client, address: str, patience: float) -> None:
    """Start those who are always there, and wait until they listen."""
    for name, number in campaign_workflows.RESIDENTS.items():
        for one in range(number):
            await mayor.start(name, f"{name}-{one}")
    listening, all = (
        campaign_workflows.RESIDENTS["clerk"] + campaign_workflows.RESIDENTS["reader"],
        sum(campaign_workflows.RESIDENTS.values()),
    )
    deadline = time.monotonic() + patience
    while await hotel_workload.count(address, SUBSCRIBED) < listening or await hotel_workload.count(address, COUNTED) < all:
        assert time.monotonic() < deadline, "those who are always there do not come"
        await asyncio.sleep(0.05)


async def close(mayor: Client, address: str, patience: float) -> None:
    """Send them home, and wait until they are gone."""
    for one in range(campaign_workflows.RESIDENTS["clerk"]):
        await mayor.message(campaign_workflows.LETTERS, f"letters-mayor{one}.{campaign_workflows.STOP}")
    await mayor.message(campaign_workflows.NEWS, f"news-mayor.{campaign_workflows.STOP}")
    await mayor.event("stop-teller", campaign_workflows.FINISHED, campaign_workflows.STOP, subject="teller")
    await mayor.event("stop-ticker", campaign_workflows.STOP_TICKING, None)
    await none_left(address, RESIDENTS_LEFT, patience)


async def none_left(address: str, left: str, patience: float) -> None:
    """Wait until there are none, but not for ever: what is left then is found by the comparison."""
    deadline = time.monotonic() + patience
    while await hotel_workload.count(address, left) != 0 and time.monotonic() < deadline:
        await asyncio.sleep(0.1)


async def judge(address: str, folder: Path, report: Report) -> None:
    """Compare the ledgers with the database."""
    lines, found = client_log.read(folder), await look(address, folder)
    report.faults = [*(Fault(Sort.BROKEN, what) for what in report.trouble), *compare(lines, found)]
    report.figures = _figures(lines, found)
    if report.faults:
        (folder / "faults").write_text("\n".join(str(fault) for fault in report.faults) + "\n")
        (folder / "database.json").write_text(json.dumps(_dumped(found), indent=1))


def _dumped(found: Found) -> dict[str, object]:
    recorded = [[*key, times] for key, times in found.recorded.items()]
    return {**vars(found), "recorded": recorded}


def _figures(lines: list[client_log.Line], found: Found) -> dict[str, int]:
    accounts = client_log.accounts(lines).values()
    ends = Tally(one.status for one in found.instances.values())
    return {
        **{f"{kind} acknowledged": sum(1 for one in accounts if one.kind is kind and one.done) for kind in CallKind},
        "answers not heard": sum(1 for line in lines if line.state is client_log.State.UNKNOWN),
        "requests refused": sum(1 for line in lines if line.state is client_log.State.REFUSED),
        **{f"instances {status}": times for status, times in sorted(ends.items())},
        "messages received": len(found.messages),
        "events consumed": len(found.consumed),
        "rows written": len(found.rows),
    }

"""Workload of hotel visits, with workers that are killed and stopped while the database server is restarted.

A visit waits for an event and for messages, sleeps, and publishes a letter, which one of several clerks receives.
`HotelClient` sends what the visits wait for and keeps what was acknowledged; `faults` compares this with the effect log (see
`order_workflows`) and the database. `python -m tests.chaos.hotel_workload ADDRESS NAME SERVICE` is a worker process.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import asyncmy.errors
import asyncpg
from tests import mariadb
from tests.chaos import competing_consumers, order_workflows
from tests.chaos.worker_processes import (
    HEARTBEAT,
    HISTORY_WITH_GAPS,
    LEASE,
    LEFT_BEHIND,
    RECORDED_TWICE,
    ROOT,
    WITHOUT_WAKE_SOURCE,
    Worker,
    Workers,
)

from romancy import (
    ActivityContext,
    App,
    Client,
    StoreError,
    Workflow,
    WorkflowContext,
    activity,
    publish,
    receive,
    sleep,
    subscribe,
    wait_event,
    workflow,
)
from romancy.model.transition import Transition, Write, WriteResult
from romancy.store.sql.store import SqlStore
from romancy.worker.maintenance import HeartbeatThread

PAID = "paid"
DESK = "desk"
FAULT = "ROMANCY_TEST_FAULT"
"""`unfenced`: the worker writes although another one has taken over."""


class Server(Protocol):
    """A database server that a test can stop and start."""

    @property
    def address(self) -> str:
        """The address of a database on the server."""
        ...

    def start(self) -> None:
        """Start the server and wait until it answers."""
        ...

    def stop(self, *, hard: bool = False) -> None:
        """Stop the server in an orderly way, or like a crash."""
        ...


# --- workflows


@activity
async def welcome(ctx: ActivityContext, number: int) -> int:
    """Write two lines to the effect log."""
    order_workflows.write(ctx, "begin")
    await asyncio.sleep(0.002)
    order_workflows.write(ctx, "done")
    return 2 * number


@activity
def clean(ctx: ActivityContext, number: int) -> int:
    """The same, in a thread."""
    order_workflows.write(ctx, "begin")
    time.sleep(0.002)
    order_workflows.write(ctx, "done")
    return 3 * number


@workflow
async def visit(ctx: WorkflowContext, number: int) -> list[Any]:
    """Wait for the payment and for two replies, run two activities, and publish a letter."""
    first = await welcome(ctx, number)
    await subscribe(ctx, DESK, "direct")
    paid = await wait_event(ctx, PAID, subject=str(number))
    await sleep(ctx, 0.02 * (number % 5))
    answers = [(await receive(ctx, DESK)).data for _ in range(2)]
    last = await clean(ctx, number)
    await publish(ctx, competing_consumers.CHANNEL, number)
    return [first, paid.data, *answers, last]


def expected(number: int) -> list[Any]:
    """The result of a visit."""
    return [2 * number, {"amount": number}, f"key {number}", f"bill {number}", 3 * number]


def name_of(number: int) -> str:
    """The id of a visit."""
    return f"visit-{number}"


# --- workers


class HotelWorker(Worker):
    """One worker process on a database."""

    def __init__(self, address: str, folder: Path, name: str, service: str, fault: str = "") -> None:
        self.log = folder / f"{name}.log"
        more = {
            order_workflows.EFFECT_LOG: str(folder / "effects"),
            order_workflows.GATE: str(folder / "gate"),
            FAULT: fault,
        }
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.hotel_workload", address, name, service],
                cwd=ROOT,
                env=os.environ | more | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )

    def finish(self) -> None:
        """Shut the process down in an orderly way."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)


class HotelWorkers(Workers):
    """The worker processes of one test; all are killed at its end."""

    def __init__(self, address: str, folder: Path, fault: str = "", *, service: str = "all") -> None:
        super().__init__(folder)
        self._address = address
        self._fault = fault
        self._service = service

    def start(self) -> HotelWorker:
        """Start another worker."""
        worker = HotelWorker(self._address, self._folder, f"h{len(self._all) + 1}", self._service, self._fault)
        self._all.append(worker)
        return worker


SERVICES: dict[str, list[Workflow[..., Any]]] = {
    "visits": [visit, competing_consumers.clerk],
    "orders": order_workflows.WORKFLOWS,
    "all": [visit, competing_consumers.clerk, *order_workflows.WORKFLOWS],
}


async def main(address: str, name: str, service: str) -> None:
    """Run until standard input ends."""
    if os.environ.get(FAULT) == "unfenced":
        SqlStore.commit = _commit_unfenced(SqlStore.commit)  # type: ignore[method-assign]
        HeartbeatThread._write_heartbeat = lambda self: True  # type: ignore[method-assign]  # it does not learn that it is dead
    app = App(
        address,
        workflows=SERVICES[service],
        service_name=service,
        worker_id=name,
        heartbeat_interval=HEARTBEAT,
        lease_timeout=LEASE,
        max_losses=0,  # a process that is killed at random says nothing about the instances it ran
        poll_interval=0.2,
        max_concurrent_workflows=300,
        cache_size=800,
        pool_size=4,
        shutdown_timeout=1,
    )
    async with app:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.buffer.read)


def _commit_unfenced(commit: Callable[[SqlStore, Sequence[Write]], Any]) -> Any:
    """A planted fault: every write uses the epoch that the instance has at that moment."""

    async def unfenced(store: SqlStore, batch: Sequence[Write]) -> list[WriteResult | StoreError]:
        return list(await commit(store, [await pretend(store, write) for write in batch]))

    async def pretend(store: SqlStore, write: Write) -> Write:
        found = await store.load(write.instance_id) if isinstance(write, Transition) else None
        if found is None or found.row.owner is None:
            return write
        assert isinstance(write, Transition)
        row = found.row
        history = tuple(entry._replace(seq=row.length + n) for n, entry in enumerate(write.history, 1))
        now = {
            "epoch": row.epoch,
            "new_epoch": row.epoch,
            "worker": row.owner,
            "length": None,
            "inbox_seen": row.inbox_version,
        }
        return write._replace(history=history, **now)  # type: ignore[arg-type]

    return unfenced


# --- the client


@dataclass
class Acknowledgements:
    """The calls that were acknowledged."""

    started: list[int] = field(default_factory=list)
    paid: list[int] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)


class HotelClient:
    """Starts visits and sends what they wait for, with a limited number of visits at a time."""

    def __init__(self, client: Client, acknowledgements: Acknowledgements, rng: random.Random, *, at_once: int = 40) -> None:
        self._client = client
        self._acknowledgements = acknowledgements
        self._rng = rng
        self._at_once = at_once

    async def serve(self, visits: int, *, first: int = 0) -> None:
        """Serve this number of visits."""
        numbers = iter(range(first, first + visits))

        async def some() -> None:
            for number in numbers:
                await self._serve(number)

        await asyncio.gather(*(some() for _ in range(self._at_once)))

    async def _serve(self, number: int) -> None:
        await self._client.start_workflow(visit.with_options(instance_id=name_of(number)), number)
        self._acknowledgements.started.append(number)
        calls = [self._pay(number), self._send_replies(number)]
        if self._rng.random() < 0.5:
            calls.reverse()
        for call in calls:
            await call

    async def _pay(self, number: int) -> None:
        data, subject = {"amount": number}, str(number)
        await self._client.send_event(PAID, "hotel", data, subject=subject, event_id=f"paid-{number}")
        self._acknowledgements.paid.append(number)

    async def _send_replies(self, number: int) -> None:
        for word in ("key", "bill"):
            await self._client.send_to(name_of(number), DESK, f"{word} {number}")
            self._acknowledgements.sent.append(f"{word} {number}")


# --- reading the database


async def rows(address: str, sql: str) -> list[tuple[Any, ...]]:
    """The rows that a query selects."""
    if "://" not in address:
        with closing(sqlite3.connect(address, isolation_level=None, timeout=30)) as file:
            return file.execute(sql).fetchall()
    if address.startswith("mysql"):
        found = await mariadb.execute(address, sql)  # asyncmy returns texts as bytes
        return [tuple(value.decode() if isinstance(value, bytes) else value for value in row) for row in found]
    connection = await asyncpg.connect(address)
    try:
        return [tuple(row) for row in await connection.fetch(sql)]
    finally:
        await connection.close()


async def count(address: str, sql: str) -> int:
    """The number that a query selects, or -1 while the database does not answer."""
    try:
        return int((await rows(address, sql))[0][0])
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncmy.errors.MySQLError, sqlite3.Error):
        return -1


UNFINISHED = "SELECT count(*) FROM romancy_instances WHERE ended_at IS NULL AND workflow = 'visit'"
FINISHED = "SELECT count(*) FROM romancy_instances WHERE ended_at IS NOT NULL AND workflow = 'visit'"
TWO_WRITERS = """
    SELECT instance_id, generation, epoch, count(DISTINCT worker) FROM romancy_history WHERE worker <> ''
    GROUP BY instance_id, generation, epoch HAVING count(DISTINCT worker) > 1
"""
EPOCH_FALLS = """
    SELECT a.instance_id, a.op, a.epoch, b.epoch FROM romancy_history AS a
    JOIN romancy_history AS b ON b.instance_id = a.instance_id AND b.generation = a.generation AND b.seq = a.seq + 1
    WHERE a.worker <> '' AND b.worker <> '' AND b.epoch < a.epoch
"""
WRITTEN_LATE = """
    SELECT h.instance_id, h.op, h.worker, h.epoch, j.worker, j.epoch FROM romancy_history AS h JOIN romancy_journal AS j
    ON j.instance_id = h.instance_id AND j.kind = 'claimed' AND j.epoch > h.epoch AND h.at > j.at
    WHERE h.worker <> ''
"""
"""History entries written by a worker after another worker had claimed the instance. (All processes have the same clock.)"""


async def until(
    happened: Callable[[], Any], what: str, *, seconds: float = 60.0, more: Callable[[], str] = lambda: ""
) -> None:
    """Wait until a condition holds; fail after a timeout."""
    deadline = time.monotonic() + seconds
    while not await happened():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}\n{more()}")
        await asyncio.sleep(0.05)


# --- faults


@dataclass
class FaultInjector:
    """Kills and stops workers, and restarts the server, while visits run."""

    workers: HotelWorkers
    server: Server | None
    rng: random.Random
    pause: float = 1.0
    """Maximum seconds between two faults."""
    running: list[Worker] = field(default_factory=list)
    killed: int = 0
    stopped: int = 0
    restarts: list[bool] = field(default_factory=list)
    """Whether each restart of the server was a crash."""

    def begin(self, workers: int) -> None:
        """Start the first workers."""
        self.running = [self.workers.start() for _ in range(workers)]

    async def run(self, address: str, visits: int, *, restarts: bool = True) -> None:
        """Inject faults until nearly all visits have ended."""
        marks = [(visits // 4, False), (visits // 2, True)] if restarts else []
        while (done := await count(address, FINISHED)) < visits - visits // 20:
            if marks and done >= marks[0][0]:
                await self._restart(marks.pop(0)[1])
            elif (self.killed + self.stopped) % 3 == 1:
                await self._pause_worker()
            else:
                await self._kill()
        assert marks == [], "the server was restarted as planned"

    async def _restart(self, hard: bool) -> None:
        assert self.server is not None
        await asyncio.to_thread(self.server.stop, hard=hard)
        await asyncio.to_thread(self.server.start)
        self.restarts.append(hard)

    async def _kill(self) -> None:
        victim = self.rng.randrange(len(self.running))
        await asyncio.to_thread(self.running[victim].kill)
        self.killed += 1
        await asyncio.sleep(self.rng.random() * 0.3)
        self.running[victim] = self.workers.start()
        await asyncio.sleep(self.pause * self.rng.random())

    async def _pause_worker(self) -> None:
        victim = self.rng.choice(self.running)
        victim.stop()
        self.stopped += 1
        await asyncio.sleep(LEASE * (1.5 + self.rng.random()))  # longer than the lease, so that it is declared dead
        victim.go_on()
        await asyncio.sleep(self.pause * self.rng.random())


async def stop_clerks(client: Client, clerks: int) -> None:
    """Stop the clerks after all letters have been taken."""
    for _ in range(clerks):
        await client.publish(competing_consumers.CHANNEL, competing_consumers.STOP)
    for name in competing_consumers.names(clerks):
        await client.get_handle(name).result(timeout=60)


# --- checks


async def faults(address: str, folder: Path, acknowledgements: Acknowledgements, visits: int) -> list[str]:
    """The faults found after all instances have ended."""
    wrong: list[str] = []
    wrong += _wrong_acknowledgements(acknowledgements, visits)
    wrong += await _wrong_ends(address, acknowledgements)
    wrong += await _wrong_events(address, acknowledgements)
    wrong += await _wrong_letters(address, visits)
    wrong += await _wrong_effects(address, order_workflows.read(folder / "effects"))
    for name, sql in (
        ("recorded twice", RECORDED_TWICE),
        ("gap in a history", HISTORY_WITH_GAPS),
        ("left behind", LEFT_BEHIND),
        ("nothing would wake the instance", WITHOUT_WAKE_SOURCE),
        ("two writers in one epoch", TWO_WRITERS),
        ("the epoch decreases in a history", EPOCH_FALLS),
        ("written after another worker had claimed the instance", WRITTEN_LATE),
    ):
        wrong += [f"{name}: {row}" for row in await rows(address, sql)]
    return wrong


def _wrong_acknowledgements(acknowledgements: Acknowledgements, visits: int) -> Iterator[str]:
    for name, entries, wanted in (
        ("started", acknowledgements.started, visits),
        ("paid", acknowledgements.paid, visits),
        ("sent", acknowledgements.sent, 2 * visits),
    ):
        if len(entries) != wanted or len(set(entries)) != wanted:
            yield f"{len(entries)} of {wanted} calls of the kind {name} were acknowledged"


async def _wrong_ends(address: str, acknowledgements: Acknowledgements) -> list[str]:
    """Every visit whose start was acknowledged has completed with the right result."""
    found = await rows(
        address,
        "SELECT i.id, i.status, p.output FROM romancy_instances AS i JOIN romancy_payloads AS p"
        " ON p.instance_id = i.id AND p.generation = i.generation WHERE i.workflow = 'visit'",
    )
    ends = {name: (status, None if output is None else json.loads(output)) for name, status, output in found}
    wrong = [
        f"{name} is not known to the client" for name in set(ends) - {name_of(number) for number in acknowledgements.started}
    ]
    for number in acknowledgements.started:
        end = ends.get(name_of(number))
        if end is None:
            wrong.append(f"{name_of(number)} is missing")
        elif end != ("completed", expected(number)):
            wrong.append(f"{name_of(number)} is {end}")
    return wrong


async def _wrong_events(address: str, acknowledgements: Acknowledgements) -> list[str]:
    """Every acknowledged event is stored once and was consumed once."""
    found = await rows(
        address,
        "SELECT e.id, count(t.seq) FROM romancy_events AS e LEFT JOIN romancy_consumed_events AS t ON t.seq = e.seq"
        " GROUP BY e.seq, e.id",
    )
    taken = Counter(dict(found))
    wrong = [f"event {id} was consumed {times} times" for id, times in taken.items() if times != 1]
    wrong += [
        f"event paid-{number} was acknowledged but is missing"
        for number in acknowledgements.paid
        if f"paid-{number}" not in taken
    ]
    return wrong + ([f"there are {len(found)} events"] if len(found) != len(acknowledgements.paid) else [])


async def _wrong_letters(address: str, visits: int) -> list[str]:
    """Every letter was received by one clerk."""
    found = await rows(
        address,
        "SELECT h.value FROM romancy_history AS h JOIN romancy_instances AS i ON i.id = h.instance_id"
        " WHERE i.workflow = 'clerk' AND h.kind = 'message' AND h.outcome = 'ok'",
    )
    used = Counter(json.loads(value)["data"] for (value,) in found)
    del used[competing_consumers.STOP]
    wrong = [f"letter {number} was received {used[number]} times" for number in range(visits) if used[number] != 1]
    return wrong + [f"no visit has published letter {number}" for number in used if number not in range(visits)]


async def _wrong_effects(address: str, lines: list[order_workflows.Line]) -> list[str]:
    """Activities ran in the worker that recorded them, and again only where the worker had lost the instance."""
    done = {(line.instance, line.op, line.worker) for line in lines if line.what == "done"}
    recorded = await rows(
        address,
        "SELECT instance_id, op, worker FROM romancy_history WHERE kind = 'activity' AND name IN ('welcome', 'clean')",
    )
    wrong = [
        f"{op} of {one} is recorded by {worker}, which did not run it"
        for one, op, worker in recorded
        if (one, op, worker) not in done
    ]
    return wrong + await wrong_repetitions(address, lines)


async def wrong_repetitions(address: str, lines: list[order_workflows.Line]) -> list[str]:
    """Attempts that began again although their worker kept the instance, or under another idempotency key."""
    taken_from = set(
        await rows(address, "SELECT instance_id, worker FROM romancy_journal WHERE kind IN ('lost', 'released')")
    )
    wrong: list[str] = []
    begun: dict[tuple[str, str, int], list[order_workflows.Line]] = {}
    names: dict[str, set[tuple[str, str]]] = {}
    for line in lines:
        names.setdefault(line.key, set()).add((line.instance, line.op))
        if line.what != "done":
            begun.setdefault((line.key, line.what, line.attempt), []).append(line)
    for (key, what, attempt), times in begun.items():
        wrong += [
            f"{what} of {key}, attempt {attempt}, came {len(times)} times, but {line.worker} had not lost the instance"
            for line in times[:-1]
            if (line.instance, line.worker) not in taken_from
        ]
    return wrong + [f"{key} is the idempotency key of {sorted(some)}" for key, some in names.items() if len(some) > 1]


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    with suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))

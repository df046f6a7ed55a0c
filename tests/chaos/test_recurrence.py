"""A workflow that recurs thousands of times: each round costs the same, and none is lost or duplicated."""

from __future__ import annotations

import asyncio
import gc
import random
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.chaos import order_workflows, recurrence_chain
from tests.chaos.message_workers import MessageWorkers
from tests.chaos.worker_processes import HISTORY_WITH_GAPS, LEFT_BEHIND, WITHOUT_WAKE_SOURCE, rows, until

from romancy import App, Client
from romancy.store.sql.unit_of_work import UnitOfWork
from romancy.store.sqlite.cursor import SqliteCursor
from romancy.store.sqlite.store import SqliteStore

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

FOR_EVER = 20_000
CHAIN, KILLS = 6_000, 5
QUIET: dict[str, Any] = {"poll_interval": 3600, "heartbeat_interval": 600, "lease_timeout": 3600}
"""Options with which nothing but the workflow reads or writes."""
WINDOW = 20


# --- cost of a round


@dataclass
class Cost:
    """The cost of some rounds, counted rather than timed."""

    statements: int = 0
    instructions: int = 0
    """Instructions of SQLite's virtual machine; a query that reads more and more rows takes more and more of them."""
    rows: int = 0
    """Changed rows."""
    blocks: int = 0
    """Blocks of memory held by this process at the end."""


@dataclass
class Meter:
    """Counts what happens on the store's connections during an early and a late window of rounds."""

    begins: tuple[int, ...]
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the last window has been counted."""
    costs: list[Cost] = field(default_factory=list[Cost])
    _connections: tuple[sqlite3.Connection, ...] = ()
    _changed: int = 0

    def watch(self, app: App) -> None:
        """Count on the connections of this app."""
        store = app._store
        assert isinstance(store, SqliteStore)
        store.on_remote_commit = None
        session = store._file._session
        assert session is not None
        self._connections = (session.writer, session.reader)
        recurrence_chain.on_tick = self._tick

    def _tick(self, number: int) -> None:
        if number in self.begins:
            self.costs.append(Cost())
            self._changed = self._changes()
            self._set_callbacks(self._count_statement, self._count_instruction)
        elif number - WINDOW in self.begins:
            self._set_callbacks(None, None)
            cost = self.costs[-1]
            cost.rows = self._changes() - self._changed
            gc.collect()
            cost.blocks = sys.getallocatedblocks()
            if len(self.costs) == len(self.begins):
                self.over.set()

    def _set_callbacks(self, on_statement: Callable[[str], None] | None, on_instruction: Callable[[], None] | None) -> None:
        for connection in self._connections:
            connection.set_trace_callback(on_statement)
            connection.set_progress_handler(on_instruction, 1)

    def _changes(self) -> int:
        return sum(connection.total_changes for connection in self._connections)

    def _count_statement(self, statement: str) -> None:
        self.costs[-1].statements += 1

    def _count_instruction(self) -> None:
        self.costs[-1].instructions += 1


Measured: TypeAlias = Callable[..., Awaitable[tuple[Cost, Cost]]]


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measured:
    """Runs the chain in this process; returns the cost of an early and of a late window."""
    monkeypatch.setattr(recurrence_chain, "on_tick", recurrence_chain.on_tick)

    async def run(rounds: int, *, archive: bool = True) -> tuple[Cost, Cost]:
        meter = Meter((rounds // 10, rounds - WINDOW))
        database = str(tmp_path / f"{rounds}-{archive}.db")
        async with App(database, workflows=[recurrence_chain.chain], archive_history=archive, **QUIET) as app:
            meter.watch(app)
            handle = await app.start_workflow(recurrence_chain.chain, 1, rounds)
            await meter.over.wait()  # waiting for the result would poll, and the queries would be counted
            assert await handle.result() == [rounds, rounds]
        early, late = meter.costs
        print(f"{rounds} rounds, archive {archive}; {WINDOW} early: {early}; late: {late}")
        return early, late

    return run


def grown(early: Cost, late: Cost) -> list[str]:
    """What costs more late than early. Memory may differ by what the garbage collector and caches hold."""
    found = [name for name in ("statements", "instructions", "rows") if getattr(late, name) > getattr(early, name)]
    return found + ["blocks"] * (late.blocks > early.blocks + 500)


async def test_a_round_costs_the_same_for_ever(measured: Measured) -> None:
    early, late = await measured(FOR_EVER)
    assert grown(early, late) == []
    assert early.statements >= WINDOW
    assert early.instructions > early.statements


async def test_a_round_costs_the_same_without_an_archive(measured: Measured, tmp_path: Path) -> None:
    early, late = await measured(1_000, archive=False)
    assert grown(early, late) == []
    with sqlite3.connect(tmp_path / "1000-False.db") as connection:
        assert connection.execute("SELECT generation FROM romancy_payloads").fetchall() == [(1_000,)]
    connection.close()


async def test_the_meter_finds_a_round_that_reads_its_predecessors(
    measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_next_generation = UnitOfWork.start_next_generation

    def look_back(unit: UnitOfWork, *args: Any, **kwargs: Any) -> None:
        start_next_generation(unit, *args, **kwargs)
        assert isinstance(unit.cursor, SqliteCursor)
        unit.cursor.raw.execute("SELECT count(*) FROM romancy_payloads WHERE input <> ''").fetchone()

    monkeypatch.setattr(UnitOfWork, "start_next_generation", look_back)
    assert grown(*await measured(300)) == ["instructions"]


async def test_the_meter_finds_memory_that_is_never_freed(measured: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[object] = []
    start_next_generation = UnitOfWork.start_next_generation

    def keep(unit: UnitOfWork, *args: Any, **kwargs: Any) -> None:
        kept.append([object()])
        start_next_generation(unit, *args, **kwargs)

    monkeypatch.setattr(UnitOfWork, "start_next_generation", keep)
    assert grown(*await measured(1_000)) == ["blocks"]


# --- completeness of the chain


async def test_the_chain_goes_on_in_other_hands(tmp_path: Path) -> None:
    rng, killed = random.Random(4), set[int]()
    with MessageWorkers(tmp_path) as workers:
        worker = workers.start()
        async with Client(str(tmp_path / "chaos.db"), workflows=[recurrence_chain.chain]) as client:
            first = recurrence_chain.chain.with_options(instance_id=recurrence_chain.NAME)
            handle = await client.start_workflow(first, 1, CHAIN, True)
            for number in range(1, KILLS + 1):
                far_enough = number * CHAIN // (KILLS + 1) + rng.randrange(200)
                await until(lambda: recurrence_chain.generation(tmp_path) >= far_enough, "it recurs")  # noqa: B023
                worker.kill()
                killed.add(worker.pid)
                assert rows(tmp_path, WITHOUT_WAKE_SOURCE) == []
                worker = workers.start()
            assert await handle.result(timeout=200) == [CHAIN, CHAIN]
    assert recurrence_chain.faults(tmp_path, CHAIN, killed) == []
    for query in (HISTORY_WITH_GAPS, LEFT_BEHIND):
        assert rows(tmp_path, query) == []
    assert "Traceback" not in workers.texts()


# --- tests of the checks


@pytest.fixture
async def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a chain of twenty rounds without faults."""
    monkeypatch.setenv(order_workflows.EFFECT_LOG, str(tmp_path / "effects"))
    async with App(str(tmp_path / "chaos.db"), workflows=[recurrence_chain.chain]) as app:
        handle = await app.start_workflow(
            recurrence_chain.chain.with_options(instance_id=recurrence_chain.NAME), 1, 20, True
        )
        assert await handle.result() == [20, 20]
    assert recurrence_chain.faults(tmp_path, 20, set()) == []
    return tmp_path


@pytest.mark.parametrize(
    ("plant", "complaint"),
    [
        ("DELETE FROM romancy_payloads WHERE generation = 7", "generation 7 is missing or has another input"),
        ("DELETE FROM romancy_history WHERE generation = 8", "generation 8 recorded 0 rounds"),
        ("UPDATE romancy_payloads SET input = (SELECT input FROM romancy_payloads WHERE generation = 3)"
         " WHERE generation = 4", "generation 4 is missing or has another input"),
        ("UPDATE romancy_payloads SET generation = 21 WHERE generation = 20", "generation 21 should not exist"),
    ],
    ids=["missing", "unrecorded", "repeated", "one too many"],
)  # fmt: skip
async def test_the_checks_find_a_broken_chain(chain: Path, plant: str, complaint: str) -> None:
    connection = sqlite3.connect(chain / "chaos.db")
    with connection:
        connection.execute(plant)
    connection.close()
    assert complaint in recurrence_chain.faults(chain, 20, set())


async def test_the_checks_find_a_round_that_runs_twice(chain: Path) -> None:
    lines = (chain / "effects").read_text().strip().split("\n\n")
    (chain / "effects").write_text("\n".join([*lines[:5], lines[4], *lines[5:]]))
    assert recurrence_chain.faults(chain, 20, set()) == ["round 5 ran again without a kill"]

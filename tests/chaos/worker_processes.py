"""Worker processes that tests kill, stop and replace, and queries on their database."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.chaos import order_workflows

ROOT = Path(__file__).parents[2]
HEARTBEAT, LEASE = 0.2, 1.0


class Worker:
    """One worker process."""

    def __init__(self, folder: Path, name: str) -> None:
        self.log = folder / f"{name}.log"
        environment = {
            **os.environ,
            order_workflows.EFFECT_LOG: str(folder / "effects"),
            order_workflows.GATE: str(folder / "gate"),
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
        }
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.order_worker", str(folder / "chaos.db"), name],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def kill(self) -> None:
        """Kill the process, as a power failure would."""
        self._process.kill()
        self._process.wait(timeout=10)
        assert self._process.stdin is not None
        self._process.stdin.close()

    def stop(self) -> None:
        """Stop the process with SIGSTOP."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Continue the process with SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def text(self) -> str:
        """The log of the process."""
        return self.log.read_text(errors="replace")


class Workers:
    """The worker processes of one test; all are killed at its end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._all: list[Worker] = []

    def start(self) -> Worker:
        """Start another worker."""
        worker = Worker(self._folder, f"w{len(self._all) + 1}")
        self._all.append(worker)
        return worker

    def texts(self) -> str:
        """The logs of all workers."""
        return "\n".join(worker.text() for worker in self._all)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for worker in self._all:
            worker.kill()


async def until(happened: Callable[[], bool], what: str, *, seconds: float = 60.0) -> None:
    """Wait until a condition holds; fail after a timeout."""
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        await asyncio.sleep(0.02)


def rows(folder: Path, sql: str, *values: object) -> list[tuple[Any, ...]]:
    """The rows that a query selects, over a read-only connection."""
    with closing(sqlite3.connect(f"file:{folder / 'chaos.db'}?mode=ro", uri=True, timeout=30)) as connection:
        return connection.execute(sql, values).fetchall()


@contextmanager
def write_lock(folder: Path) -> Iterator[None]:
    """Hold the write lock of the file, as a long transaction of a user does."""
    with closing(sqlite3.connect(folder / "chaos.db", isolation_level=None, timeout=30)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            connection.execute("ROLLBACK")


WITHOUT_WAKE_SOURCE = """
    SELECT id, status FROM romancy_instances
    WHERE ended_at IS NULL AND status NOT IN ('paused', 'blocked') AND owner IS NULL AND wake_at IS NULL
        AND id NOT IN (SELECT instance_id FROM romancy_waits WHERE kind IN ('event', 'message'))
"""
"""Instances without an owner that nothing will wake. (Owned instances are run by their owner, or swept after its death.)"""

RECORDED_TWICE = """
    SELECT instance_id, op, count(*) FROM romancy_history
    WHERE role <> 3 GROUP BY instance_id, generation, op HAVING count(*) > 1
"""
HISTORY_WITH_GAPS = """
    SELECT i.id, count(h.seq), max(h.seq) FROM romancy_instances AS i
    LEFT JOIN romancy_history AS h ON h.instance_id = i.id AND h.generation = i.generation
    GROUP BY i.id HAVING coalesce(max(h.seq), 0) <> count(h.seq)
"""
LEFT_BEHIND = """
    SELECT instance_id, 'wait' FROM romancy_waits UNION ALL SELECT instance_id, 'inbox item' FROM romancy_inbox
    UNION ALL SELECT instance_id, 'open attempt' FROM romancy_attempts WHERE open = 1
"""

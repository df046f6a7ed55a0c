"""A short soak on each database; `make soak` runs long ones. Times depend on the machine and are not judged."""

from __future__ import annotations

import csv
import os
import threading
from pathlib import Path

import pytest
from benchmarks.memory import resident_mb
from tests import databases
from tests.chaos.campaign import database_targets
from tests.soak.soak import Soak, soak
from tests.soak.trend import TIMES

pytestmark = [pytest.mark.chaos, pytest.mark.slow]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", [kind for kind in database_targets.KINDS if kind in databases.names()])
async def test_nothing_grows(kind: str, tmp_path: Path) -> None:
    if reason := database_targets.why_not(kind):
        pytest.skip(reason)
    verdicts = await soak(Soak(kind, 10, tmp_path))
    assert [str(one) for one in verdicts if not one.is_flat and one.name not in TIMES] == []
    assert {"memory_mb", "threads", "files", "rows:romancy_history", *TIMES} <= {one.name for one in verdicts}
    with (tmp_path / "samples.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 20
    assert sum(float(row["ended"]) for row in rows) == 180  # nine tenths of the units are workflows


@pytest.mark.timeout(120)
async def test_a_leak_is_found(tmp_path: Path) -> None:
    stop = threading.Event()
    kept: list[bytes] = []
    leaked = 4_000_000 + round(resident_mb() * 50_000)  # a twentieth of what other tests use
    files: list[int] = []
    threads: list[threading.Thread] = []

    def leak() -> None:
        kept.append(b"x" * leaked)
        files.extend(os.dup(0) for _ in range(3))
        threads.append(threading.Thread(target=stop.wait))
        threads[-1].start()

    try:
        verdicts = await soak(Soak("sqlite", 10, tmp_path, rate=80, keeps=True, leak=leak))
    finally:
        stop.set()
        for file in files:
            os.close(file)
        for thread in threads:
            thread.join()
    grows = {one.name for one in verdicts if not one.is_flat}
    assert {"memory_mb", "threads", "files", "rows:romancy_history", "rows:romancy_events"} <= grows

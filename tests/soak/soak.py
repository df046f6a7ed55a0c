"""A soak, from an empty database to the verdicts."""

from __future__ import annotations

import asyncio
import csv
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from tests.chaos.campaign import database_targets
from tests.soak import samples
from tests.soak.load import WORKFLOWS, Load
from tests.soak.trend import TIMES, Sample, Verdict, judge

from romancy import App
from romancy.clock import MICROS
from romancy.store.mysql import database as mysql
from romancy.store.mysql import notifier
from romancy.store.postgres import database as postgres
from romancy.store.sql import server
from romancy.worker import maintenance

_SAMPLES = 240
"""The maximum number of samples."""
_OFTEN = 0.5
"""The minimum seconds between two samples."""
_EIGHTH = 8
"""Retention is this fraction of the run, so that from the second quarter on as much is deleted as is added."""


@dataclass(frozen=True)
class Soak:
    """The settings of a soak."""

    kind: str
    seconds: float
    folder: Path
    rate: float = 20.0
    """Workflows per second."""
    keeps: bool = False
    """Disable retention, to test that growth is found."""
    leak: Callable[[], object] | None = None
    """Called with each sample, to test that a leak is found."""

    @property
    def retention(self) -> float:
        """Retention in seconds."""
        return self.seconds / _EIGHTH


async def soak(wanted: Soak, say: Callable[[str], None] = lambda text: None) -> list[Verdict]:
    """Run the load, write samples to a file, and judge them."""
    # Autovacuum runs once a minute by default, and these tables turn over several times in a minute.
    settings = ["autovacuum_naptime=1s"] if wanted.kind == "postgres" else []
    place = await asyncio.to_thread(database_targets.begin, wanted.kind, wanted.folder, *settings)
    try:
        with _short_retention(wanted):
            taken = await _run(wanted, place.address, say)
    finally:
        place.remove()
    return judge(taken)


async def _run(wanted: Soak, address: str, say: Callable[[str], None]) -> list[Sample]:
    kept = None if wanted.keeps else wanted.retention
    app = App(
        address,
        workflows=WORKFLOWS,
        heartbeat_interval=min(1.0, wanted.retention / 4),
        lease_timeout=30,
        cache_size=50,
        instance_retention=kept,
        archive_retention=kept,
        audit_retention=kept,
        event_retention=kept,
        message_retention=kept,
    )
    over = asyncio.Event()
    async with app, asyncio.TaskGroup() as group:
        load = Load(app, wanted.rate)
        group.create_task(load.run(over))
        try:
            return await _sample(wanted, address, load, say)
        finally:
            over.set()


async def _sample(wanted: Soak, address: str, load: Load, say: Callable[[str], None]) -> list[Sample]:
    every = max(_OFTEN, wanted.seconds / _SAMPLES)
    taken: list[Sample] = []
    began = time.monotonic()
    while (now := time.monotonic() - began) < wanted.seconds:
        await asyncio.sleep(every)
        took, ended = load.take_measurements()
        sample = {"at_s": now, "ended": float(ended), **samples.of_process(), **samples.of_times(took)}
        sample |= await samples.of_database(address)
        taken.append(sample)
        if wanted.leak is not None:
            wanted.leak()
        _write(wanted.folder / "samples.csv", taken)
        if len(taken) % (_SAMPLES // 10) == 0:
            say(f"{now:6.0f} s: {sample['memory_mb']:.0f} MB, {_rows(sample):.0f} rows, {sample.get('p50_ms', 0):.1f} ms")
    return taken


def _rows(sample: Sample) -> float:
    return sum(value for name, value in sample.items() if name.startswith("rows:"))


def _write(path: Path, taken: list[Sample]) -> None:
    """Append the last sample. A column that appears later is empty before."""
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list({**taken[0], **dict.fromkeys(TIMES)}), extrasaction="ignore")
        if is_new:
            writer.writeheader()
        writer.writerow({name: f"{value:.3f}".rstrip("0").rstrip(".") for name, value in taken[-1].items()})


@contextmanager
def _short_retention(wanted: Soak) -> Iterator[None]:
    """Shorten all built-in retention periods to that of the soak, so that every kind of deletion happens."""
    kept, soon = round(wanted.retention * MICROS), wanted.retention / 4
    with ExitStack() as stack:
        for module, name, value in (
            (postgres, "_COMMIT_TOKEN_RETENTION", kept),
            (mysql, "_COMMIT_TOKEN_RETENTION", kept),
            (notifier, "_TIDY_INTERVAL", soon),
            (server, "_CLOCK_EVERY", soon),
            (maintenance, "_ROLL_UP_RETENTION", kept),
        ):
            stack.enter_context(patch.object(module, name, value))
        yield

"""A soak, from an empty database to the verdicts.

The load comes in waves of the same number of workflows. A sample is taken between two waves, when all workflows of the wave
have ended and all that is past its retention is deleted: so the samples do not depend on how fast the machine is.
"""

from __future__ import annotations

import asyncio
import csv
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
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

_WAVES = 240
"""The maximum number of waves, and so of samples."""
_SHORTEST_WAVE = 0.5
"""The minimum seconds of a wave at its rate, on a machine that keeps up."""
_RETENTION = 0.1
"""Every kind of retention in seconds: each wave deletes what it has made."""


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
    def waves(self) -> int:
        """The number of waves."""
        return max(1, min(_WAVES, round(self.seconds / _SHORTEST_WAVE)))

    @property
    def wave_size(self) -> int:
        """The number of workflows in a wave."""
        return max(1, round(self.rate * self.seconds / self.waves))


async def soak(wanted: Soak, say: Callable[[str], None] = lambda text: None) -> list[Verdict]:
    """Run the load, write samples to a file, and judge them."""
    # Autovacuum runs once a minute by default, and these tables turn over several times in a minute.
    settings = ["autovacuum_naptime=1s"] if wanted.kind == "postgres" else []
    place = await asyncio.to_thread(database_targets.begin, wanted.kind, wanted.folder, *settings)
    try:
        with _short_retention():
            taken = await _run(wanted, place.address, say)
    finally:
        place.remove()
    return judge(taken)


async def _run(wanted: Soak, address: str, say: Callable[[str], None]) -> list[Sample]:
    app = App(address, workflows=WORKFLOWS, heartbeat_interval=1.0, lease_timeout=30, cache_size=50)
    taken: list[Sample] = []
    async with app:
        load, prune = Load(app, wanted.rate), _take_over_pruning(app)
        await load.begin()
        began = time.monotonic()
        for number in range(1, wanted.waves + 1):
            await load.run_wave(wanted.wave_size)
            if not wanted.keeps:
                await prune()
            taken.append(await _sample(time.monotonic() - began, address, load))
            if wanted.leak is not None:
                wanted.leak()
            _write(wanted.folder / "samples.csv", taken)
            if number % (_WAVES // 10) == 0:
                say(_describe(taken[-1]))
    return taken


def _take_over_pruning(app: App) -> Callable[[], Awaitable[None]]:
    """Keep the app from pruning during a wave, and return what prunes everything after it.

    A retention this short is refused as an option, since an event could be deleted before the workflow waits for it.
    """
    maintenance, worker = app._maintenance, app._worker
    assert maintenance is not None
    assert worker is not None
    original = maintenance._prune
    worker.options = replace(
        worker.options,
        instance_retention=_RETENTION,
        archive_retention=_RETENTION,
        audit_retention=_RETENTION,
        event_retention=_RETENTION,
        message_retention=_RETENTION,
    )

    async def prune() -> None:
        await asyncio.sleep(2 * _RETENTION)
        while await app._store.verified_time() is None:  # it is read again soon
            await asyncio.sleep(_RETENTION)
        await original()

    async def prune_later() -> None:
        """Leave it to the end of the wave."""

    maintenance._prune = prune_later  # type: ignore[method-assign]
    return prune


async def _sample(at: float, address: str, load: Load) -> Sample:
    took, ended = load.take_measurements()
    sample = {"at_s": at, "ended": float(ended), **samples.of_process(), **samples.of_times(took)}
    return sample | await samples.of_database(address)


def _describe(sample: Sample) -> str:
    return (
        f"{sample['at_s']:6.0f} s: {sample['memory_mb']:.0f} MB, {_rows(sample):.0f} rows, {sample.get('p50_ms', 0):.1f} ms"
    )


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
def _short_retention() -> Iterator[None]:
    """Shorten all built-in retention periods to that of the soak, so that every kind of deletion happens."""
    kept, soon = round(_RETENTION * MICROS), _RETENTION
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

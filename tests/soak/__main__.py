"""Command line of the soak, used by `make soak [MINUTES=20] [DATABASE=sqlite|postgres|mariadb|all]`."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
from pathlib import Path

from tests.chaos.campaign import database_targets
from tests.chaos.worker_processes import ROOT
from tests.soak.soak import Soak, soak


def main() -> int:
    """Run a soak on each database; returns 1 if anything grows."""
    given = _arguments()
    return database_targets.on_each(
        given.database, lambda kind: _one(kind, 60 * given.minutes, given.folder / kind, given.rate)
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="duration in minutes (default: %(default)s)")
    parser.add_argument(
        "--database",
        choices=[*database_targets.KINDS, "all"],
        default="all",
        help="database to run on (default: %(default)s)",
    )
    parser.add_argument("--rate", type=float, default=20.0, help="workflows per second (default: %(default)s)")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build" / "soak", help="folder for the samples (default: %(default)s)"
    )
    return parser.parse_args()


def _one(kind: str, seconds: float, folder: Path, rate: float) -> int:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    print(f"{kind}: {seconds:g} s, {rate:g} workflows per second, all samples in {folder / 'samples.csv'}", flush=True)
    verdicts = asyncio.run(soak(Soak(kind, seconds, folder, rate), lambda text: print(f"  {text}", flush=True)))
    for verdict in verdicts:
        print(f"  {verdict}")
    return 0 if all(verdict.is_flat for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())

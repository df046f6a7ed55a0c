"""Command line of the campaign, used by `make chaos [MINUTES=10] [DATABASE=sqlite|postgres|mariadb|all] [SEED=n]`."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import time
from collections import Counter
from pathlib import Path

from tests.chaos.campaign import database_targets
from tests.chaos.campaign.campaign import Campaign, Report, run_campaign
from tests.chaos.worker_processes import ROOT

_SHOWN = 20


def main() -> int:
    """Run a campaign on each database; returns 1 if any fault was found."""
    given = _arguments()
    seed: int = time.time_ns() % 1_000_000 if given.seed is None else given.seed
    return database_targets.on_each(
        given.database, lambda kind: _one(kind, 60 * given.minutes, seed, given.folder / f"{kind}-{seed}")
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.campaign", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="minutes during which faults are injected (default: %(default)s)"
    )
    parser.add_argument(
        "--database",
        choices=[*database_targets.KINDS, "all"],
        default="all",
        help="database to run on (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, help="seed of the plan (default: a new one each time)")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build" / "chaos", help="folder for the evidence (default: %(default)s)"
    )
    return parser.parse_args()


def _one(kind: str, seconds: float, seed: int, folder: Path) -> int:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began = time.monotonic()
    print(f"{kind}, seed {seed}", flush=True)
    report = asyncio.run(run_campaign(Campaign(kind, seconds, seed, folder), lambda text: _say(began, text)))
    _show(report)
    if report.faults:
        print(f"  FAULTS: the evidence is in {folder}; to repeat the plan: SEED={seed} DATABASE={kind}")
        return 1
    print("  nothing acknowledged is lost, nothing refused was done, nothing is duplicated or out of order")
    shutil.rmtree(folder)
    return 0


def _say(began: float, text: str) -> None:
    print(f"  {time.monotonic() - began:6.1f} s  {text}", flush=True)


def _show(report: Report) -> None:
    for kind, times in sorted(report.injected.items()):
        print(f"  {times:6}  {kind}")
    for what, number in report.totals.items():
        print(f"  {number:6}  {what}")
    for sort, times in Counter(fault.sort for fault in report.faults).items():
        print(f"  {times:6}  FAULTS of the sort `{sort}`")
    for fault in report.faults[:_SHOWN]:
        print(f"          {fault}")


if __name__ == "__main__":
    sys.exit(main())

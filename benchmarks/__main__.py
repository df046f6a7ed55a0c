"""`python -m benchmarks [what] [--quick] [--rounds N]`"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from benchmarks import (
    channel,
    history,
    layers,
    million,
    plans,
    postgres,
    records,
    recurrence,
    report_page,
    scale,
    sleepers,
    throughput,
    timers,
    wakeups,
)
from benchmarks.report import LATEST

_ALL: dict[str, Callable[..., None]] = {
    "throughput": throughput.measure,
    "history": history.measure,
    "sleeping": sleepers.measure,
    "waking": wakeups.measure,
    "timers": timers.measure,
    "channel": channel.measure,
    "recurring": recurrence.measure,
    "records": records.measure,
    "profile": layers.measure,
    "postgres": postgres.measure,
    "plans": plans.measure,
    "million": million.measure,
    "scaling": scale.measure,
}


def main() -> None:
    """Run the benchmarks that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure how fast romancy is.")
    parser.add_argument("what", nargs="?", default="all", choices=["all", *_ALL, "page"], help="run this benchmark only")
    parser.add_argument("--quick", action="store_true", help="little work and one round: for a check while developing")
    parser.add_argument("--rounds", type=int, help="how often each comparison is repeated")
    given = parser.parse_args()
    if given.what != "page":
        for name in _ALL if given.what == "all" else [given.what]:
            _ALL[name](quick=given.quick, rounds=given.rounds)
        print(f"\nWritten to {LATEST}")
    if given.what == "page" or (given.what == "all" and not given.quick):
        report_page.write()


if __name__ == "__main__":
    main()

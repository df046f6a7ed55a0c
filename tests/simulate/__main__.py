"""Command line of the simulation: `python -m tests.simulate [--seeds N] [--seed FIRST] [--trace] [--all] [--plant NAME]`."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack

from tests.simulate.planted_faults import FAULTS, planted
from tests.simulate.seed_run import Report, simulate


def main() -> int:
    """Run the seeds and stop at the first failure; with `--all`, run every seed. Returns the exit code."""
    given = _arguments()
    begun, virtual, failed = time.monotonic(), 0.0, 0
    with ExitStack() as stack:
        for fault in FAULTS:
            if fault.name == given.plant:
                stack.enter_context(planted(fault))
        for seed in range(given.seed, given.seed + given.seeds):
            report = simulate(seed)
            virtual += report.seconds
            failed += bool(report.faults)
            _print_report(report, trace=given.trace)
            if failed and not given.all:
                return 1
    if failed:
        print(f"{failed} of {given.seeds} seeds failed")
        return 1
    took = time.monotonic() - begun
    print(f"{given.seeds} seeds from {given.seed} on passed: {virtual:,.0f} s simulated in {took:.1f} s")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulate", description="Run the engine under simulated faults.")
    parser.add_argument("--seeds", type=int, default=1000, help="number of seeds (default: 1000)")
    parser.add_argument("--seed", type=int, default=1, help="first seed (default: 1)")
    parser.add_argument("--trace", action="store_true", help="print the trace of each seed")
    parser.add_argument("--all", action="store_true", help="continue after a seed that fails")
    parser.add_argument("--plant", choices=[fault.name for fault in FAULTS], help="plant this fault in the engine first")
    return parser.parse_args()


def _print_report(report: Report, *, trace: bool) -> None:
    if trace:
        print("\n".join(report.trace))
        print(f"seed {report.seed}: trace {report.digest}")
    if report.faults:
        print(f"seed {report.seed} FAILED (trace {report.digest}):")
        print("\n".join(f"  {fault}" for fault in report.faults))
        print(f"To reproduce it with a trace: make simulate SEEDS=1 SEED={report.seed} TRACE=1")


if __name__ == "__main__":
    sys.exit(main())

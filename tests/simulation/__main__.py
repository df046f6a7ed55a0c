"""`python -m tests.simulation [--seeds N] [--seed FIRST] [--trace]`"""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.run import simulate


def main() -> int:
    """Run seeds until one fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Simulate the engine, with faults.")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="the first")
    parser.add_argument("--trace", action="store_true", help="print everything that happens")
    parser.add_argument("--all", action="store_true", help="go on after a seed that fails")
    given = parser.parse_args()
    begun, virtual, failed = time.monotonic(), 0.0, 0
    for seed in range(given.seed, given.seed + given.seeds):
        report = simulate(seed)
        virtual += report.seconds
        if given.trace:
            print("\n".join(report.trace))
        if report.faults:
            print(f"seed {seed} FAILED (trace {report.digest}):")
            print("\n".join(f"  {fault}" for fault in report.faults))
            print(f"Again, with all that happens: make simulate SEEDS=1 SEED={seed} TRACE=1")
            failed += 1
            if not given.all:
                return 1
    if failed:
        print(f"{failed} of {given.seeds} seeds failed")
        return 1
    print(f"{given.seeds} seeds from {given.seed} on are clean: {virtual:.0f} s simulated in {time.monotonic() - begun:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())

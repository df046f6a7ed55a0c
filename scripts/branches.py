"""Reports the branches that the tests take and those that they do not: `branches.py coverage.json`. Fails under 95 %."""

from __future__ import annotations

import json
import linecache
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

ENOUGH = 95.0


def packages(files: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Return the numbers of taken branches and of all branches, for each package below `romancy`."""
    found: dict[str, tuple[int, int]] = {}
    for path, file in files.items():
        name = Path(path).parts[Path(path).parts.index("romancy") + 1]
        taken, known = found.get(name, (0, 0))
        summary = file["summary"]
        found[name] = taken + summary["covered_branches"], known + summary["num_branches"]
    return found


def show(path: str, missing: list[list[int]]) -> None:
    """Print the branches of a file that are not taken, each with the line where it starts."""
    print(f"\n{path}")
    for start, branches in groupby(sorted(missing), key=lambda branch: branch[0]):
        ends = ", ".join("the end" if end < 0 else str(end) for _, end in branches)
        print(f"  {start:4} -> {ends:<12} {linecache.getline(path, start).strip()[:100]}")


def main(report: str) -> int:
    """Print the report, with the totals of the packages at the end."""
    files = json.loads(Path(report).read_text())["files"]
    for path, file in sorted(files.items()):
        if file["missing_branches"]:
            show(path, file["missing_branches"])
    print()
    short = False
    for name, (taken, known) in sorted(packages(files).items()):
        share = 100 * taken / known
        short |= share < ENOUGH
        print(f"{name:8} {taken} of {known} branches, {share:.1f} %")
    return int(short)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

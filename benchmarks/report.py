"""Tables for people, and `results/latest.json` for programs."""

from __future__ import annotations

import json
import operator
import os
import platform
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

LATEST = Path(__file__).parent / "results" / "latest.json"
_printed: list[dict[str, Any]] = []
"""The tables printed so far for the section that is being measured."""
_COMPARE = {">=": operator.ge, "<=": operator.le, "<": operator.lt}


@dataclass(frozen=True, slots=True)
class Target:
    """A figure, and the goal it should reach."""

    what: str
    value: float
    sign: Literal[">=", "<=", "<"]
    goal: float
    unit: str = ""

    @property
    def reached(self) -> bool:
        """Whether the figure reaches its goal."""
        return bool(_COMPARE[self.sign](self.value, self.goal))

    def __str__(self) -> str:
        word = "PASS" if self.reached else "FAIL"
        return f"{word}  {self.what}: {figure(self.value)}{self.unit} (target {self.sign} {self.goal:g}{self.unit})"


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]], notes: Sequence[str] = ()) -> None:
    """Print a table: the first column aligned to the left, the others to the right."""
    lines = [list(head), *([_cell(cell) for cell in row] for row in rows)]
    _printed.append({"title": title, "lines": lines, "notes": list(notes)})
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    print(f"\n{title}\n")
    for number, line in enumerate(lines):
        print("  " + "  ".join(_align(cell, widths[column], column) for column, cell in enumerate(line)).rstrip())
        if number == 0:
            print("  " + "  ".join("-" * width for width in widths))
    for note in notes:
        print(f"  {note}")


def judge(targets: Sequence[Target]) -> None:
    """Print which targets were reached."""
    print()
    for target in targets:
        print(f"  {target}")


def save(section: str, figures: dict[str, Any], targets: Sequence[Target], *, quick: bool) -> None:
    """Save a section's figures in the file of results; the other sections stay."""
    known: dict[str, Any] = json.loads(LATEST.read_text("utf-8")) if LATEST.exists() else {}
    judged = [{**asdict(target), "reached": target.reached} for target in targets]
    known[section] = {"measured": _circumstances(quick), "figures": figures, "targets": judged, "tables": [*_printed]}
    _printed.clear()
    LATEST.parent.mkdir(exist_ok=True)
    LATEST.write_text(json.dumps(known, indent=2) + "\n", "utf-8")


def figure(value: float) -> str:
    """Format a number with about three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _circumstances(quick: bool) -> dict[str, Any]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": quick,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }


def _cell(cell: object) -> str:
    return figure(cell) if isinstance(cell, int | float) and not isinstance(cell, bool) else str(cell)


def _align(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column == 0 else cell.rjust(width)

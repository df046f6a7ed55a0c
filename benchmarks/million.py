"""Measures how long operators wait for every call and every page with a million instances."""

from __future__ import annotations

from benchmarks.child import Figures, folder, run
from benchmarks.postgres_server import serving
from benchmarks.report import Target, judge, save, table

MILLISECONDS = 300
_PARTS = {"calls": "Queries", "searches": "Searches with a time limit", "pages": "Pages of the viewer", "actions": "Actions"}


def measure(*, quick: bool, rounds: int | None = None) -> None:
    """Fill a file and a server's database, time every call and every page, print the tables, save the figures."""
    instances, times = (20_000, 3) if quick else (1_000_000, 9)
    found: dict[str, Figures] = {}
    with folder() as directory:
        found["SQLite"] = _measured(str(directory / "million.db"), instances, times * (rounds or 1))
    with serving() as server, server.database() as database:
        found["PostgreSQL"] = _measured(database, instances, times * (rounds or 1))
    targets: list[Target] = []
    for part, title in _PARTS.items():
        _print(f"{title}, {instances:,} instances: milliseconds", {name: one[part] for name, one in found.items()})
        for name, one in found.items():
            if one[part]:
                slowest, times_of = max(one[part].items(), key=lambda item: item[1]["median"])
                what = f"{name}: {title.lower()}, the slowest ({slowest})"
                targets.append(Target(what, times_of["median"] * 1e3, "<", MILLISECONDS, " ms"))
    judge(targets)
    save("million", {"instances": instances, "times": found}, targets, quick=quick)


def _measured(database: str, instances: int, times: int) -> Figures:
    filled = run("romancy_million", {"task": "fill", "database": database, "instances": instances})
    print(f"  filled in {filled['seconds']:.0f} s", flush=True)
    return run("romancy_million", {"task": "time_calls", "database": database, "instances": instances, "times": times})


def _print(title: str, found: dict[str, Figures]) -> None:
    names = dict.fromkeys(name for one in found.values() for name in one)
    if not names:
        print(f"\n{title}: there are none")
        return
    head = ["", *(f"{name}, {what}" for name in found for what in ("median", "worst"))]
    rows = [[name, *(one[name][what] * 1e3 for one in found.values() for what in ("median", "worst"))] for name in names]
    table(title, head, rows)

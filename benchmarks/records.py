"""Measures what is recorded for operators beyond the needs of a replay: bytes, and the time to write them."""

from __future__ import annotations

from benchmarks.child import folder, run
from benchmarks.report import save, table


def measure(*, quick: bool, rounds: int | None = None) -> None:
    """Run some workflows, measure what they have recorded, print the table, save the figures."""
    workflows, repetitions = (40, 3) if quick else (200, rounds or 7)
    with folder() as directory:
        found = run(
            "romancy_records", {"database": str(directory / "bench.db"), "workflows": workflows, "repetitions": repetitions}
        )
    data, extra = found["data"], found["extra"]
    written = found["write_whole"] - found["write_slim"]
    table(
        "What one activity adds to the file (workflows of 50, 20 at once)",
        ["", "figure", "unit"],
        [
            ["the file grows by, everything included", found["bytes"], "bytes"],
            ["data of its history row", sum(data.values()), "bytes"],
            ["  of which only for operators", sum(data[name] for name in extra), "bytes"],
            *([f"    {name}", data[name], "bytes"] for name in extra),
            ["entries in the journal, for each workflow", found["journal_lines"], "entries"],
            ["processor time to insert the row, 20 a commit", found["write_whole"] * 1e6, "µs"],
            ["  without what is only for operators", found["write_slim"] * 1e6, "µs"],
            ["the whole activity, wall time", found["seconds"] * 1e6, "µs"],
            ["share of what is only for operators", written / found["seconds"] * 100, "%"],
        ],
        ["Finding the line an activity was called from is counted in the profile, under core.call_site."],
    )
    save("records", found, [], quick=quick)

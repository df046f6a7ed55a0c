"""Profiles one-activity workflows: the processor time of each thread, or a profile by function.

A profiler sees one thread. So the threads are timed without it; and for the profile the store runs inline, in the thread of
the event loop, where every function is seen. The profiler makes calls slower: shares are more meaningful than times.
"""

from __future__ import annotations

import cProfile
import os
import pstats
import threading
from pathlib import Path
from typing import Any

from benchmarks.cases import BY_NAME
from benchmarks.load_generator import LoadResult
from benchmarks.processes.romancy_throughput import load
from benchmarks.processes.task_entry import perform
from romancy import App


async def threads(database: str, case: str, seconds: float) -> dict[str, Any]:
    """Return the processor seconds of each thread, without a profiler."""
    async with App(database) as app:
        await load(app, BY_NAME[case], 0.5)
        committer = app._require_committer()
        before, batches, writes = _processor_seconds(), committer.batches, committer.writes
        loaded = await load(app, BY_NAME[case], seconds)
        after = _processor_seconds()
        return {
            "done": loaded.done,
            "seconds": loaded.seconds,
            "threads": {name: used - before.get(name, 0.0) for name, used in after.items()},
            "batches": committer.batches - batches,
            "writes": committer.writes - writes,
        }


def _processor_seconds() -> dict[str, float]:
    """Return processor seconds by thread name; empty without /proc."""
    found = {}
    ticks = os.sysconf("SC_CLK_TCK")
    for thread in threading.enumerate():
        stat = Path(f"/proc/self/task/{thread.native_id}/stat")
        if stat.exists():
            fields = stat.read_text().rpartition(")")[2].split()
            found[thread.name] = (int(fields[11]) + int(fields[12])) / ticks
    return found


async def functions(database: str, case: str, seconds: float) -> dict[str, Any]:
    """Return own time and calls of each Python function, and of each C function by its caller."""
    app = App(database)
    app._use_inline_executor = True
    async with app:
        await load(app, BY_NAME[case], 0.5)
        profiler = cProfile.Profile()
        profiler.enable()
        loaded: LoadResult = await load(app, BY_NAME[case], seconds)
        profiler.disable()
    return {"done": loaded.done, "seconds": loaded.seconds, "functions": _functions(profiler)}


def _functions(profiler: cProfile.Profile) -> list[dict[str, Any]]:
    lines = []
    for (file, _, name), (_, calls, own, _, callers) in pstats.Stats(profiler).stats.items():  # type: ignore[attr-defined]
        if file != "~":
            lines.append({"file": file, "name": name, "calls": calls, "own": own, "caller": ""})
        for (caller_file, _, caller), (_, called, spent, _) in callers.items() if file == "~" else ():
            lines.append({"file": caller_file, "name": name, "calls": called, "own": spent, "caller": caller})
    return lines


if __name__ == "__main__":
    perform(threads, functions)

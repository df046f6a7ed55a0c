"""Runs a module that has several tasks: `python -m benchmarks.processes.<module> '{"task": "fill", ...}'`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from typing import Any

Task = Callable[..., Coroutine[Any, Any, dict[str, Any]]]


def perform(*tasks: Task) -> None:
    """Run the task that the argument names, with the other arguments, and print its result."""
    given = json.loads(sys.argv[1])
    wanted = given.pop("task")
    chosen = next(task for task in tasks if task.__name__ == wanted)
    print(json.dumps(asyncio.run(chosen(**given))))

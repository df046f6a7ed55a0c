"""A workflow that recurs many times, and the checks of its chain of generations."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.chaos import order_workflows
from tests.chaos.worker_processes import rows

from romancy import ActivityContext, WorkflowContext, activity, workflow

NAME = "chain"
on_tick: Callable[[int], None] = lambda number: None  # noqa: E731
"""Called in each round, if the test runs in the same process."""


@activity
async def tick(ctx: ActivityContext, number: int, noted: bool) -> int:
    """The activity of one round; with `noted` it also writes to the effect log."""
    on_tick(number)
    if noted:
        order_workflows.write(ctx, f"round {number}")
    return number + 1


@workflow
async def chain(ctx: WorkflowContext, number: int, rounds: int, noted: bool = False) -> list[int]:
    """Recur until the last round; returns its number and the generation."""
    following = await tick(ctx, number, noted)
    if number < rounds:
        await chain.recur(ctx, following, rounds, noted)
    return [number, ctx.generation]


def generation(folder: Path) -> int:
    """The newest generation."""
    found = rows(folder, "SELECT max(generation) FROM romancy_instances")
    return int(found[0][0] or 0)


# --- checks


def faults(folder: Path, rounds: int, killed: set[int]) -> list[str]:
    """The faults found in the chain."""
    return [*_wrong_generations(folder, rounds), *_wrong_effects(order_workflows.read(folder / "effects"), rounds, killed)]


def _wrong_generations(folder: Path, rounds: int) -> Iterator[str]:
    """Generation n had the input n and recorded one activity with the result n + 1."""
    inputs = rows(folder, "SELECT generation, input FROM romancy_payloads WHERE instance_id = ?", NAME)
    began = {generation: _first(json.loads(input)) for generation, input in inputs}
    recorded = rows(
        folder, "SELECT generation, value FROM romancy_history WHERE instance_id = ? AND kind = 'activity'", NAME
    )
    times = Counter(generation for generation, _ in recorded)
    results = {generation: json.loads(value) for generation, value in recorded}
    for number in range(1, rounds + 1):
        if began.pop(number, None) != number:
            yield f"generation {number} is missing or has another input"
        if times[number] != 1:
            yield f"generation {number} recorded {times[number]} rounds"
        elif results[number] != number + 1:
            yield f"generation {number} recorded {results[number]}"
    for number in began:
        yield f"generation {number} should not exist"


def _first(arguments: object) -> object:
    """The first argument of stored arguments."""
    return next(iter(arguments.values())) if isinstance(arguments, dict) else arguments


def _wrong_effects(lines: list[order_workflows.Line], rounds: int, killed: set[int]) -> Iterator[str]:
    """The activities ran in order, once each, and again only where a worker was killed, under the same idempotency key."""
    numbers = [int(line.what.removeprefix("round ")) for line in lines]
    if numbers != sorted(numbers):
        yield "rounds ran out of order"
    if missing := set(range(1, rounds + 1)) - set(numbers):
        yield f"rounds did not run: {sorted(missing)[:10]}"
    keys: dict[int, set[str]] = {}
    for number, line, following in zip(numbers, lines, [*numbers[1:], None], strict=True):
        keys.setdefault(number, set()).add(line.key)
        if number == following and line.pid not in killed:
            yield f"round {number} ran again without a kill"
    for number, found in keys.items():
        if len(found) > 1:
            yield f"round {number} ran under the keys {sorted(found)}"

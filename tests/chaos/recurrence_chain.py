"""A workflow that begins anew again and again, and what must hold of its chain, whoever was killed meanwhile."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.chaos import order_workflows
from tests.chaos.worker_processes import rows

from romancy import ActivityContext, WorkflowContext, activity, workflow

NAME = "circle"
on_tick: Callable[[int], None] = lambda number: None  # noqa: E731
"""Called in each round, where the test is in the same process."""


@activity
async def tick(ctx: ActivityContext, number: int, noted: bool) -> int:
    """The work of one round; noted: a line in the ledger."""
    on_tick(number)
    if noted:
        order_workflows.write(ctx, f"round {number}")
    return number + 1


@workflow
async def circle(ctx: WorkflowContext, number: int, rounds: int, noted: bool = False) -> list[int]:
    """Ends with the number of its last round and its generation."""
    following = await tick(ctx, number, noted)
    if number < rounds:
        await circle.recur(ctx, following, rounds, noted)
    return [number, ctx.generation]


def generation(folder: Path) -> int:
    """How far it has come."""
    found = rows(folder, "SELECT max(generation) FROM romancy_instances")
    return int(found[0][0] or 0)


# --- what must hold


def faults(folder: Path, rounds: int, killed: set[int]) -> list[str]:
    """What is wrong with the chain."""
    return [*_wrong_generations(folder, rounds), *_wrong_effects(order_workflows.read(folder / "ledger"), rounds, killed)]


def _wrong_generations(folder: Path, rounds: int) -> Iterator[str]:
    """Generation n had the input n and recorded one round, with the result n + 1."""
    inputs = rows(folder, "SELECT generation, input FROM romancy_payloads WHERE instance_id = ?", NAME)
    began = {generation: _first(json.loads(input)) for generation, input in inputs}
    recorded = rows(
        folder, "SELECT generation, value FROM romancy_history WHERE instance_id = ? AND kind = 'activity'", NAME
    )
    times = Counter(generation for generation, _ in recorded)
    results = {generation: json.loads(value) for generation, value in recorded}
    for number in range(1, rounds + 1):
        if began.pop(number, None) != number:
            yield f"generation {number} was skipped, or had the input of another"
        if times[number] != 1:
            yield f"generation {number} recorded {times[number]} rounds"
        elif results[number] != number + 1:
            yield f"generation {number} recorded {results[number]}"
    for number in began:
        yield f"there should be no generation {number}"


def _first(arguments: object) -> object:
    """The first argument, from what is stored of them."""
    return next(iter(arguments.values())) if isinstance(arguments, dict) else arguments


def _wrong_effects(lines: list[order_workflows.Line], rounds: int, killed: set[int]) -> Iterator[str]:
    """Effects came in order, once each; again only where a worker was killed, under the same key."""
    numbers = [int(line.what.removeprefix("round ")) for line in lines]
    if numbers != sorted(numbers):
        yield "rounds were done out of order"
    if missing := set(range(1, rounds + 1)) - set(numbers):
        yield f"rounds were not done: {sorted(missing)[:10]}"
    keys: dict[int, set[str]] = {}
    for number, line, following in zip(numbers, lines, [*numbers[1:], None], strict=True):
        keys.setdefault(number, set()).add(line.key)
        if number == following and line.pid not in killed:
            yield f"round {number} was done again, though nobody was killed in it"
    for number, found in keys.items():
        if len(found) > 1:
            yield f"round {number} was done under the keys {sorted(found)}"

"""Workload of competing consumers: instances of `clerk` receive numbered messages (`letters`) from one channel.

Every second letter is also stamped by an activity, which writes to the effect log (see `order_workflows`).
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.chaos import order_workflows
from tests.chaos.worker_processes import rows

from romancy import ActivityContext, Client, WorkflowContext, activity, receive, subscribe, workflow

CHANNEL = "letters"
STOP = -1
"""The letter that ends a clerk."""
AT_A_TIME = 50
"""Letters that a clerk takes in one generation; histories stay short, and recurring is tested too."""
_STAMPED = 2


@activity
async def stamp(ctx: ActivityContext, letter: int) -> None:
    """Write a line to the effect log."""
    order_workflows.write(ctx, f"stamp {letter}")


@workflow
async def clerk(ctx: WorkflowContext, taken: int = 0, total: int = 0) -> tuple[int, int]:
    """Receive letters until `STOP`; returns their number and sum."""
    await subscribe(ctx, CHANNEL, "competing")
    for _ in range(AT_A_TIME):
        letter = (await receive(ctx, CHANNEL, model=int)).data
        if letter == STOP:
            return taken, total
        if letter % _STAMPED == 0:
            await stamp(ctx, letter)
        taken, total = taken + 1, total + letter
    await ctx.recur(taken, total)


def names(clerks: int) -> list[str]:
    """The ids of the instances."""
    return [f"clerk-{number}" for number in range(clerks)]


async def start_clerks(client: Client, clerks: int) -> None:
    """Start this number of clerks."""
    for name in names(clerks):
        await client.start_workflow(clerk.with_options(instance_id=name))


async def publish_letters(client: Client, letters: int, *, clerks: int, senders: int = 10) -> None:
    """Publish the letters concurrently, and then one `STOP` for each clerk."""
    left = iter(range(letters))

    async def some() -> None:
        for letter in left:
            await client.publish(CHANNEL, letter)

    await asyncio.gather(*(some() for _ in range(senders)))
    for _ in range(clerks):
        await client.publish(CHANNEL, STOP)


def taken(folder: Path) -> int:
    """The number of letters taken so far."""
    found = rows(
        folder,
        "SELECT (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'romancy_messages')"
        " - (SELECT count(*) FROM romancy_messages)",
    )
    return int(found[0][0])


# --- checks


async def faults(client: Client, folder: Path, letters: int, clerks: int, killed: set[int]) -> list[str]:
    """The faults found after all clerks have ended."""
    results = [await client.get_result(name) for name in names(clerks)]
    away = [result.instance_id for result in results if result.status != "completed"]
    if away:
        return [f"{name} has not ended" for name in away]
    outputs = [result.output for result in results]
    return [
        *_wrong_uses(folder, letters),
        *_wrong_sums(outputs, letters),
        *_wrong_stamps(order_workflows.read(folder / "effects"), letters, killed),
        *(f"{left} letters were left unread" for (left,) in rows(folder, "SELECT count(*) FROM romancy_messages") if left),
    ]


def _wrong_uses(folder: Path, letters: int) -> Iterator[str]:
    """Each letter was received by one clerk, once, according to the histories of all generations."""
    found = rows(folder, "SELECT value FROM romancy_history WHERE kind = 'message' AND outcome = 'ok'")
    used = Counter(json.loads(value)["data"] for (value,) in found)
    del used[STOP]
    for letter in range(letters):
        if (times := used.pop(letter, 0)) != 1:
            yield f"letter {letter} was received {times} times"
    for letter in used:
        yield f"letter {letter} was never published"


def _wrong_sums(outputs: list[list[int]], letters: int) -> Iterator[str]:
    """The numbers and sums that the clerks returned are right."""
    if (count := sum(one for one, _ in outputs)) != letters:
        yield f"the clerks counted {count} letters"
    if (total := sum(one for _, one in outputs)) != sum(range(letters)):
        yield f"the letters add up to {total}"


def _wrong_stamps(lines: list[order_workflows.Line], letters: int, killed: set[int]) -> Iterator[str]:
    """Each such letter was stamped once, and again only where a worker was killed, under the same idempotency key."""
    by_letter: dict[int, list[order_workflows.Line]] = {}
    for line in lines:
        by_letter.setdefault(int(line.what.removeprefix("stamp ")), []).append(line)
    for letter in range(0, letters, _STAMPED):
        group = by_letter.get(letter, [])
        if not group:
            yield f"letter {letter} was never stamped"
        if len(keys := {line.key for line in group}) > 1:
            yield f"letter {letter} was stamped under the keys {sorted(keys)}"
        if any(line.pid not in killed for line in group[:-1]):
            yield f"letter {letter} was stamped {len(group)} times, not only after a kill"

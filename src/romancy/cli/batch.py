"""`romancy batch list|get|abort`: deeds for many instances, which the database keeps."""

from __future__ import annotations

from typing import Any

from romancy.cli.desk import Desk, add_command, add_family
from romancy.cli.exits import Exit
from romancy.cli.place import actor
from romancy.cli.steering import followed, show_batches


def add(commands: Any) -> None:
    """Describe the commands."""
    parts = add_family(commands, "batch", help="look at batches, or abort one")
    add_command(parts, "list", show_all, help="list the last batches, newest first", watch=True)
    get = add_command(parts, "get", show_one, help="show a batch", watch=True)
    get.add_argument("id", metavar="BATCH", help="its id")
    get.add_argument("--wait", action="store_true", help="wait for its end")
    abort = add_command(parts, "abort", abort_one, help="stop a batch: what is done is done")
    abort.add_argument("id", metavar="BATCH", help="its id")


async def show_all(desk: Desk) -> int:
    """Print them."""
    batches = await desk.manager.list_batches()
    show_batches(desk, {"items": batches}, batches)
    return Exit.OK


async def show_one(desk: Desk) -> int:
    """Print one; 1 if it has failures."""
    batch = await desk.manager.get_batch(desk.given.id)
    if desk.given.wait:
        batch = await followed(desk, batch)
    show_batches(desk, batch, [batch])
    return Exit.FAILED if batch.failed else Exit.OK


async def abort_one(desk: Desk) -> int:
    """Stop it."""
    batch = await desk.manager.abort_batch(desk.given.id, actor=actor())
    show_batches(desk, batch, [batch])
    return Exit.OK

"""`romancy cancel`, `retry`, `pause`, `resume`, `terminate`: something is done to instances.

Named ones are done at once, each by itself. Those that a filter finds are a batch, which the database keeps: it is not
lost if this command is interrupted.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Any

from romancy.cli.choosing import add_filters, filter_of, ids_of
from romancy.cli.desk import Desk, add_command, worst
from romancy.cli.exits import Exit, UsageError, code_of_name
from romancy.cli.instances import collect
from romancy.cli.place import actor
from romancy.cli.printing import Column, note
from romancy.cli.text import shown
from romancy.manage.records import Batch, Deed, Done, Preview
from romancy.manage.service import DatabaseManager

_PORTION = 50
"""How many at a time: the bar moves, and an interruption leaves little undecided."""
_MANY = 100
"""More than so many are confirmed by their number."""
_LOOK = 0.1
_EFFECTS = 20
"""How many instances a preview looks at."""

_DOES = {
    Deed.CANCEL: "cancel instances: what they did is compensated",
    Deed.RETRY: "run failed instances again, from the activity that failed",
    Deed.PAUSE: "let nothing new start in instances",
    Deed.RESUME: "let paused instances go on, and try blocked ones again",
    Deed.TERMINATE: "end instances at once, without compensation",
}
_GRAVE = (Deed.CANCEL, Deed.TERMINATE)
DONE = {
    Deed.CANCEL: "cancelled",
    Deed.RETRY: "retried",
    Deed.PAUSE: "paused",
    Deed.RESUME: "resumed",
    Deed.TERMINATE: "terminated",
}


def add(commands: Any) -> None:
    """Describe the commands."""
    for deed, does in _DOES.items():
        command = add_command(commands, deed.value, partial(steer, deed), help=does)
        command.add_argument("ids", nargs="*", metavar="ID", help="instances; - reads ids from standard input")
        command.add_argument("--reason", metavar="TEXT", help="why: it is written down")
        command.add_argument("--dry-run", action="store_true", help="only say what would happen")
        command.add_argument("--yes", action="store_true", help="ask nothing")
        command.add_argument("--no-wait", action="store_true", help="with a filter: do not wait for the batch to end")
        add_filters(command)


async def steer(deed: Deed, desk: Desk) -> int:
    """Do it to those that are named, or to all that a filter finds."""
    line, words = filter_of(desk.given), desk.given.ids
    if bool(line) == bool(words):
        raise UsageError(f"Give ids (`-` reads them from standard input), or a filter: romancy {deed.value} --filter LINE.")
    return await (_steer_filtered(deed, desk, line) if line else _steer_named(deed, desk, ids_of(words)))


# --- those that are named


async def _steer_named(deed: Deed, desk: Desk, ids: list[str]) -> int:
    if not ids:
        note("No ids came: nothing to do.")
        return Exit.OK
    if desk.given.dry_run:
        return await _preview(deed, desk, ids)
    if (deed in _GRAVE or len(ids) > 1) and not _agreed(deed, desk, len(ids)):
        return Exit.FAILED
    done: list[Done] = []
    with _progress(desk, f"{deed.value}", len(ids)) as show:
        for at in range(0, len(ids), _PORTION):
            done += await desk.manager.do(deed, ids[at : at + _PORTION], reason=desk.given.reason, actor=actor())
            show(len(done))
    return _report(deed, desk, done)


def _report(deed: Deed, desk: Desk, done: list[Done]) -> int:
    columns = [
        Column[Done]("id", lambda one: one.instance_id),
        Column[Done]("", lambda one: DONE[deed] if one.ok else "failed", status=True),
        Column[Done]("why", lambda one: one.error or ""),
    ]
    if len(done) == 1 and desk.out.for_people and not done[0].ok:
        note(f"romancy: {shown(done[0].error or done[0].error_type)}")
    else:
        desk.out.table({"items": done}, done, columns, name=lambda one: one.instance_id)
    return worst([Exit.OK if one.ok else code_of_name(one.error_type) for one in done])


async def _preview(deed: Deed, desk: Desk, ids: list[str]) -> int:
    found = [await desk.manager.preview(deed, one) for one in ids[:_EFFECTS]]
    columns = [
        Column[Preview]("id", lambda one: one.instance_id),
        Column[Preview]("effect", lambda one: "; ".join(one.effects)),
    ]
    desk.out.table({"items": found}, found, columns, name=lambda one: one.instance_id)
    if len(ids) > _EFFECTS:
        note(f"... and {len(ids) - _EFFECTS} more.")
    return Exit.OK


# --- all that a filter finds


async def _steer_filtered(deed: Deed, desk: Desk, line: str) -> int:
    if desk.given.dry_run:
        page = await collect(desk, line, _EFFECTS)
        more = " and more" if page.next_page_token is not None else ""
        note(f"The filter finds {len(page.items)}{more}:")
        return await _preview(deed, desk, [one.instance_id for one in page.items])
    found = await collect(desk, line, _MANY + 1)
    if not desk.given.yes and not sys.stdin.isatty():
        raise UsageError(f"To {deed.value} all that a filter finds, without a terminal to ask at, takes --yes.")
    if not _agreed(deed, desk, len(found.items)):
        return Exit.FAILED
    batch = await desk.manager.start_batch(deed, line, reason=desk.given.reason, actor=actor())
    if not desk.given.no_wait:
        batch = await followed(desk, batch)
    show_batches(desk, batch, [batch])
    return Exit.FAILED if batch.failed or batch.status == "aborted" else Exit.OK


async def followed(desk: Desk, batch: Batch) -> Batch:
    """A batch once it has ended."""
    async with _helped(desk):
        with _progress(desk, f"{batch.deed.value} ({shown(batch.filter)})", None) as show:
            while batch.status == "running":
                show(batch.looked_at)
                await asyncio.sleep(_LOOK)
                batch = await desk.manager.get_batch(batch.batch_id)
    return batch


@asynccontextmanager
async def _helped(desk: Desk) -> AsyncGenerator[None]:
    """On a database whoever waits for a batch works on it, too: perhaps no app runs."""
    if not isinstance(desk.manager, DatabaseManager):
        yield
        return
    batches = desk.manager.batches(actor())
    batches.start()
    try:
        yield
    finally:
        await batches.stop()


def show_batches(desk: Desk, shape: Any, batches: list[Batch]) -> None:
    """Print batches; of the only one its failures, too."""
    columns = [
        Column[Batch]("batch", lambda one: one.batch_id),
        Column[Batch]("deed", lambda one: one.deed.value),
        Column[Batch]("filter", lambda one: one.filter),
        Column[Batch]("status", lambda one: one.status, status=True),
        Column[Batch]("done", lambda one: f"{one.done:,}", right=True),
        Column[Batch]("failed", lambda one: f"{one.failed:,}", right=True),
        Column[Batch]("by", lambda one: one.actor),
    ]
    desk.out.table(shape, batches, columns, name=lambda one: one.batch_id, empty="There are no batches.")
    if desk.out.for_people and len(batches) == 1:
        for failure in batches[0].failures:
            note(f"{shown(failure.instance_id)}: {shown(failure.error or failure.error_type)}")


# --- asking


def _agreed(deed: Deed, desk: Desk, number: int) -> bool:
    """Somebody at a terminal agrees. Without one nobody is asked: ids that are named are meant."""
    if desk.given.yes or not sys.stdin.isatty() or not sys.stderr.isatty():
        return True
    many = number > _MANY
    what = f"{deed.value} {'more than ' if many else ''}{min(number, _MANY)} instance{'' if number == 1 else 's'}"
    wanted = str(_MANY) if many else "y"
    note(f"{desk.place.name}: {what}? [{'type ' + wanted if many else 'y/N'}] ")
    answer = sys.stdin.readline().strip().lower()
    if answer == wanted or (not many and answer == "yes"):
        return True
    note("Nothing was done.")
    return False


def _progress(desk: Desk, what: str, total: int | None) -> AbstractContextManager[Callable[..., None]]:
    if not desk.out.for_people:
        return nullcontext(lambda *_: None)
    from romancy.cli.tables import progress  # not at the top: rich may be missing

    return progress(what, total)

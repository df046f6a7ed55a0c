"""Deeds for all instances that fit a filter: done by an app, whoever asked may go home.

A batch is a row: what to do, the filter, and how far it has come. An app that finds one takes it under a claim that ends by
itself, does a portion, writes down how far it has come, and so on; if it dies, another goes on from there. Only instances
that were there when the batch began are looked at, each once.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict

from romancy.admin.filters import parse
from romancy.admin.records import ActionKind, ActionResult, BulkAction
from romancy.admin.search import search
from romancy.clock import MICROS, Clock, to_datetime
from romancy.errors import RomancyError, StoreError
from romancy.model.admin import BulkActionRow
from romancy.presenters import make_page_token, parse_page_token
from romancy.store.port import Store

_log = logging.getLogger("romancy.admin")
_PORTION = 50
_CLAIM = 30 * MICROS
"""How long a batch is somebody's who says nothing."""
_FAILURES = 100
"""How many are listed."""

ActionApplier = Callable[[ActionKind, Sequence[str], str | None, str], Awaitable[list[ActionResult]]]


def to_bulk_action(row: BulkActionRow) -> BulkAction:
    """A batch as operators read it."""
    return BulkAction(
        batch_id=row.id,
        action=ActionKind(row.action),
        filter=row.filter,
        reason=row.reason,
        actor=row.actor,
        status=row.status,
        created_at=to_datetime(row.created_at),
        ended_at=None if row.ended_at is None else to_datetime(row.ended_at),
        done=row.done,
        failed=row.failed,
        looked_at=row.scanned,
        failures=[ActionResult(**one) for one in json.loads(row.failures)],
    )


async def apply_portion(store: Store, row: BulkActionRow, apply: ActionApplier) -> BulkActionRow:
    """Do a portion of a batch; how far it has come then."""
    # Spans of time in the filter are meant from when it was given, and what was created since is not meant.
    wanted = parse(row.filter, now=row.created_at)
    place = (row.created_at + 1, "") if row.cursor is None else parse_page_token(row.cursor)
    found = await search(store, wanted, now=row.created_at, before=place, limit=_PORTION)
    done = await apply(ActionKind(row.action), [line.row.instance_id for line in found.rows], row.reason, row.actor)
    failures = [*json.loads(row.failures), *(asdict(one) for one in done if not one.ok)][:_FAILURES]
    return row._replace(
        status="running" if found.has_more else "done",
        done=row.done + sum(one.ok for one in done),
        failed=row.failed + sum(not one.ok for one in done),
        scanned=row.scanned + found.scanned,
        failures=json.dumps(failures),
        cursor=make_page_token(*found.end) if found.end is not None else row.cursor,
    )


class BulkActionRunner:
    """Works off batches, one after another, as long as it runs."""

    def __init__(self, store: Callable[[], Store], clock: Clock, apply: ActionApplier, claimant: str, every: float) -> None:
        """`every`: seconds between two looks for batches that others have begun."""
        self._store = store
        self._clock = clock
        self._apply = apply
        self._claimant = claimant
        self._every = every
        self._wake_event = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look for batches."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="romancy-batches")

    def wake(self) -> None:
        """There may be one."""
        self._wake_event.set()

    async def stop(self) -> None:
        """Stop; what is begun is finished by somebody else, or later."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _run(self) -> None:
        while True:
            self._wake_event.clear()
            try:
                while await self.run_next():
                    pass
            except StoreError as error:
                _log.warning("the runner of batches could not reach the database, will try again: %s", error)
            except Exception:
                _log.exception("a part of a batch failed, will try again")
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await self._wake_event.wait()

    async def run_next(self) -> bool:
        """Take a batch that nobody works on and do all of it; whether there was one."""
        now = self._clock.now()
        row = await self._store().claim_bulk_action(self._claimant, now=now, until=now + _CLAIM)
        if row is None:
            return False
        while row.status == "running":
            row = await self._apply_portion(row)
            if not await self._store().save_bulk_action(row, self._claimant, until=self._clock.now() + _CLAIM):
                break  # it was aborted, or somebody else has it
        return True

    async def _apply_portion(self, row: BulkActionRow) -> BulkActionRow:
        try:
            row = await apply_portion(self._store(), row, self._apply)
        except StoreError:
            raise
        except RomancyError as error:  # a filter that this release cannot read
            failures = json.dumps(
                [*json.loads(row.failures), asdict(ActionResult("", False, str(error), type(error).__name__))]
            )
            row = row._replace(status="aborted", failures=failures)
        return row if row.status == "running" else row._replace(ended_at=self._clock.now())

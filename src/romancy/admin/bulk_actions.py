"""Bulk actions: an app applies an action in the background to every instance that matches a filter.

A bulk action is a row with the action, the filter and the progress. An app claims the row for a limited time, applies the
action to a portion of the instances, saves the progress, and repeats. If the app dies, its claim expires, and another app
continues from the saved progress; one portion may be applied again then. Instances that were created later than the bulk
action are left out.
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
"""Microseconds after which the claim of an app that saves no progress expires."""
_FAILURES = 100
"""The most failures that are kept."""

ActionApplier = Callable[[ActionKind, Sequence[str], str | None, str], Awaitable[list[ActionResult]]]


def to_bulk_action(row: BulkActionRow) -> BulkAction:
    """Return the record of a bulk action."""
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
    """Apply a bulk action to the next portion of instances; return the row with the new progress."""
    # As of the creation of the bulk action: durations in the filter count back from then, and newer instances are left out.
    wanted = parse(row.filter, now=row.created_at)
    before = (row.created_at + 1, "") if row.cursor is None else parse_page_token(row.cursor)
    found = await search(store, wanted, now=row.created_at, before=before, limit=_PORTION)
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
    """Applies pending bulk actions, one after another, while it is running."""

    def __init__(self, store: Callable[[], Store], clock: Clock, apply: ActionApplier, claimant: str, every: float) -> None:
        """`every`: seconds between two polls for bulk actions that other processes have added."""
        self._store = store
        self._clock = clock
        self._apply = apply
        self._claimant = claimant
        self._every = every
        self._wake_event = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start polling for bulk actions."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="romancy-batches")

    def wake(self) -> None:
        """Poll at once, because a bulk action may have been added."""
        self._wake_event.set()

    async def stop(self) -> None:
        """Stop. An unfinished bulk action is continued by the next runner that claims it."""
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
        """Claim a bulk action that has no claim, and apply it to the end; return whether there was one."""
        now = self._clock.now()
        row = await self._store().claim_bulk_action(self._claimant, now=now, until=now + _CLAIM)
        if row is None:
            return False
        while row.status == "running":
            row = await self._apply_portion(row)
            if not await self._store().save_bulk_action(row, self._claimant, until=self._clock.now() + _CLAIM):
                break  # it was aborted, or another runner has claimed it
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

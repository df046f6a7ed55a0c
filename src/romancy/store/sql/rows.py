"""Converts database rows to the records of the port."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from romancy.model.history import AttemptRow, Entry, Kind, Outcome, Role
from romancy.model.instance import InboxItem, InstanceRow, WorkerRow
from romancy.model.status import Status
from romancy.model.transition import JournalNote, Wait, WaitKind
from romancy.store.port import JournalEntry

ROW_WIDTH = 20
"""The number of columns of an `InstanceRow`; payloads follow."""

# A dictionary lookup is several times faster than calling the enum, and a history has many entries.
_KINDS: dict[str, Kind] = {kind.value: kind for kind in Kind}
_OUTCOMES: dict[str, Outcome] = {outcome.value: outcome for outcome in Outcome}
_ROLES: dict[int, Role] = {role.value: role for role in Role}
_STATUSES: dict[str, Status] = {status.value: status for status in Status}


def row_of(row: Sequence[Any]) -> InstanceRow:
    """Convert an instance's row."""
    return InstanceRow(row[0], row[1], row[2], _STATUSES[row[3]], *row[4:ROW_WIDTH])


def entry_of(row: Sequence[Any]) -> Entry:
    """Convert a history entry."""
    seq, kind, op, outcome, at, name, role, *rest = row
    return Entry(seq, _KINDS[kind], op, _OUTCOMES[outcome], at, name, _ROLES[role], *rest)


def attempt_of(row: Sequence[Any]) -> AttemptRow:
    """Convert an attempt of an activity."""
    op, attempt, name, is_open, *rest = row
    return AttemptRow(op, attempt, name, bool(is_open), *rest)


def wait_of(row: Sequence[Any]) -> Wait:
    """Convert a wait."""
    op, kind, *rest = row
    return Wait(op, WaitKind(kind), *rest)


def inbox_item_of(row: Sequence[Any]) -> InboxItem:
    """Convert an inbox item."""
    return InboxItem(*row)


def worker_of(row: Sequence[Any]) -> WorkerRow:
    """Convert a worker's row."""
    return WorkerRow(*row)


def journal_entry_of(row: Sequence[Any]) -> JournalEntry:
    """Convert a journal entry."""
    at, kind, detail, worker, epoch = row
    return JournalEntry(at, JournalNote(kind, detail), worker, epoch)


def status_of(word: str) -> Status:
    """Convert a status."""
    return _STATUSES[word]

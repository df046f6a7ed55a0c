"""Rows of the database as the records the port speaks of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from romancy.model.history import Attempt, Entry, Kind, Outcome, Role
from romancy.model.instance import Mail, Row, WorkerRow
from romancy.model.status import Status
from romancy.model.transition import Note, Wait, WaitKind
from romancy.store.port import JournalEntry

ROW_WIDTH = 20
"""The columns of a `Row`; payloads follow."""

# Looking a word up is several times faster than asking an enum, and a history has many.
_KINDS: dict[str, Kind] = {kind.value: kind for kind in Kind}
_OUTCOMES: dict[str, Outcome] = {outcome.value: outcome for outcome in Outcome}
_ROLES: dict[int, Role] = {role.value: role for role in Role}
_STATUSES: dict[str, Status] = {status.value: status for status in Status}


def row_of(line: Sequence[Any]) -> Row:
    """An instance's hot row."""
    return Row(line[0], line[1], line[2], _STATUSES[line[3]], *line[4:ROW_WIDTH])


def entry_of(line: Sequence[Any]) -> Entry:
    """An entry of a history."""
    seq, kind, op, outcome, at, name, role, *rest = line
    return Entry(seq, _KINDS[kind], op, _OUTCOMES[outcome], at, name, _ROLES[role], *rest)


def attempt_of(line: Sequence[Any]) -> Attempt:
    """An attempt of an activity."""
    op, attempt, name, is_open, *rest = line
    return Attempt(op, attempt, name, bool(is_open), *rest)


def wait_of(line: Sequence[Any]) -> Wait:
    """What an instance waits for."""
    op, kind, *rest = line
    return Wait(op, WaitKind(kind), *rest)


def mail_of(line: Sequence[Any]) -> Mail:
    """What arrived for an instance."""
    return Mail(*line)


def worker_of(line: Sequence[Any]) -> WorkerRow:
    """A worker's incarnation."""
    return WorkerRow(*line)


def journal_entry_of(line: Sequence[Any]) -> JournalEntry:
    """A line of a journal."""
    at, kind, detail, worker, epoch = line
    return JournalEntry(at, Note(kind, detail), worker, epoch)


def status_of(word: str) -> Status:
    """A status."""
    return _STATUSES[word]

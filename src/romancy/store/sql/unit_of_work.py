"""`UnitOfWork`: the instance rows that a batch has read, and the changes that it is going to write.

A unit of work lives for one transaction. It reads the rows of all instances with one statement. The deciding functions
change the `InstanceState`s and add rows; `flush` writes everything with a handful of statements, however many writes there
were.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from romancy.model.history import AttemptRow, Entry
from romancy.model.status import ENDED, Status
from romancy.model.transition import JournalNote, Wait
from romancy.store.sql import channels
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.json_params import as_json


@dataclass(slots=True)
class InstanceState:
    """An instance's row while its writes are decided; the fields are in the order of the statement `load_states`."""

    id: str
    status: str
    generation: int = 1
    round: int = 0
    epoch: int = 0
    owner: str | None = None
    wake_at: int | None = None
    inbox_version: int = 0
    inbox_version_seen: int = 0
    length: int = 0
    """The length of the history; not a column of the row."""
    cancel_requested_at: int | None = None
    deadline_at: int | None = None
    retrying_since: int | None = None
    blocked_by: str | None = None
    fingerprint: str = ""
    started_at: int | None = None
    updated_at: int = 0
    ended_at: int | None = None

    @property
    def ended(self) -> bool:
        """The instance has ended."""
        return self.status in ENDED


_ATTEMPT = attrgetter(
    "op", "attempt", "name", "open", "worker", "epoch", "site", "scheduled_at", "started_at", "ended_at", "next_at",
    "error", "details", "heartbeat_at",
)  # fmt: skip
_WAIT = attrgetter("op", "kind", "since", "due", "key", "subject", "match", "site")
_STEP = attrgetter("epoch", "inbox_version_seen", "updated_at", "wake_at", "retrying_since", "id")
_MOVE = attrgetter(*[name for name in InstanceState.__slots__ if name not in ("id", "length")], "id")

_INSERTS = (
    "consume_event",
    "mark_event_consumed",
    "put_wait",
    "add_instances",
    "add_payloads",
    "set_results",
    "add_history",
    "put_attempts",
    "put_waits",
    "add_inbox_items",
    "add_notes",
)
_DELETES = ("close_attempts", "withdraw_waits", "consume_inbox_items", "clear_waits", "clear_inbox", "clear_open_attempts")


class UnitOfWork:
    """Reads instances, collects changes, and writes them, within one transaction."""

    def __init__(self, cursor: Cursor, ids: Iterable[str], read_statement: str | None = "load_states") -> None:
        """Read the instances. Without a `read_statement` nothing is read: for instances that are new or known already."""
        self.cursor = cursor
        rows = [] if read_statement is None else cursor.json_rows(read_statement, (as_json(ids),))
        self.states = {row[0]: InstanceState(*row) for row in rows}
        self._steps: list[InstanceState] = []
        self._moves: list[InstanceState] = []
        self._rows: dict[str, list[Sequence[Any]]] = {}
        self._deleted_keys: dict[str, list[Any]] = {}
        self._ended: dict[str, int] = {}

    def step(self, state: InstanceState) -> None:
        """Record a state whose owner and status have not changed: a cheaper statement writes it."""
        self._steps.append(state)

    def move(self, state: InstanceState) -> None:
        """Record a state of which any column may have changed."""
        self._moves.append(state)

    def create(self, state: InstanceState, row: Sequence[Any], payload: bytes) -> None:
        """Add a new instance."""
        self.states[state.id] = state
        self._add("add_instances", row)
        self._add("add_payloads", (state.id, payload))

    def start_next_generation(self, state: InstanceState, input: bytes, now: int, *, archive: bool) -> None:
        """End the instance's generation, and begin the next one with this input."""
        old = (state.id, state.generation)
        if not archive:
            for name in ("forget_payload", "forget_history", "forget_attempts"):
                self.cursor.run(name, old)
        self.cursor.run("forget_waits", (state.id,))
        self._deleted_keys.setdefault("clear_open_attempts", []).append(state.id)
        self.cursor.run("begin_generation", (state.id, state.generation + 1, input, now))

    def refresh_inbox_version(self, state: InstanceState) -> None:
        """Read the inbox version again: effects of this transaction may have been for the instance itself."""
        (state.inbox_version,) = self.cursor.only("inbox_version_of", (state.id,))

    def set_results(self, state: InstanceState, output: bytes | None, error: bytes | None) -> None:
        """Set the output or the error that the instance ended with."""
        self._add("set_results", (output, error, state.id, state.generation))

    def add_history(self, state: InstanceState, entries: Iterable[Entry]) -> None:
        """Append history entries."""
        head = (state.id, state.generation)
        self._rows.setdefault("add_history", []).extend([head + entry for entry in entries])

    def put_attempts(self, state: InstanceState, attempts: Iterable[AttemptRow]) -> None:
        """Insert or replace failed or open attempts."""
        head = (state.id, state.generation)
        self._rows.setdefault("put_attempts", []).extend([head + _ATTEMPT(attempt) for attempt in attempts])

    def consume_event(self, state: InstanceState, seq: int, selector: str, *, addressed: bool) -> None:
        """Mark an event as consumed by the instance."""
        self._add("consume_event", (state.id, seq, selector))
        if addressed:
            self._add("mark_event_consumed", (seq, state.id))

    def register_wait(self, wait: Sequence[Any]) -> None:
        """Insert or replace a wait of the instance."""
        self._add("put_wait", wait)

    def put_waits(self, state: InstanceState, waits: Iterable[Wait]) -> None:
        """Insert or replace waits of the instance."""
        self._rows.setdefault("put_waits", []).extend([(state.id, *_WAIT(wait)) for wait in waits])

    def add_inbox_item(self, state: InstanceState, kind: str, body: bytes | None, at: int) -> None:
        """Add an item to the instance's inbox."""
        self._add("add_inbox_items", (state.id, kind, "", body, at))

    def add_note(self, state: InstanceState, note: JournalNote, worker: str, at: int) -> None:
        """Add an entry to the instance's journal."""
        self._add("add_notes", (state.id, at, note.kind, note.detail, worker, state.epoch))

    def close_attempts(self, state: InstanceState, ops: Iterable[str]) -> None:
        """Delete the open attempts of operations."""
        self._deleted_keys.setdefault("close_attempts", []).extend([(state.id, state.generation, op) for op in ops])

    def withdraw_waits(self, state: InstanceState, ops: Iterable[str]) -> None:
        """Delete waits that were resolved or withdrawn."""
        self._deleted_keys.setdefault("withdraw_waits", []).extend([(state.id, op) for op in ops])

    def consume_inbox_items(self, state: InstanceState, items: Iterable[int]) -> None:
        """Delete inbox items that the run has used."""
        self._deleted_keys.setdefault("consume_inbox_items", []).extend([(state.id, item) for item in items])

    def clear(self, state: InstanceState, now: int) -> None:
        """Delete the waits, inbox items, open attempts, subscriptions and memberships of an ended instance."""
        for name in ("clear_waits", "clear_inbox", "clear_open_attempts"):
            self._deleted_keys.setdefault(name, []).append(state.id)
        if state.status == Status.FAILED:  # at once: a retry restores them, and `flush` deletes them
            self.cursor.run("save_memberships", {"id": state.id, "generation": state.generation})
        self._ended[state.id] = now

    def flush(self) -> list[str]:
        """Write all changes collected so far; return the instances that were woken in place of ended ones."""
        # First: the waits that are deleted below say which messages the ended instances were woken for.
        woken = channels.clear(self.cursor, list(self._ended), max(self._ended.values())) if self._ended else []
        self._ended.clear()
        # Deletes before inserts: a transition may replace a wait or an attempt by one of the same operation.
        for name in _DELETES:
            if keys := self._deleted_keys.pop(name, None):
                self.cursor.run(name, (as_json(keys),))
        if self._steps:
            self.cursor.many("step", [_STEP(state) for state in self._steps])
        if self._moves:
            self.cursor.many("update_instances", [_MOVE(state) for state in self._moves])
        for name in _INSERTS:
            if rows := self._rows.pop(name, None):
                self.cursor.many(name, rows)
        self._steps.clear()
        self._moves.clear()
        return woken

    def _add(self, name: str, row: Sequence[Any]) -> None:
        self._rows.setdefault(name, []).append(row)

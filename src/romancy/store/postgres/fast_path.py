"""The fast path: one statement for most writes of a batch, whose WHERE clause does all checks.

It takes new instances, steps that only append to the history, and ends with nothing left to clear; and, in statements of
their own, events that start no workflow, and instances that were woken for an event they wait for. A statement returns the
writes it has made; the others (the id is taken, the epoch is old, something arrived) take the slow path, which reads the
instance first and can tell why it refuses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from romancy.model.history import Entry, Kind, Outcome, Role
from romancy.model.messaging import StoreReply, WaitSelector
from romancy.model.status import Status
from romancy.model.transition import AcceptEvents, Applied, CreateInstance, PostMessage, Transition, Write, WriteResult
from romancy.store.sql.bulk import EventBatch, is_plain_accept, is_plain_wait
from romancy.store.sql.events import selector_key
from romancy.store.sql.fast_path import has_extras, is_step

WITH_RECORDS = frozenset({"fast_path", "fast_steps"})
"""Statements with parameters of the record types that the schema defines."""
_OWNED_COLUMNS = (
    "id",
    "generation",
    "epoch",
    "inbox_seen",
    "length",
    "status",
    "bound",
    "now",
    "fingerprint",
    "output",
    "error",
)
_ENTRY_COLUMNS = ("op", "name", "at", "digest", "input", "value", "site", "scheduled_at", "started_at", "ended_at")
_NO_ENTRY = (None,) * len(_ENTRY_COLUMNS)
_APPLIED_RESULTS = (Applied(0, False), Applied(0, True))
"""The most frequent results, indexed by whether the instance stays owned."""
_AWAITED_COLUMNS = (
    "id", "generation", "epoch", "worker", "new_epoch", "length", "status", "wake_at", "retrying_since", "now", "op", "type",
    "subject", "due", "selector",
)  # fmt: skip
_ACTIVITY, _OK, _FED, _RUNNING = Kind.ACTIVITY, Outcome.OK, Role.FED, Status.RUNNING
_WITHOUT_INSTANCE = (AcceptEvents, PostMessage)
"""Writes that belong to no instance."""
_HISTORY_COLUMNS = ("h_id", *[f"h_{name}" for name in Entry._fields])


class FastStatement(NamedTuple):
    """A statement, its values, and a function for the values of the query whether it was committed."""

    statement: str
    values: dict[str, Any]
    check_values: Callable[[], dict[str, Any]]


class PostgresFastPath:
    """The writes of a batch that can take the fast path, as the values of one or two statements.

    Each value costs time in the client and in the server, and each array of values more: the usual writes are passed as
    records. Their statement supplies the columns that are the same for most steps: one new entry, of an activity that
    succeeded at its first attempt, by the worker that owns the instance.
    """

    def __init__(self, batch: Sequence[Write]) -> None:
        self._batch = batch
        self._index: dict[str, int] = {}
        """The instances written here, and the index of their write. A later write of theirs must not overtake it."""
        self._worker = ""
        self._new: list[tuple[Any, ...]] = []
        self._owned: list[tuple[Any, ...]] = []
        self._general: list[tuple[Any, ...]] = []
        """Rows like those in `_owned` whose entries are not the usual one: the entries are in `_history`."""
        self._history: list[tuple[Any, ...]] = []
        self._has_ends = False
        known, deferred = self._index, set[str]()
        for index, write in enumerate(batch):
            if isinstance(write, _WITHOUT_INSTANCE):
                continue
            instance_id = write.instance_id
            if instance_id in known or instance_id in deferred or not self._add_write(write):
                deferred.add(instance_id)
            else:
                known[instance_id] = index

    def statements(self) -> Iterator[FastStatement]:
        """Yield the statements to run."""
        if len(self._owned) == 1 and not self._new and not self._has_ends:
            values = dict(zip(_OWNED_COLUMNS + _ENTRY_COLUMNS, self._owned[0], strict=True)) | {"worker": self._worker}
            yield FastStatement("fast_step", values, lambda: self._check_values(self._owned))
        elif self._new or self._owned:
            ids = [row[0] for row in self._owned]
            values = {"owned": self._owned, "ids": ids, "new": self._new, "worker": self._worker}
            name = "fast_path" if self._new or self._has_ends else "fast_steps"
            yield FastStatement(name, values, lambda: self._check_values(self._new, self._owned))
        if self._general:
            values = (
                _to_columns((*_OWNED_COLUMNS, "ends"), self._general)
                | _to_columns(_HISTORY_COLUMNS, self._history)
                | {"worker": self._worker}
            )
            yield FastStatement("fast_others", values, lambda: self._check_values(self._general))

    def _check_values(self, *tables: list[tuple[Any, ...]]) -> dict[str, Any]:
        writes = [self._batch[self._index[row[0]]] for rows in tables for row in rows]
        return _to_columns(("id", "generation", "epoch", "worker", "last", "now"), [_check_row(write) for write in writes])

    def results(self, written: Sequence[str]) -> dict[int, WriteResult]:
        """Return the results of the writes of these instances."""
        batch, known = self._batch, self._index
        return {(index := known[instance_id]): _make_result(batch[index]) for instance_id in written}

    def _add_write(self, write: Write) -> bool:
        if type(write) is CreateInstance:
            return self._add_new(write)
        if type(write) is not Transition or (self._worker and self._worker != write.worker):
            return False
        ending = write.ending
        if ending is None:
            if not is_step(write):
                return False
            end: tuple[Any, ...] = (None, False, write.now, None, None, None)
        elif write.length is None or has_extras(write) or (write.has_messaging_state and write.status is Status.FAILED):
            return False  # the slow path saves the memberships of a failed instance, in case it is retried
        else:
            bound = write.has_messaging_state or write.inbox_seen != 0
            end = (write.status, bound, write.now, ending.fingerprint, ending.output, ending.error)
        self._worker = write.worker
        self._add_owned((write.instance_id, write.generation, write.epoch, write.inbox_seen, write.length, *end), write)
        return True

    def _add_owned(self, row: tuple[Any, ...], write: Transition) -> None:
        history, ends = write.history, write.ending is not None
        entry: tuple[Any, ...] | None = None
        if not history:
            entry = _NO_ENTRY
        elif len(history) == 1 and (ends or write.status is _RUNNING):
            entry = _encode_usual(history[0], write)
        if entry is not None:
            self._owned.append(row + entry)
            self._has_ends = self._has_ends or ends
        else:
            self._general.append((*row[:5], write.status, *row[6:], ends))
            self._history += [(write.instance_id, *entry) for entry in history]

    def _add_new(self, write: CreateInstance) -> bool:
        if "\0" in write.instance_id or write.ending is not None:
            return False  # the slow path raises the error
        head = (write.instance_id, write.workflow, write.version, write.owner, write.deadline_at, write.now)
        self._new.append((*head, write.code, write.python, write.digest, write.input))
        return True


def _encode_usual(entry: Entry, write: Transition) -> tuple[Any, ...] | None:
    """Return the columns of an entry of the usual kind; None for another."""
    # Unpacked at once: access by name takes longer.
    seq, kind, op, outcome, at, name, role, digest, input, value, attempt, site, *times, worker, epoch = entry
    if kind is not _ACTIVITY or outcome is not _OK or role is not _FED or attempt != 1 or seq - 1 != write.length:
        return None
    if worker != write.worker or epoch != write.epoch:
        return None
    return (op, name, at, digest, input, value, site, *times)


class PlainEvents(EventBatch):
    """The events of a batch that start no workflow, as far as is known here, and are sent to no broker."""

    def __init__(self, batch: Sequence[Write]) -> None:
        super().__init__(
            {i: write for i, write in enumerate(batch) if type(write) is AcceptEvents and is_plain_accept(write)}
        )

    def accepted_results(self, found: Sequence[tuple[int, str | None, str | None, str]]) -> dict[int, WriteResult]:
        """Return the results for the rows of fast_accept: a first row, the new events, and the instances woken for each.

        In the row of an instance, an event id that is not NULL means that an earlier event has woken the instance.
        """
        if not found:
            return {}
        indexes = self.index_by_id()
        new: dict[int, int] = {}
        woken: dict[int, dict[str, bool]] = {}
        for seq, source, id, instance_id in found[1:]:
            if source is not None and id is not None:
                new[indexes[source, id]] = seq
            else:
                instances = woken.setdefault(seq, {})
                instances[instance_id] = instances.get(instance_id, False) or id is None
        return self.answers(new, woken)


class AwaitedEvents:
    """The writes of a batch that resume an instance for the event that has woken it, as the columns of one statement."""

    def __init__(self, batch: Sequence[Write]) -> None:
        calling = [(index, write) for index, write in enumerate(batch) if type(write) is Transition and write.store_calls]
        resumed = [(index, write) for index, write in calling if _is_resumed_for_event(write)]
        times = (
            Counter([write.instance_id for write in batch if not isinstance(write, _WITHOUT_INSTANCE)]) if resumed else {}
        )
        self._store_calls = {write.instance_id: (index, write) for index, write in resumed if times[write.instance_id] == 1}

    def __bool__(self) -> bool:
        return bool(self._store_calls)

    def values(self) -> dict[str, Any]:
        """Return the values of the statement, and of the query whether it was committed."""
        rows = [_awaited_row(write) for _, write in self._store_calls.values()]
        entries = [(write.instance_id, *_result_entry(write)) for _, write in self._store_calls.values()]
        return _to_columns(_AWAITED_COLUMNS, rows) | _to_columns(_HISTORY_COLUMNS, entries)

    def results(self, written: Sequence[tuple[str, int, bytes]]) -> dict[int, WriteResult]:
        """Return the results of the writes that were made."""
        results: dict[int, WriteResult] = {}
        for instance_id, inbox_version, body in written:
            index, write = self._store_calls[instance_id]
            entry = _result_entry(write)
            reply = StoreReply(entry.op, entry.seq, entry.at, entry.outcome, body)
            results[index] = Applied(inbox_version, True, (reply,), caught_up=True)
        return results


def _is_resumed_for_event(write: Transition) -> bool:
    """Whether the write resumes an unowned instance, and its only content is a wait for the event that has woken it."""
    if not is_plain_wait(write) or write.history or write.length is None:
        return False
    return write.new_epoch > write.epoch and not has_extras(write._replace(new_epoch=write.epoch, store_calls=()))


def _result_entry(write: Transition) -> Entry:
    assert write.length is not None
    return write.store_calls[0].entry._replace(seq=write.length + 1, outcome=Outcome.OK)


def _awaited_row(write: Transition) -> tuple[Any, ...]:
    (call,) = write.store_calls
    selector = call.command
    assert isinstance(selector, WaitSelector)
    status = write.status if write.keep_owned or write.status is Status.COMPENSATING else Status.RUNNING
    head = (write.instance_id, write.generation, write.epoch, write.worker, write.new_epoch, write.length, status)
    rest = (selector.key, selector.subject, call.due, selector_key(selector))
    return (*head, write.wake_at, write.retrying_since, write.now, call.entry.op, *rest)


def _to_columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    if not rows:
        return {name: [] for name in names}
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def _make_result(write: Write) -> WriteResult:
    if type(write) is CreateInstance:
        return _APPLIED_RESULTS[write.owner is not None]
    assert isinstance(write, Transition)
    return (
        _APPLIED_RESULTS[write.ending is None] if not write.inbox_seen else Applied(write.inbox_seen, write.ending is None)
    )


def _check_row(write: Write) -> tuple[Any, ...]:
    """Return the columns that identify what a write leaves in the database: no other write leaves the same."""
    if type(write) is CreateInstance:
        return (write.instance_id, 1, 0 if write.owner is None else 1, write.owner, None, write.now)
    assert isinstance(write, Transition)
    last = -1 if write.ending is not None else write.history[-1].seq
    return (write.instance_id, write.generation, write.epoch, write.worker, last, write.now)

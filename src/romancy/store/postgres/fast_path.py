"""The short way: what most writes of a batch do is one statement for all of them, decided by its WHERE.

New instances, steps with nothing but a longer history, ends with nothing left to clear; and, in statements of their own,
events that start nothing, and instances that were called for an event and come for it. A statement answers with those it has
written; the others (the id is taken, the epoch old, something arrived) go the long way, which looks first and says why.
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
"""Statements that take records (of types of ours) instead of columns."""
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
_APPLIED_ANSWERS = (Applied(0, False), Applied(0, True))
"""The answers to most, by whether the instance is held."""
_AWAITED_COLUMNS = (
    "id", "generation", "epoch", "worker", "new_epoch", "length", "status", "wake_at", "retrying_since", "now", "op", "type",
    "subject", "due", "selector",
)  # fmt: skip
_ACTIVITY, _OK, _FED, _RUNNING = Kind.ACTIVITY, Outcome.OK, Role.FED, Status.RUNNING
_WITHOUT_INSTANCE = (AcceptEvents, PostMessage)
"""What belongs to no instance."""
_HISTORY_COLUMNS = ("h_id", *[f"h_{name}" for name in Entry._fields])


class FastStatement(NamedTuple):
    """A statement with what to run it with, and with what to ask whether it has been carried out."""

    statement: str
    values: dict[str, Any]
    check_values: Callable[[], dict[str, Any]]


class PostgresFastPath:
    """The writes of a batch that can go the short way, as the values of a statement or two.

    Each value costs at both ends, and each array of them more: what is usual goes as records. And what most steps have in
    common is left to a statement for them: one new entry, of an activity that succeeded at once, under the instance's own
    worker.
    """

    def __init__(self, batch: Sequence[Write]) -> None:
        self._batch = batch
        self._index: dict[str, int] = {}
        """Instances of which something is written: what follows it must not overtake it."""
        self._worker = ""
        self._new: list[tuple[Any, ...]] = []
        self._owned: list[tuple[Any, ...]] = []
        self._general: list[tuple[Any, ...]] = []
        """Those that are like others but for their entries, which follow."""
        self._history: list[tuple[Any, ...]] = []
        self._has_ends = False
        known, waiting = self._index, set[str]()
        for index, write in enumerate(batch):
            if isinstance(write, _WITHOUT_INSTANCE):
                continue
            instance_id = write.instance_id
            if instance_id in known or instance_id in waiting or not self._add_write(write):
                waiting.add(instance_id)
            else:
                known[instance_id] = index

    def statements(self) -> Iterator[FastStatement]:
        """What to run."""
        if len(self._owned) == 1 and not self._new and not self._has_ends:
            values = dict(zip(_OWNED_COLUMNS + _ENTRY_COLUMNS, self._owned[0], strict=True)) | {"worker": self._worker}
            yield FastStatement("fast_step", values, lambda: self._check_values(self._owned))
        elif self._new or self._owned:
            ids = [line[0] for line in self._owned]
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

    def _check_values(self, *rows: list[tuple[Any, ...]]) -> dict[str, Any]:
        writes = [self._batch[self._index[line[0]]] for some in rows for line in some]
        return _to_columns(("id", "generation", "epoch", "worker", "last", "now"), [_check_row(write) for write in writes])

    def answers(self, written: Sequence[str]) -> dict[int, WriteResult]:
        """The answers for what was written."""
        batch, known = self._batch, self._index
        return {(index := known[instance_id]): _make_answer(batch[index]) for instance_id in written}

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
            return False  # of one that fails it is noted what it belonged to, in case it is retried
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
            return False  # the long way says what is wrong with it
        head = (write.instance_id, write.workflow, write.version, write.owner, write.deadline_at, write.now)
        self._new.append((*head, write.code, write.python, write.digest, write.input))
        return True


def _encode_usual(entry: Entry, write: Transition) -> tuple[Any, ...] | None:
    """What is told of an entry that is like most; None: it is not."""
    # Taken apart at once: each by its name takes longer.
    seq, kind, op, outcome, at, name, role, digest, input, value, attempt, site, *times, worker, epoch = entry
    if kind is not _ACTIVITY or outcome is not _OK or role is not _FED or attempt != 1 or seq - 1 != write.length:
        return None
    if worker != write.worker or epoch != write.epoch:
        return None
    return (op, name, at, digest, input, value, site, *times)


class PlainEvents(EventBatch):
    """The events of a batch that start nothing, for all we know, and are for nobody else."""

    def __init__(self, batch: Sequence[Write]) -> None:
        super().__init__(
            {i: write for i, write in enumerate(batch) if type(write) is AcceptEvents and is_plain_accept(write)}
        )

    def accepted_answers(self, found: Sequence[tuple[int, str | None, str | None, str]]) -> dict[int, WriteResult]:
        """The answers for what was written: after a row that says so, each new event and who was called for it.

        In the place of the event's id stands something for whom an earlier one has woken.
        """
        if not found:
            return {}
        places = self.index_by_id()
        new: dict[int, int] = {}
        called: dict[int, dict[str, bool]] = {}
        for seq, source, id, instance_id in found[1:]:
            if source is not None and id is not None:
                new[places[source, id]] = seq
            else:
                those = called.setdefault(seq, {})
                those[instance_id] = those.get(instance_id, False) or id is None
        return self.answers(new, called)


class AwaitedEvents:
    """The writes of a batch that come for an event that they were called for, as the columns of one statement."""

    def __init__(self, batch: Sequence[Write]) -> None:
        asking = [(index, write) for index, write in enumerate(batch) if type(write) is Transition and write.store_calls]
        coming = [(index, write) for index, write in asking if _is_resumed_for_event(write)]
        times = Counter([write.instance_id for write in batch if not isinstance(write, _WITHOUT_INSTANCE)]) if coming else {}
        self._store_calls = {write.instance_id: (index, write) for index, write in coming if times[write.instance_id] == 1}

    def __bool__(self) -> bool:
        return bool(self._store_calls)

    def values(self) -> dict[str, Any]:
        """What to run the statement with, and to ask with whether it has been carried out."""
        asks = [_awaited_row(write) for _, write in self._store_calls.values()]
        entries = [(write.instance_id, *_result_entry(write)) for _, write in self._store_calls.values()]
        return _to_columns(_AWAITED_COLUMNS, asks) | _to_columns(_HISTORY_COLUMNS, entries)

    def answers(self, written: Sequence[tuple[str, int, bytes]]) -> dict[int, WriteResult]:
        """The answers for what was written."""
        answers: dict[int, WriteResult] = {}
        for instance_id, signal, body in written:
            index, write = self._store_calls[instance_id]
            entry = _result_entry(write)
            reply = StoreReply(entry.op, entry.seq, entry.at, entry.outcome, body)
            answers[index] = Applied(signal, True, (reply,), caught_up=True)
        return answers


def _is_resumed_for_event(write: Transition) -> bool:
    """It goes on with an instance that nobody holds, because something came; and all it does is to ask for that."""
    if not is_plain_wait(write) or write.history or write.length is None:
        return False
    return write.new_epoch > write.epoch and not has_extras(write._replace(new_epoch=write.epoch, store_calls=()))


def _result_entry(write: Transition) -> Entry:
    assert write.length is not None
    return write.store_calls[0].entry._replace(seq=write.length + 1, outcome=Outcome.OK)


def _awaited_row(write: Transition) -> tuple[Any, ...]:
    (ask,) = write.store_calls
    wanted = ask.command
    assert isinstance(wanted, WaitSelector)
    status = write.status if write.keep_owned or write.status is Status.COMPENSATING else Status.RUNNING
    head = (write.instance_id, write.generation, write.epoch, write.worker, write.new_epoch, write.length, status)
    rest = (wanted.key, wanted.subject, ask.due, selector_key(wanted))
    return (*head, write.wake_at, write.retrying_since, write.now, ask.entry.op, *rest)


def _to_columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    if not rows:
        return {name: [] for name in names}
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def _make_answer(write: Write) -> WriteResult:
    if type(write) is CreateInstance:
        return _APPLIED_ANSWERS[write.owner is not None]
    assert isinstance(write, Transition)
    return (
        _APPLIED_ANSWERS[write.ending is None] if not write.inbox_seen else Applied(write.inbox_seen, write.ending is None)
    )


def _check_row(write: Write) -> tuple[Any, ...]:
    """What a write leaves behind: none but itself does."""
    if type(write) is CreateInstance:
        return (write.instance_id, 1, 0 if write.owner is None else 1, write.owner, None, write.now)
    assert isinstance(write, Transition)
    last = -1 if write.ending is not None else write.history[-1].seq
    return (write.instance_id, write.generation, write.epoch, write.worker, last, write.now)

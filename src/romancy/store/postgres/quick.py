"""The short way: what most writes of a batch do is one statement for all of them, decided by its WHERE.

New instances, steps with nothing but a longer history, ends with nothing left to clear; and, in a statement of their own,
instances that were called for an event and come for it. A statement answers with those it has written; the others (the id is
taken, the epoch old, something arrived) go the long way, which looks first and says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeGuard

from romancy.model.history import Entry, Outcome
from romancy.model.status import Status
from romancy.model.talk import Reply, Wanted
from romancy.model.transition import Accept, Answer, Applied, Create, Post, Transition, Write
from romancy.store.sql.crowds import is_plain_ask
from romancy.store.sql.events import wish
from romancy.store.sql.shapes import has_extras, is_step

_NEW = (
    "new_id", "new_workflow", "new_version", "new_status", "new_epoch", "new_owner", "new_wake_at", "new_deadline_at",
    "new_now", "new_started_at", "new_code", "new_python", "new_digest", "new_input",
)  # fmt: skip
_HELD = (
    "id", "generation", "epoch", "owner", "seen", "length", "status", "ends", "bound", "now", "fingerprint", "output",
    "error",
)  # fmt: skip
_ASKED = (
    "id", "generation", "epoch", "worker", "new_epoch", "length", "status", "wake_at", "retrying_since", "now", "op", "type",
    "subject", "due", "wish",
)  # fmt: skip
_HISTORY = ("h_id", *[f"h_{name}" for name in Entry._fields])


class Quick:
    """The writes of a batch that can go the short way, as the columns of one statement."""

    def __init__(self, batch: Sequence[Write]) -> None:
        self._batch = batch
        self._index: dict[str, int] = {}
        """Instances of which something is written: what follows it must not overtake it."""
        self._new: list[tuple[Any, ...]] = []
        self._held: list[tuple[Any, ...]] = []
        self._history: list[tuple[Any, ...]] = []
        self._ends = False
        waiting: set[str] = set()
        for index, write in enumerate(batch):
            if isinstance(write, Accept | Post):
                continue
            known = write.instance_id in self._index or write.instance_id in waiting
            if known or not isinstance(write, Create | Transition) or not self._gather(write):
                waiting.add(write.instance_id)
            else:
                self._index[write.instance_id] = index

    @property
    def statement(self) -> str | None:
        """The name of the statement, if there is anything for it."""
        if self._new or self._ends:
            return "quick"
        return "quick_steps" if self._held else None

    def values(self) -> dict[str, Any]:
        """What to run the statement with."""
        return _columns(_NEW, self._new) | _columns(_HELD, self._held) | _columns(_HISTORY, self._history)

    def done_values(self) -> dict[str, Any]:
        """What to ask with whether the statement has been carried out."""
        lines = [_trace(self._batch[index]) for index in self._index.values()]
        return _columns(("id", "generation", "epoch", "worker", "last", "now"), lines)

    def answers(self, written: Sequence[str]) -> dict[int, Answer]:
        """The answers for what was written."""
        indices = [self._index[instance_id] for instance_id in written]
        return {index: _answer(self._batch[index]) for index in indices}

    def _gather(self, write: Create | Transition) -> bool:
        if type(write) is Create:
            return self._create(write)
        assert isinstance(write, Transition)
        ending = write.ending
        if not is_step(write):
            if ending is None or write.length is None or has_extras(write):
                return False
            if write.bound and write.status is Status.FAILED:
                return False  # what it belonged to is noted, in case it is retried
            self._ends = True
        end = (None, None, None) if ending is None else (ending.fingerprint, ending.output, ending.error)
        head = (write.instance_id, write.generation, write.epoch, write.worker, write.seen, write.length, write.status)
        bound = ending is not None and (write.bound or write.seen != 0)
        self._held.append((*head, ending is not None, bound, write.now, *end))
        self._history += [(write.instance_id, *entry) for entry in write.history]
        return True

    def _create(self, write: Create) -> bool:
        if "\0" in write.instance_id or write.ending is not None:
            return False  # the long way says what is wrong with it
        held = write.owner is not None
        self._new.append((
            write.instance_id,
            write.workflow,
            write.version,
            Status.RUNNING if held else Status.PENDING,
            1 if held else 0,
            write.owner,
            None if held else write.now,
            write.deadline_at,
            write.now,
            write.now if held else None,
            write.code,
            write.python,
            write.digest,
            write.input,
        ))  # fmt: skip
        return True


class Answers:
    """The writes of a batch that come for an event that they were called for, as the columns of one statement."""

    def __init__(self, batch: Sequence[Write]) -> None:
        times = Counter([write.instance_id for write in batch if not isinstance(write, Accept | Post)])
        self._asks = {
            write.instance_id: (index, write)
            for index, write in enumerate(batch)
            if _comes_for_event(write) and times[write.instance_id] == 1
        }

    def __bool__(self) -> bool:
        return bool(self._asks)

    def values(self) -> dict[str, Any]:
        """What to run the statement with, and to ask with whether it has been carried out."""
        asks = [_asked(write) for _, write in self._asks.values()]
        entries = [(write.instance_id, *_entry(write)) for _, write in self._asks.values()]
        return _columns(_ASKED, asks) | _columns(_HISTORY, entries)

    def answers(self, written: Sequence[tuple[str, int, bytes]]) -> dict[int, Answer]:
        """The answers for what was written."""
        answers: dict[int, Answer] = {}
        for instance_id, signal, body in written:
            index, write = self._asks[instance_id]
            entry = _entry(write)
            reply = Reply(entry.op, entry.seq, entry.at, entry.outcome, body)
            answers[index] = Applied(signal, True, (reply,), caught_up=True)
        return answers


def _comes_for_event(write: Write) -> TypeGuard[Transition]:
    """It goes on with an instance that nobody holds, because something came; and all it does is to ask for that."""
    if type(write) is not Transition or not is_plain_ask(write) or write.history or write.length is None:
        return False
    return write.new_epoch > write.epoch and not has_extras(write._replace(new_epoch=write.epoch, asks=()))


def _entry(write: Transition) -> Entry:
    assert write.length is not None
    return write.asks[0].entry._replace(seq=write.length + 1, outcome=Outcome.OK)


def _asked(write: Transition) -> tuple[Any, ...]:
    (ask,) = write.asks
    wanted = ask.question
    assert isinstance(wanted, Wanted)
    status = write.status if write.hold or write.status is Status.COMPENSATING else Status.RUNNING
    head = (write.instance_id, write.generation, write.epoch, write.worker, write.new_epoch, write.length, status)
    rest = (wanted.key, wanted.subject, ask.due, wish(wanted))
    return (*head, write.wake_at, write.retrying_since, write.now, ask.entry.op, *rest)


def _columns(names: Sequence[str], lines: Sequence[Sequence[Any]]) -> dict[str, Any]:
    if not lines:
        return {name: [] for name in names}
    return dict(zip(names, map(list, zip(*lines, strict=True)), strict=True))


def _answer(write: Write) -> Answer:
    if type(write) is Create:
        return Applied(0, write.owner is not None)
    assert isinstance(write, Transition)
    return Applied(write.seen, write.ending is None)


def _trace(write: Write) -> tuple[Any, ...]:
    """What a write leaves behind: none but itself does."""
    if type(write) is Create:
        return (write.instance_id, 1, 0 if write.owner is None else 1, write.owner, None, write.now)
    assert isinstance(write, Transition)
    last = -1 if write.ending is not None else write.history[-1].seq
    return (write.instance_id, write.generation, write.epoch, write.worker, last, write.now)

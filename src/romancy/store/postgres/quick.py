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
from romancy.model.status import Status
from romancy.model.talk import Reply, Wanted
from romancy.model.transition import Accept, Answer, Applied, Create, Post, Transition, Write
from romancy.store.sql.crowds import Gathering, is_plain_accept, is_plain_ask
from romancy.store.sql.events import wish
from romancy.store.sql.shapes import has_extras, is_step

WITH_RECORDS = frozenset({"quick", "quick_steps"})
"""Statements that take records (of types of ours) instead of columns."""
_HELD = ("id", "generation", "epoch", "seen", "length", "status", "bound", "now", "fingerprint", "output", "error")
_ONE = ("op", "name", "at", "digest", "input", "value", "site", "scheduled_at", "started_at", "ended_at")
_NONE = (None,) * len(_ONE)
_NOTHING_CAME = (Applied(0, False), Applied(0, True))
"""The answers to most, by whether the instance is held."""
_ASKED = (
    "id", "generation", "epoch", "worker", "new_epoch", "length", "status", "wake_at", "retrying_since", "now", "op", "type",
    "subject", "due", "wish",
)  # fmt: skip
_ACTIVITY, _OK, _FED, _RUNNING = Kind.ACTIVITY, Outcome.OK, Role.FED, Status.RUNNING
_OF_NOBODY = (Accept, Post)
"""What belongs to no instance."""
_HISTORY = ("h_id", *[f"h_{name}" for name in Entry._fields])


class Part(NamedTuple):
    """A statement with what to run it with, and with what to ask whether it has been carried out."""

    statement: str
    values: dict[str, Any]
    traces: Callable[[], dict[str, Any]]


class Quick:
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
        self._held: list[tuple[Any, ...]] = []
        self._other: list[tuple[Any, ...]] = []
        """Those that are like others but for their entries, which follow."""
        self._history: list[tuple[Any, ...]] = []
        self._ends = False
        known, waiting = self._index, set[str]()
        for index, write in enumerate(batch):
            if isinstance(write, _OF_NOBODY):
                continue
            instance_id = write.instance_id
            if instance_id in known or instance_id in waiting or not self._gather(write):
                waiting.add(instance_id)
            else:
                known[instance_id] = index

    def parts(self) -> Iterator[Part]:
        """What to run."""
        if len(self._held) == 1 and not self._new and not self._ends:
            values = dict(zip(_HELD + _ONE, self._held[0], strict=True)) | {"worker": self._worker}
            yield Part("quick_step", values, lambda: self._traces(self._held))
        elif self._new or self._held:
            ids = [line[0] for line in self._held]
            values = {"held": self._held, "ids": ids, "new": self._new, "worker": self._worker}
            name = "quick" if self._new or self._ends else "quick_steps"
            yield Part(name, values, lambda: self._traces(self._new, self._held))
        if self._other:
            values = _columns((*_HELD, "ends"), self._other) | _columns(_HISTORY, self._history) | {"worker": self._worker}
            yield Part("quick_others", values, lambda: self._traces(self._other))

    def _traces(self, *lines: list[tuple[Any, ...]]) -> dict[str, Any]:
        writes = [self._batch[self._index[line[0]]] for some in lines for line in some]
        return _columns(("id", "generation", "epoch", "worker", "last", "now"), [_trace(write) for write in writes])

    def answers(self, written: Sequence[str]) -> dict[int, Answer]:
        """The answers for what was written."""
        batch, known = self._batch, self._index
        return {(index := known[instance_id]): _answer(batch[index]) for instance_id in written}

    def _gather(self, write: Write) -> bool:
        if type(write) is Create:
            return self._create(write)
        if type(write) is not Transition or (self._worker and self._worker != write.worker):
            return False
        ending = write.ending
        if ending is None:
            if not is_step(write):
                return False
            end: tuple[Any, ...] = (None, False, write.now, None, None, None)
        elif write.length is None or has_extras(write) or (write.bound and write.status is Status.FAILED):
            return False  # of one that fails it is noted what it belonged to, in case it is retried
        else:
            bound = write.bound or write.seen != 0
            end = (write.status, bound, write.now, ending.fingerprint, ending.output, ending.error)
        self._worker = write.worker
        self._add((write.instance_id, write.generation, write.epoch, write.seen, write.length, *end), write)
        return True

    def _add(self, line: tuple[Any, ...], write: Transition) -> None:
        history, ends = write.history, write.ending is not None
        entry: tuple[Any, ...] | None = None
        if not history:
            entry = _NONE
        elif len(history) == 1 and (ends or write.status is _RUNNING):
            entry = _usual(history[0], write)
        if entry is not None:
            self._held.append(line + entry)
            self._ends = self._ends or ends
        else:
            self._other.append((*line[:5], write.status, *line[6:], ends))
            self._history += [(write.instance_id, *entry) for entry in history]

    def _create(self, write: Create) -> bool:
        if "\0" in write.instance_id or write.ending is not None:
            return False  # the long way says what is wrong with it
        head = (write.instance_id, write.workflow, write.version, write.owner, write.deadline_at, write.now)
        self._new.append((*head, write.code, write.python, write.digest, write.input))
        return True


def _usual(entry: Entry, write: Transition) -> tuple[Any, ...] | None:
    """What is told of an entry that is like most; None: it is not."""
    # Taken apart at once: each by its name takes longer.
    seq, kind, op, outcome, at, name, role, digest, input, value, attempt, site, *times, worker, epoch = entry
    if kind is not _ACTIVITY or outcome is not _OK or role is not _FED or attempt != 1 or seq - 1 != write.length:
        return None
    if worker != write.worker or epoch != write.epoch:
        return None
    return (op, name, at, digest, input, value, site, *times)


class Events(Gathering):
    """The events of a batch that start nothing, for all we know, and are for nobody else."""

    def __init__(self, batch: Sequence[Write]) -> None:
        super().__init__({i: write for i, write in enumerate(batch) if type(write) is Accept and is_plain_accept(write)})

    def accepted(self, found: Sequence[tuple[int, str | None, str | None, str]]) -> dict[int, Answer]:
        """The answers for what was written: after a row that says so, each new event and who was called for it.

        In the place of the event's id stands something for whom an earlier one has woken.
        """
        if not found:
            return {}
        places = self.places()
        new: dict[int, int] = {}
        called: dict[int, dict[str, bool]] = {}
        for seq, source, id, instance_id in found[1:]:
            if source is not None and id is not None:
                new[places[source, id]] = seq
            else:
                those = called.setdefault(seq, {})
                those[instance_id] = those.get(instance_id, False) or id is None
        return self.answers(new, called)


class Answers:
    """The writes of a batch that come for an event that they were called for, as the columns of one statement."""

    def __init__(self, batch: Sequence[Write]) -> None:
        asking = [(index, write) for index, write in enumerate(batch) if type(write) is Transition and write.asks]
        coming = [(index, write) for index, write in asking if _comes_for_event(write)]
        times = Counter([write.instance_id for write in batch if not isinstance(write, _OF_NOBODY)]) if coming else {}
        self._asks = {write.instance_id: (index, write) for index, write in coming if times[write.instance_id] == 1}

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


def _comes_for_event(write: Transition) -> bool:
    """It goes on with an instance that nobody holds, because something came; and all it does is to ask for that."""
    if not is_plain_ask(write) or write.history or write.length is None:
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
        return _NOTHING_CAME[write.owner is not None]
    assert isinstance(write, Transition)
    return _NOTHING_CAME[write.ending is None] if not write.seen else Applied(write.seen, write.ending is None)


def _trace(write: Write) -> tuple[Any, ...]:
    """What a write leaves behind: none but itself does."""
    if type(write) is Create:
        return (write.instance_id, 1, 0 if write.owner is None else 1, write.owner, None, write.now)
    assert isinstance(write, Transition)
    last = -1 if write.ending is not None else write.history[-1].seq
    return (write.instance_id, write.generation, write.epoch, write.worker, last, write.now)

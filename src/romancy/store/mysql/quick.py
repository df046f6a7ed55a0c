"""The short way: what most writes of a batch do, with two packets for all of them.

New instances, steps with nothing but a longer history, ends with nothing left to clear. What is out of the ordinary (the
epoch is old, something arrived, somebody else holds the row) is left out here and goes the long way, which says why. So
does everything if an id is taken or a history is longer than it was read: the keys refuse it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from romancy.model.transition import Accept, Answer, Applied, Create, Post, Transition, Write
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.database import Work
from romancy.store.sql.ledger import Ledger, State
from romancy.store.sql.shapes import has_extras, is_step
from romancy.store.sql.transitions import create


class Held(NamedTuple):
    """An instance in somebody's hands, in the order of the statement `quick`."""

    id: str
    generation: int
    epoch: int
    owner: str | None
    signal: int
    signal_seen: int
    status: str
    wake_at: int | None
    retrying_since: int | None
    length: int


def plainest(batch: Sequence[Write]) -> Work[dict[int, Answer]] | None:
    """The work for the plainest writes of a batch, if there are any."""
    chosen: dict[int, Create | Transition] = {}
    seen: set[str] = set()
    for index, write in enumerate(batch):
        if isinstance(write, Accept | Post):
            continue
        # What follows another write of its instance must not overtake it.
        if write.instance_id not in seen and isinstance(write, Create | Transition) and _is_plain(write):
            chosen[index] = write
        seen.add(write.instance_id)
    return partial(write_quickly, chosen=chosen) if chosen else None


def _is_plain(write: Create | Transition) -> bool:
    if isinstance(write, Create):
        return write.ending is None and "\0" not in write.instance_id  # else the long way says what is wrong with it
    return is_step(write) or _is_plain_end(write)


def _is_plain_end(write: Transition) -> bool:
    plain = write.ending is not None and not write.bound and write.length is not None and write.seen == 0
    return plain and not has_extras(write)


def write_quickly(cursor: Cursor, chosen: dict[int, Create | Transition]) -> dict[int, Answer]:
    """Write what can be written; the others have no answer."""
    ids = [write.instance_id for write in chosen.values() if isinstance(write, Transition)]
    held = {row[0]: Held(*row) for row in cursor.rows("quick", {"ids": ids})} if ids else {}
    answers: dict[int, Answer] = {}
    ledger = _Writing(cursor)
    for index, write in sorted(chosen.items(), key=lambda one: one[1].instance_id):
        if isinstance(write, Create):
            answers[index] = create(ledger, write)
        elif _fits(write, held.get(write.instance_id)):
            answers[index] = ledger.go_on(write)
    ledger.flush()
    return answers


def _fits(write: Transition, held: Held | None) -> bool:
    """The instance is as its run knows it."""
    if held is None or (held.generation, held.epoch, held.owner) != (write.generation, write.epoch, write.worker):
        return False
    if not held.signal == held.signal_seen == write.seen or held.length != write.length:
        return False
    return write.ending is not None or (held.status, held.wake_at, held.retrying_since) == (write.status, None, None)


class _Writing(Ledger):
    """A ledger that has read nothing."""

    def __init__(self, cursor: Cursor) -> None:
        super().__init__(cursor, (), look=None)

    def go_on(self, write: Transition) -> Answer:
        """A step, or an end."""
        state = State(write.instance_id, write.status, write.generation)
        self.add_history(state, write.history)
        if (ending := write.ending) is not None:
            row = (write.status, write.now, write.now, ending.fingerprint, write.instance_id)
            self.cursor.many("quick_end", [row])
            self.set_results(state, ending.output, ending.error)
        return Applied(write.seen, ending is None)

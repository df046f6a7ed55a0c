"""What an instance waits for, as the store knows it."""

from __future__ import annotations

from collections.abc import Iterable

from romancy.core.loop import Run
from romancy.model.history import Kind
from romancy.model.status import Status
from romancy.model.transition import Wait, WaitKind
from romancy.worker.retries import Retries


class StoredWaits:
    """Which waits the store has, and what to change about them.

    Timers and back-offs are there for people to see while nobody has the instance in hand. Waits for events and messages are
    registered by the store itself, when it is asked and has nothing.
    """

    def __init__(self) -> None:
        self._visible: dict[str, int | None] = {}
        self._registered: dict[str, None] = {}  # no set: what is written must not depend on how this process hashes

    def __bool__(self) -> bool:
        return bool(self._visible or self._registered)

    @property
    def registered(self) -> frozenset[str]:
        """The waits for events and messages that the store has, or is being asked for."""
        return frozenset(self._registered)

    def restore(self, ops: Iterable[str]) -> None:
        """The store has these; what they are and when they were due is not known any more."""
        self._visible = dict.fromkeys(ops, -1)

    def mark_registered(self, ops: Iterable[str]) -> None:
        """The store is being asked for these."""
        for op in ops:
            self._registered[op] = None
            self._visible.pop(op, None)

    def mark_resolved(self, ops: Iterable[str]) -> None:
        """The store has answered these: they wait no more."""
        for op in ops:
            self._registered.pop(op, None)

    def take_changes(self, run: Run, retries: Retries, *, add: bool) -> tuple[tuple[Wait, ...], tuple[str, ...]]:
        """The waits to write and to strike off. While the instance is in hand none are added: its owner knows them."""
        shown, current = self._visible, _current_waits(run, retries)
        stale = [op for op in shown if op not in current]
        stale += [op for op in self._registered if op not in run.pending]
        new = tuple(wait for op, wait in current.items() if shown.get(op, 0) != wait.due) if add else ()
        for op in stale:
            shown.pop(op, None)
            self._registered.pop(op, None)
        shown.update({wait.op: wait.due for wait in new})
        return new, tuple(stale)


def waiting_status(run: Run) -> Status:
    """What an instance is while nobody has it in hand: an event goes before a message, a message before a timer."""
    kinds = {waiting.issue.kind for waiting in run.pending.values()}
    if Kind.EVENT in kinds:
        return Status.WAITING_FOR_EVENT
    return Status.WAITING_FOR_MESSAGE if Kind.MESSAGE in kinds else Status.WAITING_FOR_TIMER


def _current_waits(run: Run, retries: Retries) -> dict[str, Wait]:
    """Timers, and attempts to come."""
    found: dict[str, Wait] = {}
    for op, waiting in run.pending.items():
        issue = waiting.issue
        if issue.kind is Kind.TIMER:
            found[op] = Wait(op, WaitKind.TIMER, issue.at, issue.due, site=issue.site)
    for op, backoff in retries.waiting.items():
        issue = backoff.work.issue
        found[op] = Wait(op, WaitKind.RETRY, issue.at, backoff.next_at, site=issue.site)
    return found

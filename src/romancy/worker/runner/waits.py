"""The waits and timers of an instance: those that the store has, and the store calls that the next transition makes."""

from __future__ import annotations

from collections.abc import Iterable

from romancy.core.commands import Issue
from romancy.core.loop import Run
from romancy.model.history import WAITS, Kind
from romancy.model.status import Status
from romancy.model.transition import Wait, WaitKind
from romancy.worker.retries import Retries


class RunnerWaits:
    """The waits of one instance, and its store calls.

    Timers and back-offs are written only for display, while the instance is not owned. Waits for events and messages are
    registered by the store itself, when a store call finds nothing to receive.
    """

    __slots__ = ("_registered", "_visible", "answered_until", "calls")

    def __init__(self) -> None:
        self.calls: set[str] = set()
        """The operations whose store calls go into the next transition."""
        self.answered_until = 0
        """Store calls have been answered for everything that arrived before this time."""
        self._visible: dict[str, int | None] = {}
        self._registered: dict[str, None] = {}  # not a set: the order of writes must not depend on hashing

    @property
    def registered(self) -> frozenset[str]:
        """The waits for events and messages that the store has, or that a store call in flight may register."""
        return frozenset(self._registered)

    def restore(self, ops: Iterable[str]) -> None:
        """Take over the waits that the store has. Their kinds and due times are not known here."""
        self._visible = dict.fromkeys(ops, -1)

    def repeat_call(self, op: str, run: Run) -> None:
        """Make the store call of a wait again with the next transition, if the run still waits."""
        if op in run.pending:
            self.calls.add(op)

    def take_calls(self, run: Run) -> list[Issue]:
        """Return the operations to make store calls for, in the order they were issued."""
        issues = [waiting.issue for op, waiting in run.pending.items() if op in self.calls]
        self.calls.clear()
        for issue in issues:
            if issue.kind in WAITS:
                self._registered[issue.op] = None
                self._visible.pop(issue.op, None)
        return issues

    def mark_resolved(self, ops: Iterable[str]) -> None:
        """The store has replied to these: their waits are over."""
        for op in ops:
            self._registered.pop(op, None)

    def take_changes(self, run: Run, retries: Retries, *, add: bool) -> tuple[tuple[Wait, ...], tuple[str, ...]]:
        """Return the waits to write and the operations whose waits to delete. Waits are written only on release (`add`)."""
        shown = self._visible
        if not (add or shown or self._registered):
            return (), ()
        current = _current_waits(run, retries)
        stale = [op for op in shown if op not in current]
        stale += [op for op in self._registered if op not in run.pending]
        new = tuple([wait for op, wait in current.items() if shown.get(op, 0) != wait.due]) if add else ()
        for op in stale:
            shown.pop(op, None)
            self._registered.pop(op, None)
        shown.update({wait.op: wait.due for wait in new})
        return new, tuple(stale)


def waiting_status(run: Run) -> Status:
    """The status of an instance that is not owned: waiting for an event before a message, for a message before a timer."""
    kinds = {waiting.issue.kind for waiting in run.pending.values()}
    if Kind.EVENT in kinds:
        return Status.WAITING_FOR_EVENT
    return Status.WAITING_FOR_MESSAGE if Kind.MESSAGE in kinds else Status.WAITING_FOR_TIMER


def _current_waits(run: Run, retries: Retries) -> dict[str, Wait]:
    """The timers and back-offs of the run."""
    found: dict[str, Wait] = {}
    for op, waiting in run.pending.items():
        issue = waiting.issue
        if issue.kind is Kind.TIMER:
            found[op] = Wait(op, WaitKind.TIMER, issue.at, issue.due, site=issue.site)
    for op, backoff in retries.waiting.items():
        issue = backoff.work.issue
        found[op] = Wait(op, WaitKind.RETRY, issue.at, backoff.next_at, site=issue.site)
    return found

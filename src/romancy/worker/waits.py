"""What an instance waits for, as the store shows it to people while nobody has the instance in hand."""

from __future__ import annotations

from collections.abc import Iterable

from romancy.core.loop import Run
from romancy.model.history import Kind
from romancy.model.transition import Wait, WaitKind
from romancy.worker.retries import Retries


class StoredWaits:
    """Which waits the store has, and what to change about them."""

    def __init__(self) -> None:
        self._stored: dict[str, int | None] = {}

    def __bool__(self) -> bool:
        return bool(self._stored)

    def restore(self, ops: Iterable[str]) -> None:
        """The store has these; when they were due is not known any more."""
        self._stored = dict.fromkeys(ops, -1)

    def change(self, current: dict[str, Wait], *, add: bool) -> tuple[tuple[Wait, ...], tuple[str, ...]]:
        """The waits to write and to strike off. While the instance is in hand none are added: its owner knows them."""
        stored = self._stored
        stale = tuple(op for op in stored if op not in current)
        new = tuple(wait for op, wait in current.items() if stored.get(op, 0) != wait.due) if add else ()
        for op in stale:
            del stored[op]
        stored.update({wait.op: wait.due for wait in new})
        return new, stale


def current_waits(run: Run, retries: Retries) -> dict[str, Wait]:
    """What the instance waits for now: timers, and attempts to come."""
    found: dict[str, Wait] = {}
    for op, waiting in run.pending.items():
        issue = waiting.issue
        if issue.kind is Kind.TIMER:
            found[op] = Wait(op, WaitKind.TIMER, issue.at, issue.due, site=issue.site)
    for op, backoff in retries.waiting.items():
        issue = backoff.work.issue
        found[op] = Wait(op, WaitKind.RETRY, issue.at, backoff.next_at, site=issue.site)
    return found

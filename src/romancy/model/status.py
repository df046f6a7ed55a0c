"""The statuses of an instance.

    pending ──► running ◄──► waiting_for_event | waiting_for_message | waiting_for_timer
                  │  ▲
                  │  └─ paused (by an operator), blocked (the code does not fit the history)
                  ├─► completed
                  ├─► compensating ──► failed | cancelled
                  └─► terminated (by an operator; no compensation)

An archived generation of a workflow that recurred is `recurred`.
"""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """The status of a workflow instance."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING_FOR_EVENT = "waiting_for_event"
    WAITING_FOR_MESSAGE = "waiting_for_message"
    WAITING_FOR_TIMER = "waiting_for_timer"
    COMPENSATING = "compensating"
    PAUSED = "paused"
    BLOCKED = "blocked"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TERMINATED = "terminated"
    RECURRED = "recurred"

    @property
    def ended(self) -> bool:
        """An instance with this status has ended."""
        return self in ENDED


ENDED = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.TERMINATED, Status.RECURRED})

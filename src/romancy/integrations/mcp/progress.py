"""Status and progress of an instance, for clients that poll: functions from records to plain values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from romancy import App, Instance, Status

MAX_ENTRIES = 1000
"""Most entries of a history that are counted, so that polling stays fast with long histories."""
_SOON, _LATER = timedelta(seconds=1), timedelta(seconds=30)
_EXTERNAL = frozenset({Status.PAUSED, Status.BLOCKED, Status.WAITING_FOR_EVENT, Status.WAITING_FOR_MESSAGE})
_EXTERNAL_INTERVAL = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Steps:
    """The progress of an instance."""

    done: int = 0
    last: str | None = None
    more: bool = False
    """The history has more entries than were counted."""

    def __str__(self) -> str:
        """Describe the progress, for people and models."""
        if not self.done:
            return "no steps completed yet"
        count = f"{'more than ' if self.more else ''}{self.done} step{'s' if self.done > 1 else ''} completed"
        return count if self.more else f"{count}, the last one is {self.last}"


async def steps_of(app: App, instance_id: str) -> Steps:
    """Count the completed activities."""
    done, last, counted = 0, None, 0
    async for entry in app.history(instance_id):
        if counted == MAX_ENTRIES:
            return Steps(done, last, more=True)
        counted += 1
        if entry.kind == "activity" and entry.outcome == "ok":
            done, last = done + 1, entry.name
    return Steps(done, last)


def poll_interval(instance: Instance) -> timedelta | None:
    """Return the time until the next poll; None if the instance has ended."""
    if instance.status.ended:
        return None
    if instance.status in _EXTERNAL:
        return _EXTERNAL_INTERVAL
    due = [one.due for one in instance.waiting_for if one.due is not None]
    if instance.status is Status.WAITING_FOR_TIMER and due:
        return _between(min(due) - instance.updated_at)
    return _between((instance.updated_at - instance.created_at) / 10)  # longer intervals for instances that take longer


def _between(interval: timedelta) -> timedelta:
    return min(max(interval, _SOON), _LATER)


def milliseconds(interval: timedelta | None) -> int | None:
    """Convert to milliseconds, the unit of the protocol."""
    return None if interval is None else round(interval / timedelta(milliseconds=1))


def message_of(instance: Instance, steps: Steps) -> str:
    """Describe the status of an instance in one sentence."""
    if instance.error is not None:
        return f"{instance.status.value}: {instance.error}"
    if instance.status.ended:
        return instance.status.value
    waits = ", ".join(_wait(one.kind, one.key, one.due) for one in instance.waiting_for)
    return f"{instance.status.value}{f' ({waits})' if waits else ''}; {steps}"


def _wait(kind: str, key: str, due: datetime | None) -> str:
    named = f"{kind} {key}" if key else kind
    return f"{named} until {due.isoformat(timespec='seconds')}" if due is not None else named


def status_of(instance: Instance, steps: Steps, tool: str) -> dict[str, Any]:
    """Return the result of `workflow_status`."""
    return {
        "instance_id": instance.instance_id,
        "tool": tool,
        "status": instance.status.value,
        "ended": instance.status.ended,
        "message": message_of(instance, steps),
        "steps_done": steps.done,
        "last_step": steps.last,
        "waiting_for": [
            {"kind": one.kind, "key": one.key, "due": None if one.due is None else one.due.isoformat()}
            for one in instance.waiting_for
        ],
        "created_at": instance.created_at.isoformat(),
        "updated_at": instance.updated_at.isoformat(),
        "poll_interval_ms": milliseconds(poll_interval(instance)),
    }

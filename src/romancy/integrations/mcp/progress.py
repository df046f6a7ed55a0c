"""Where an instance stands, for those who ask again and again: functions from records to plain values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from romancy import App, Instance, Status

MAX_ENTRIES = 1000
"""So many entries of a history are counted: asking must not become slow because the history is long."""
_SOON, _LATER = timedelta(seconds=1), timedelta(seconds=30)
_FOR_PEOPLE = frozenset({Status.PAUSED, Status.BLOCKED, Status.WAITING_FOR_EVENT, Status.WAITING_FOR_MESSAGE})
_A_WHILE = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Steps:
    """How far an instance has come."""

    done: int = 0
    last: str | None = None
    more: bool = False
    """The history is longer than what was looked at."""

    def __str__(self) -> str:
        """For people and models."""
        if not self.done:
            return "no step is done yet"
        count = f"{'more than ' if self.more else ''}{self.done} step{'s are' if self.done > 1 else ' is'} done"
        return count if self.more else f"{count}, the last one {self.last}"


async def steps_of(app: App, instance_id: str) -> Steps:
    """Count the activities that have completed."""
    done, last, looked_at = 0, None, 0
    async for entry in app.history(instance_id):
        if looked_at == MAX_ENTRIES:
            return Steps(done, last, more=True)
        looked_at += 1
        if entry.kind == "activity" and entry.outcome == "ok":
            done, last = done + 1, entry.name
    return Steps(done, last)


def poll_interval(instance: Instance) -> timedelta | None:
    """After what time to ask again; None when there is nothing to wait for."""
    if instance.status.ended:
        return None
    if instance.status in _FOR_PEOPLE:
        return _A_WHILE
    due = [one.due for one in instance.waiting_for if one.due is not None]
    if instance.status is Status.WAITING_FOR_TIMER and due:
        return _between(min(due) - instance.updated_at)
    return _between((instance.updated_at - instance.created_at) / 10)  # what has taken long will take long


def _between(interval: timedelta) -> timedelta:
    return min(max(interval, _SOON), _LATER)


def milliseconds(interval: timedelta | None) -> int | None:
    """As the protocol counts."""
    return None if interval is None else round(interval / timedelta(milliseconds=1))


def message_of(instance: Instance, steps: Steps) -> str:
    """One sentence."""
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
    """What `workflow_status` answers."""
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

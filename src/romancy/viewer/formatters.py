"""Text for numbers, times, statuses and actions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from romancy.admin.records import ActionKind
from romancy.clock import MICROS
from romancy.model.status import Status

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def duration(seconds: float) -> str:
    """Format a duration with two units at most: `850 ms`, `12 s`, `3 min 5 s`, `21 h`, `4 d 2 h`."""
    if seconds < 0:
        return f"−{duration(-seconds)}"
    if seconds < 0.0995:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    return _two_units(round(seconds))


def _two_units(seconds: int) -> str:
    for (size, name), (lower, lower_name) in zip(_UNITS, (*_UNITS[1:], (1, "s")), strict=True):
        if seconds >= size:
            whole, rest = divmod(seconds, size)
            return f"{whole:,} {name}" + (f" {rest // lower} {lower_name}" if rest >= lower and whole < 100 else "")
    return f"{seconds} s"


def micros(length: int) -> str:
    """Format a duration in microseconds."""
    return duration(length / MICROS)


def rough(length: int) -> str:
    """Format a duration in microseconds, rounded to one unit."""
    seconds = length / MICROS
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.001 else f"{length} µs"
    for size, name in _UNITS:
        if seconds >= size:
            return (
                f"{seconds / size:.1f} {name}".replace(".0 ", " ")
                if seconds < 10 * size
                else f"{seconds / size:,.0f} {name}"
            )
    return duration(seconds)


def between(start: datetime, end: datetime) -> str:
    """Format the duration from one time to another."""
    return duration((end - start).total_seconds())


def exact(when: datetime) -> str:
    """Format a time in UTC, to the millisecond."""
    return when.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{when.microsecond // 1000:03d} UTC"


def size(count: int) -> str:
    """Format a number of bytes: `12 B`, `64 KB`, `1.2 MB`."""
    if count < 1000:
        return f"{count} B"
    if count < 1000 * 1000:
        return f"{count / 1000:.0f} KB"
    return f"{count / 1000_000:.1f} MB"


class StatusLabel(NamedTuple):
    """The word, icon and tone of a status: a status is never shown by colour alone."""

    word: str
    icon: str
    tone: str


STATUS_LABELS: dict[Status, StatusLabel] = {
    Status.PENDING: StatusLabel("pending", "dot", "idle"),
    Status.RUNNING: StatusLabel("running", "play", "work"),
    Status.WAITING_FOR_EVENT: StatusLabel("waiting for event", "envelope", "waiting"),
    Status.WAITING_FOR_MESSAGE: StatusLabel("waiting for message", "envelope", "waiting"),
    Status.WAITING_FOR_TIMER: StatusLabel("waiting for timer", "clock", "waiting"),
    Status.COMPENSATING: StatusLabel("compensating", "revert", "rollback"),
    Status.PAUSED: StatusLabel("paused", "pause", "retry"),
    Status.BLOCKED: StatusLabel("blocked", "stop", "failed"),
    Status.COMPLETED: StatusLabel("completed", "check", "ok"),
    Status.FAILED: StatusLabel("failed", "cross", "failed"),
    Status.CANCELLED: StatusLabel("cancelled", "minus", "idle"),
    Status.TERMINATED: StatusLabel("terminated", "square", "idle"),
    Status.RECURRED: StatusLabel("recurred", "again", "idle"),
}


class ActionLabel(NamedTuple):
    """The texts and the icon of an action."""

    verb: str
    past: str
    icon: str
    meaning: str
    danger: bool = False


ACTION_LABELS: dict[ActionKind, ActionLabel] = {
    ActionKind.CANCEL: ActionLabel(
        "Cancel",
        "cancelled",
        "minus",
        "Execution stops. Completed activities are compensated, the most recent one first.",
        True,
    ),
    ActionKind.RETRY: ActionLabel(
        "Retry",
        "retried",
        "again",
        "Execution continues from the activity that failed. Completed activities do not run again.",
    ),
    ActionKind.PAUSE: ActionLabel(
        "Pause", "paused", "pause", "Execution stops until you resume it. Events that arrive in the meantime are kept."
    ),
    ActionKind.RESUME: ActionLabel("Resume", "resumed", "play", "Execution continues where it stopped."),
    ActionKind.TERMINATE: ActionLabel(
        "Terminate", "terminated", "square", "Execution ends at once. Nothing is compensated.", True
    ),
}

ATTENTION_LABELS = {
    "failed": ("Failed", "cross", "failed"),
    "retrying": ("Retrying", "again", "retry"),
    "overdue": ("Overdue", "clock", "failed"),
    "compensating": ("Compensating", "revert", "rollback"),
    "dead_letters": ("Dead letters", "envelope", "failed"),
    "unclaimable": ("Blocked", "stop", "failed"),
    "silent_workers": ("Silent workers", "stop", "failed"),
    "blocked": ("Blocked", "stop", "failed"),
    "paused": ("Paused", "pause", "retry"),
}
"""The title, icon and tone of each kind of attention item."""
SINGULAR_LABELS = {"dead_letters": "Dead letter", "silent_workers": "Silent worker"}
"""The titles that differ if there is one item."""

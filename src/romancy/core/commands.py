"""What goes into a run and what comes out of it. (Named tuples where one is made at every step: they are cheaper.)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from romancy.model.history import Entry, Kind, Outcome

UNTIL = object()
"""The detail of a timer that waits until a time of day, not for a duration."""


class Resolution(NamedTuple):
    """One thing that happened, fed to the run: an operation's outcome, the start, a cancellation, a timeout."""

    kind: Kind
    op: str
    at: int
    outcome: Outcome = Outcome.OK
    value: bytes | None = None

    @classmethod
    def of(cls, entry: Entry) -> Resolution:
        """The resolution an entry of the history stands for."""
        return cls(entry.kind, entry.op, entry.at, entry.outcome, entry.value)


class Issue(NamedTuple):
    """The code asked for an operation that the shell must carry out or wait for."""

    op: str
    kind: Kind
    name: str
    at: int
    digest: bytes = b""
    input: bytes | None = None
    due: int | None = None
    detail: Any = None
    """What the shell needs to carry it out: an activity, an effect, a question. The core does not look inside."""
    compensation: Any = None
    """What undoes it, if anything does; the core does not look inside."""
    site: str = ""
    values: Any = None
    """What is said, as the code gave it: its types tell what the recorded means. The core does not look inside."""


@dataclass(frozen=True, slots=True)
class EffectCommand:
    """The code asked for something that is done by being committed."""

    issue: Issue
    recorded: bool
    """The history has it already: this is a replay."""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """The code no longer wants an operation."""

    op: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The body returned."""

    value: Any


@dataclass(frozen=True, slots=True)
class Fail:
    """The body raised, timed out, can never go on or never stops."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The body was cancelled from outside."""

    reason: str | None


@dataclass(frozen=True, slots=True)
class Recur:
    """The body asked to begin anew, as the next generation, with this input."""

    input: bytes


BodyOutcome: TypeAlias = Finish | Fail | Cancelled | Recur
Command: TypeAlias = Issue | EffectCommand | Withdraw

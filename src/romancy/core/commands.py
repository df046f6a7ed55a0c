"""The input and output of a run: resolutions, commands and outcomes.

Types that are made at every step are named tuples, which are cheaper to make than dataclasses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from romancy.model.history import Entry, Kind, Outcome

UNTIL = object()
"""The detail of a timer that waits until a time of day, not for a duration."""


class Resolution(NamedTuple):
    """One input of the run: an operation's outcome, the start, a cancellation, a timeout."""

    kind: Kind
    op: str
    at: int
    outcome: Outcome = Outcome.OK
    value: bytes | None = None

    @classmethod
    def of(cls, entry: Entry) -> Resolution:
        """Return the resolution that an entry of the history records."""
        return cls(entry.kind, entry.op, entry.at, entry.outcome, entry.value)


class Issue(NamedTuple):
    """The code issued an operation that the worker must carry out or wait for."""

    op: str
    kind: Kind
    name: str
    at: int
    digest: bytes = b""
    input: bytes | None = None
    due: int | None = None
    detail: Any = None
    """The activity, the effect or the store call that the worker carries out. Opaque to the core."""
    compensation: Any = None
    """The compensation of the operation, if it has one. Opaque to the core."""
    site: str = ""
    values: Any = None
    """The arguments before encoding, whose types tell how to compare them with recorded ones. Opaque to the core."""


@dataclass(frozen=True, slots=True)
class EffectCommand:
    """The code issued an effect: an operation that is carried out by the commit that records it."""

    issue: Issue
    recorded: bool
    """The history has it already: this is a replay."""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """The code has cancelled an operation, or has ended without it."""

    op: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The body returned."""

    value: Any


@dataclass(frozen=True, slots=True)
class Fail:
    """The body raised, timed out, is stuck or never stops."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The body was cancelled from outside."""

    reason: str | None


@dataclass(frozen=True, slots=True)
class Recur:
    """The body ended to start again as the next generation, with this input."""

    input: bytes


BodyOutcome: TypeAlias = Finish | Fail | Cancelled | Recur
Command: TypeAlias = Issue | EffectCommand | Withdraw

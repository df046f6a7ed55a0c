"""What is written: each record is one thing that commits whole or not at all.

A `Transition` is what a run did since its last commit. It names the epoch it was made under; the store writes it only if
the instance still has that epoch. `new_epoch` is higher when the transition is a claim as well (a warm run that goes on).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from romancy.model.history import Attempt, Entry
from romancy.model.status import Status


class WaitKind(StrEnum):
    """What an instance can wait for."""

    EVENT = "event"
    MESSAGE = "message"
    TIMER = "timer"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class Wait:
    """One thing an instance waits for."""

    op: str
    kind: WaitKind
    since: int
    due: int | None = None
    key: str = ""
    subject: str | None = None
    match: bytes | None = None
    site: str = ""


@dataclass(frozen=True, slots=True)
class Ending:
    """How an instance ended."""

    output: bytes | None = None
    error: bytes | None = None
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """A line of the journal: a change of ownership, a cold replay, an operator's deed."""

    kind: str
    detail: str = ""


class Transition(NamedTuple):
    """What one run did since its last commit. (A named tuple for speed, as `Entry` is.)"""

    instance_id: str
    generation: int
    worker: str
    epoch: int
    new_epoch: int
    status: Status
    now: int
    hold: bool
    """Keep the ownership; otherwise the instance is released unless something arrived that the run has not seen."""
    seen: int
    """The instance's signal counter as the run knows it."""
    wake_at: int | None = None
    history: tuple[Entry, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    closed: tuple[str, ...] = ()
    """Operations whose open attempts are over."""
    waits: tuple[Wait, ...] = ()
    withdrawn: tuple[str, ...] = ()
    consumed: tuple[int, ...] = ()
    """Inbox rows that this transition used."""
    ending: Ending | None = None
    notes: tuple[Note, ...] = ()
    retrying_since: int | None = None
    blocked_by: str | None = None
    """The fingerprints of the code that does not fit, separated by commas."""
    length: int | None = None
    """How long the history must be before this: a transition that was committed already is refused, not written twice."""


class Create(NamedTuple):
    """A new instance; owned by `owner` from the start when it can run here."""

    instance_id: str
    workflow: str
    version: str
    input: bytes
    digest: bytes
    now: int
    owner: str | None = None
    deadline_at: int | None = None
    code: str = ""
    python: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody outside asks of an instance: cancel, pause, resume, terminate or retry."""

    instance_id: str
    kind: RequestKind
    now: int
    reason: str | None = None
    by: str = ""


class RequestKind(StrEnum):
    """What can be asked of an instance from outside."""

    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    TERMINATE = "terminate"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class Beat:
    """Details an activity's heartbeat left, so that the next attempt can go on from there."""

    instance_id: str
    generation: int
    epoch: int
    attempt: Attempt


Write: TypeAlias = Transition | Create | Request | Beat


class Applied(NamedTuple):
    """The write is durable. `signal` is the instance's counter now; `held` whether the writer owns it still."""

    signal: int = 0
    held: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The write was made under an old epoch, or its instance is in no state for it: nothing changed."""

    status: Status | None = None
    """What the instance is now; None: there is no such instance."""


@dataclass(frozen=True, slots=True)
class Existing:
    """The instance id was taken already."""

    workflow: str
    version: str
    digest: bytes
    status: Status


Answer: TypeAlias = Applied | Refused | Existing

"""What a run remembers: one entry for everything that ever resolved."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """What an entry of the history, or an operation of a run, is about."""

    START = "start"
    ACTIVITY = "activity"
    TIMER = "timer"
    CANCEL = "cancel"
    TIMEOUT = "timeout"
    RETRY = "retry"
    REGISTRATION = "registration"
    COMPENSATION = "compensation"
    EVENT = "event"
    MESSAGE = "message"
    SEND_EVENT = "send_event"
    PUBLISH = "publish"
    SEND_TO = "send_to"
    SEND_TO_GROUP = "send_to_group"
    SUBSCRIBE = "subscribe"
    UNSUBSCRIBE = "unsubscribe"
    JOIN_GROUP = "join_group"
    LEAVE_GROUP = "leave_group"
    MEMBERS = "members"


WAITS = frozenset({Kind.EVENT, Kind.MESSAGE})
"""What is asked of the store until it has an answer."""
STORE_CALLS = WAITS | {Kind.SEND_TO, Kind.SUBSCRIBE, Kind.LEAVE_GROUP, Kind.MEMBERS}
"""What the store decides and records in one commit."""
EFFECTS = frozenset(
    {Kind.REGISTRATION, Kind.SEND_EVENT, Kind.PUBLISH, Kind.SEND_TO_GROUP, Kind.UNSUBSCRIBE, Kind.JOIN_GROUP}
)
"""What is done by being committed."""

TIMEOUT_TIMER = "timeout"
"""The name of a timer that goes off in order to stop something (`asyncio.timeout`)."""


class Outcome(StrEnum):
    """How an operation ended."""

    OK = "ok"
    ERROR = "error"
    CANCELLED = "cancelled"


class Role(IntEnum):
    """What replay does with an entry."""

    FED = 0
    """It is a resolution: fed to the run in order of `seq`."""
    OUT_OF_BAND = 1
    """It tells what happened beside the run (an effect, a compensation, an attempt that ended after its withdrawal)."""
    RETAINED = 2
    """Before a retry of the whole instance: its result answers the operation of the same id when it is asked again."""
    DISCARDED = 3
    """Before a retry of the whole instance: shown to people, ignored by replay."""


class Entry(NamedTuple):
    """One row of an instance's history, in the order of its columns.

    A named tuple, not a dataclass: one is built and written for every step, and this is three times faster at both.
    """

    seq: int
    kind: Kind
    op: str
    outcome: Outcome
    at: int
    name: str = ""
    role: Role = Role.FED
    digest: bytes = b""
    input: bytes | None = None
    value: bytes | None = None
    attempt: int = 0
    site: str = ""
    scheduled_at: int | None = None
    started_at: int | None = None
    ended_at: int | None = None
    worker: str = ""
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One attempt of an activity that failed (and will be followed by another), or is open for a notable time."""

    op: str
    attempt: int
    name: str
    open: bool
    worker: str
    epoch: int
    site: str
    scheduled_at: int
    started_at: int
    ended_at: int | None = None
    next_at: int | None = None
    error: bytes | None = None
    details: bytes | None = None
    heartbeat_at: int | None = None

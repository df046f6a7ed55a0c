"""The history of an instance: an entry for each resolution, effect and compensation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """The kinds of operations of a run, and of entries of the history."""

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
"""Store calls that the run repeats until an event or a message has arrived, or they time out."""
STORE_CALLS = WAITS | {Kind.SEND_TO, Kind.SUBSCRIBE, Kind.LEAVE_GROUP, Kind.MEMBERS}
"""Operations that the store resolves and records in one commit."""
EFFECTS = frozenset(
    {Kind.REGISTRATION, Kind.SEND_EVENT, Kind.PUBLISH, Kind.SEND_TO_GROUP, Kind.UNSUBSCRIBE, Kind.JOIN_GROUP}
)
"""Operations that are carried out by the commit that records them."""

TIMEOUT_TIMER = "timeout"
"""The name of a timer that limits something (`asyncio.timeout`)."""


class Outcome(StrEnum):
    """How an operation ended."""

    OK = "ok"
    ERROR = "error"
    CANCELLED = "cancelled"


class Role(IntEnum):
    """The role of an entry in a replay."""

    FED = 0
    """A resolution: it is fed to the run, in the order of `seq`."""
    OUT_OF_BAND = 1
    """Not fed to the run: an effect, a compensation, an attempt that ended after its withdrawal."""
    RETAINED = 2
    """From before a retry of the instance: its result resolves the operation of the same id when that is issued again."""
    DISCARDED = 3
    """From before a retry of the instance: shown to users, ignored by replays."""


class Entry(NamedTuple):
    """One row of an instance's history; the fields have the order of the columns.

    A named tuple, not a dataclass: one is made and written for every step, and both are three times faster.
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
    """One attempt of an activity that has failed (and will be followed by another), or has been open for a notable time."""

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

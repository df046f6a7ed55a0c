"""What is written: each record is one thing that commits whole or not at all.

A `Transition` is what a run did since its last commit. It names the epoch it was made under; the store writes it only if
the instance still has that epoch. `new_epoch` is higher when the transition is a claim as well (a warm run that goes on).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from romancy.model.history import AttemptRow, Entry
from romancy.model.messaging import (
    AcceptedEvent,
    Effect,
    Event,
    Publish,
    SendEvent,
    SendTo,
    SendToGroup,
    StoreCall,
    StoreReply,
)
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
class JournalNote:
    """A line of the journal: a change of ownership, a cold replay, an operator's effect."""

    kind: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Recurrence:
    """The next generation of an instance: its input, and whether what was is kept."""

    input: bytes
    archive: bool = True


class Transition(NamedTuple):
    """What one run did since its last commit. (A named tuple for speed, as `Entry` is.)"""

    instance_id: str
    generation: int
    worker: str
    epoch: int
    new_epoch: int
    status: Status
    now: int
    keep_owned: bool
    """Keep the ownership; otherwise the instance is released unless something arrived that the run has not seen."""
    inbox_seen: int
    """The instance's signal counter as the run knows it."""
    wake_at: int | None = None
    retrying_since: int | None = None
    length: int | None = None
    """How long the history must be before this: a transition that was committed already is refused, not written twice."""
    has_messaging_state: bool = False
    """At its end there may be subscriptions, memberships or consumed events to clear."""
    history: tuple[Entry, ...] = ()
    ending: Ending | None = None
    # What most transitions do not have stands behind what they do: one comparison tells (`NO_EXTRAS`).
    attempts: tuple[AttemptRow, ...] = ()
    closed: tuple[str, ...] = ()
    """Operations whose open attempts are over."""
    waits: tuple[Wait, ...] = ()
    withdrawn: tuple[str, ...] = ()
    consumed_items: tuple[int, ...] = ()
    """Inbox rows that this transition used."""
    notes: tuple[JournalNote, ...] = ()
    effects: tuple[Effect, ...] = ()
    """What the run and its activities have said, in order; done before anything is asked."""
    store_calls: tuple[StoreCall, ...] = ()
    """What the store is to decide and to record, in order."""
    blocked_by: str | None = None
    """The fingerprints of the code that does not fit, separated by commas."""
    recur: Recurrence | None = None


FIRST_EXTRA = Transition._fields.index("attempts")
NO_EXTRAS = tuple(Transition._field_defaults[name] for name in Transition._fields[FIRST_EXTRA:])


class CreateInstance(NamedTuple):
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
    ending: Ending | None = None
    """It failed before it began: its arguments do not fit."""
    event: Event | None = None
    """The event that starts it, for whoever runs it at once; it is not stored."""


@dataclass(frozen=True, slots=True)
class AcceptEvents:
    """Events from outside: all of them or none. Each may start instances of workflows that handle it."""

    events: tuple[Event, ...]
    now: int
    starts: tuple[tuple[CreateInstance, ...], ...] = ()
    """For each event the instances it starts, unless it is a duplicate."""
    fresh_ids: tuple[str, ...] = ()
    """For each event an id for the instance of a workflow that handles it and that only others know."""
    local: bool = True
    """False: they are for the brokers only."""
    brokers: tuple[str, ...] = ()
    """The names of the brokers that get them. None for what came from outside: it would go round in circles."""


@dataclass(frozen=True, slots=True)
class PostMessage:
    """A message from outside."""

    effect: Publish | SendTo | SendToGroup
    now: int


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """What somebody outside asks of an instance: cancel, pause, resume, terminate or retry."""

    instance_id: str
    kind: ControlKind
    now: int
    reason: str | None = None
    by: str = ""
    audited: bool = False
    """Its line in the audit is written in the same commit."""


class ControlKind(StrEnum):
    """What can be asked of an instance from outside."""

    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    TERMINATE = "terminate"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class AttemptUpdate:
    """Details an activity's heartbeat left, so that the next attempt can go on from there."""

    instance_id: str
    generation: int
    epoch: int
    attempt: AttemptRow


@dataclass(frozen=True, slots=True)
class TransactionalResult:
    """What an activity leaves with its own transaction: its result, and what it has said.

    The result lies in the instance's inbox until the run's next transition puts it in its place in the history.
    """

    instance_id: str
    generation: int
    epoch: int
    worker: str
    op: str
    body: bytes
    now: int
    effects: tuple[Effect, ...] = ()


RESULT_ITEM = "result"
"""The kind of the mail in which a deposit lies."""


InstanceWrite: TypeAlias = Transition | CreateInstance | ControlRequest | AttemptUpdate
"""What is written about one instance."""
Write: TypeAlias = InstanceWrite | AcceptEvents | PostMessage


def size_of(write: Write) -> int:
    """About how many bytes of payloads a write holds. (Called for each: what most steps lack is not looked for.)"""
    if type(write) is Transition:
        size = 0
        for entry in write.history:
            size += len(entry.value or b"") + len(entry.input or b"")
        ending = write.ending
        if ending is not None:
            size += len(ending.output or b"") + len(ending.error or b"")
        if write[FIRST_EXTRA:] != NO_EXTRAS:
            size += sum(_length(one.error, one.details) for one in write.attempts)
            size += sum(map(_effect_size, write.effects))
            size += len(write.recur.input) if write.recur is not None else 0
        return size
    if type(write) is CreateInstance:
        return len(write.input)
    match write:
        case AcceptEvents():
            starts = sum(len(create.input) for creates in write.starts for create in creates)
            return starts + sum(_length(event.data) for event in write.events)
        case PostMessage():
            return len(write.effect.message.data)
        case AttemptUpdate():
            return _length(write.attempt.error, write.attempt.details)
        case _:
            return 0


def _effect_size(effect: Effect) -> int:
    match effect:
        case SendEvent():
            return _length(effect.event.data) + sum(len(create.input) for create in effect.starts)
        case Publish() | SendTo() | SendToGroup():
            return len(effect.message.data)
        case _:
            return 0


def _length(*payloads: bytes | None) -> int:
    return sum([len(one) for one in payloads if one is not None])


class Applied(NamedTuple):
    """The write is durable. `signal` is the instance's counter now; `held` whether the writer owns it still."""

    inbox_version: int = 0
    owned: bool = False
    replies: tuple[StoreReply, ...] = ()
    """What the store decided of what was asked."""
    woken: tuple[str, ...] = ()
    """Instances for which something arrived by this write."""
    started: tuple[str, ...] = ()
    """Instances that this write started."""
    caught_up: bool = False
    """What was asked has answered for everything that has arrived: there is nothing else to look at."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The events are durable, and those who waited for them are called."""

    events: tuple[AcceptedEvent, ...]
    woken: tuple[str, ...] = ()
    started: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResultStored:
    """A deposit lies there, once its transaction is committed."""

    item_id: int
    woken: tuple[str, ...] = ()
    started: tuple[str, ...] = ()


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
    input: bytes | None = None
    """What it was started with, if only that can tell whether it is the same: its digest is another, or none."""


WriteResult: TypeAlias = Applied | Accepted | Refused | Existing

"""The writes of the engine and of clients, and their results. Each write is committed completely or not at all.

A `Transition` is everything that a run did since its last commit. It names the epoch under which it was made, and the store
writes it only if the instance still has that epoch. `new_epoch` is higher if the transition is a claim as well (a parked run
that continues).
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
    """The kinds of waits of an instance."""

    EVENT = "event"
    MESSAGE = "message"
    TIMER = "timer"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class Wait:
    """One wait of an instance: an operation that is pending, and until when."""

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
    """The end of an instance: its output, or its error."""

    output: bytes | None = None
    error: bytes | None = None
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class JournalNote:
    """An entry for the journal: a change of ownership, a cold replay, an operator's request."""

    kind: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Recurrence:
    """The next generation of an instance: its input, and whether the generation before it is archived."""

    input: bytes
    archive: bool = True


class Transition(NamedTuple):
    """Everything that one run did since its last commit. (A named tuple for speed, like `Entry`.)"""

    instance_id: str
    generation: int
    worker: str
    epoch: int
    new_epoch: int
    status: Status
    now: int
    keep_owned: bool
    """Keep the instance owned; otherwise it is released, unless something arrived that the run has not seen."""
    inbox_seen: int
    """The newest inbox version that the run has seen."""
    wake_at: int | None = None
    retrying_since: int | None = None
    length: int | None = None
    """The length of the history before this write: a transition that was committed already is refused, not written twice."""
    has_messaging_state: bool = False
    """The instance may have subscriptions, memberships or consumed events, which are deleted at its end."""
    history: tuple[Entry, ...] = ()
    ending: Ending | None = None
    # Fields that most transitions leave empty come last, so that one comparison (with `NO_EXTRAS`) covers them all.
    attempts: tuple[AttemptRow, ...] = ()
    closed: tuple[str, ...] = ()
    """Operations whose open attempts have ended."""
    waits: tuple[Wait, ...] = ()
    withdrawn: tuple[str, ...] = ()
    consumed_items: tuple[int, ...] = ()
    """The ids of the inbox items that this transition consumes."""
    notes: tuple[JournalNote, ...] = ()
    effects: tuple[Effect, ...] = ()
    """The effects of the run and its activities, in order. They are carried out before the store calls are resolved."""
    store_calls: tuple[StoreCall, ...] = ()
    """The store calls of the run, in order."""
    blocked_by: str | None = None
    """The fingerprints of the code that does not fit the history, separated by commas."""
    recur: Recurrence | None = None


FIRST_EXTRA = Transition._fields.index("attempts")
NO_EXTRAS = tuple(Transition._field_defaults[name] for name in Transition._fields[FIRST_EXTRA:])


class CreateInstance(NamedTuple):
    """A new instance. If this process can run it, its worker owns it from the start (`owner`)."""

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
    """Set if the instance has failed before it began, because its arguments do not fit."""
    event: Event | None = None
    """The event that starts it, for the worker that runs it at once; it is not stored."""


@dataclass(frozen=True, slots=True)
class AcceptEvents:
    """Accept events from outside, all of them or none. Each may start instances of workflows that handle it."""

    events: tuple[Event, ...]
    now: int
    starts: tuple[tuple[CreateInstance, ...], ...] = ()
    """For each event, the instances that it starts, unless it is a duplicate."""
    fresh_ids: tuple[str, ...] = ()
    """For each event, the id of the instance to start if only other processes have the workflow that handles it."""
    local: bool = True
    """False: the events are only for brokers."""
    brokers: tuple[str, ...] = ()
    """The names of the brokers that receive the events. Empty for events received over HTTP, which could go in circles."""


@dataclass(frozen=True, slots=True)
class PostMessage:
    """Send a message from outside."""

    effect: Publish | SendTo | SendToGroup
    now: int


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """A request to an instance from outside: cancel, pause, resume, terminate or retry."""

    instance_id: str
    kind: ControlKind
    now: int
    reason: str | None = None
    by: str = ""
    audited: bool = False
    """Record the request in the audit, in the same commit."""


class ControlKind(StrEnum):
    """The kinds of requests to an instance from outside."""

    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    TERMINATE = "terminate"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class AttemptUpdate:
    """The heartbeat details of an attempt, from which the next attempt can continue."""

    instance_id: str
    generation: int
    epoch: int
    attempt: AttemptRow


@dataclass(frozen=True, slots=True)
class TransactionalResult:
    """The result of an activity that commits in the activity's own transaction, with the effects of the activity.

    The result is in the instance's inbox until the run's next transition records it in the history.
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
"""The kind of the inbox item that holds a transactional result."""


InstanceWrite: TypeAlias = Transition | CreateInstance | ControlRequest | AttemptUpdate
"""The writes that are about one instance."""
Write: TypeAlias = InstanceWrite | AcceptEvents | PostMessage


def size_of(write: Write) -> int:
    """Return about how many bytes of payloads a write has. (Called for each write, so empty fields must cost nothing.)"""
    if type(write) is Transition:
        size = 0
        for entry in write.history:
            size += len(entry.value or b"") + len(entry.input or b"")
        ending = write.ending
        if ending is not None:
            size += len(ending.output or b"") + len(ending.error or b"")
        if write[FIRST_EXTRA:] != NO_EXTRAS:
            size += sum(_length(attempt.error, attempt.details) for attempt in write.attempts)
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
    return sum([len(payload) for payload in payloads if payload is not None])


class Applied(NamedTuple):
    """The write is durable. `inbox_version` is that of the instance now; `owned` says whether the writer still owns it."""

    inbox_version: int = 0
    owned: bool = False
    replies: tuple[StoreReply, ...] = ()
    """The replies to the store calls that were resolved."""
    woken: tuple[str, ...] = ()
    """Instances that this write has woken."""
    started: tuple[str, ...] = ()
    """Instances that this write has started."""
    caught_up: bool = False
    """The store calls have considered everything that has arrived: the inbox need not be read."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The events are durable, and the instances that waited for them are woken."""

    events: tuple[AcceptedEvent, ...]
    woken: tuple[str, ...] = ()
    started: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResultStored:
    """A transactional result is stored; it is durable once its transaction is committed."""

    item_id: int
    woken: tuple[str, ...] = ()
    started: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was written: the write was made under an old epoch, or the status of the instance does not allow it."""

    status: Status | None = None
    """The status of the instance; None if it does not exist."""


@dataclass(frozen=True, slots=True)
class Existing:
    """An instance with this id exists already."""

    workflow: str
    version: str
    digest: bytes
    status: Status
    input: bytes | None = None
    """Its input, if it must be compared to decide whether the arguments are the same: the digest differs, or is missing."""


WriteResult: TypeAlias = Applied | Accepted | Refused | Existing

"""Hooks: user objects whose methods are called when something has happened and is durable.

    class Log(Hooks):
        async def on_activity_complete(self, info: ActivityCompleted) -> None:
            print(info.activity_id, "took", info.at - info.started_at)

    App(hooks=Log())

After the commit of a step, the engine queues a call for everything that happened in it, in a queue per `Hooks` object. A
task outside the engine makes the queued calls one after another. So hooks are not called for what was rolled back, a replay
does not call them again, and a slow hook delays only its own queue. Two methods are called by the engine directly, for their
return value: `around_activity` and `event_extensions`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from romancy.model.instance import Error
from romancy.model.messaging import ReceivedEvent
from romancy.object_reference import find_named


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """The fields that all infos have."""

    instance_id: str
    workflow_name: str
    generation: int
    worker_id: str
    at: datetime
    """When it happened."""


# --- workflows


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowStarted(Info):
    """An instance begins to run for the first time."""

    created_at: datetime
    event: ReceivedEvent[Any] | None = None
    """The event that started it; None if no event did, or if this process does not know the event."""
    raw_input: bytes = field(default=b"null", repr=False)

    @property
    def input(self) -> Any:
        """Its arguments, as plain JSON."""
        return _plain(self.raw_input)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowCompleted(Info):
    """An instance has returned."""

    created_at: datetime
    raw_result: bytes | None = field(default=None, repr=False)

    @property
    def result(self) -> Any:
        """What it returned, as plain JSON."""
        return _plain(self.raw_result)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowFailed(Info):
    """An instance has failed; its compensations have run."""

    created_at: datetime
    error: Error


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowCancelled(Info):
    """An instance was cancelled; its compensations have run."""

    created_at: datetime
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowRecurred(Info):
    """A generation of an instance is over, and the next one begins. `generation` is the one that is over."""

    created_at: datetime


# --- activities


@dataclass(frozen=True, slots=True, kw_only=True)
class _Activity(Info):
    activity_id: str
    activity_name: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt(_Activity):
    compensates: str | None = None
    """The activity that it compensates, if it is a compensation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityStarted(_Attempt):
    """An attempt of an activity or a compensation begins."""

    scheduled_at: datetime
    """When the workflow called it."""
    raw_input: bytes | None = field(default=None, repr=False)

    @property
    def input(self) -> Any:
        """Its arguments, as plain JSON."""
        return _plain(self.raw_input)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityCompleted(_Attempt):
    """An activity or a compensation has its result."""

    scheduled_at: datetime
    started_at: datetime
    raw_result: bytes | None = field(default=None, repr=False)

    @property
    def result(self) -> Any:
        """What it returned, as plain JSON."""
        return _plain(self.raw_result)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityFailed(_Attempt):
    """An activity or a compensation has failed for good, or was cancelled."""

    scheduled_at: datetime
    started_at: datetime
    error: Error
    """The error that the workflow catches."""
    cancelled: bool = False
    """It was cancelled because the workflow had withdrawn it: it did not fail by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityRetried(_Attempt):
    """An attempt has failed, or was cut off with its worker, and another follows."""

    scheduled_at: datetime
    started_at: datetime
    error: Error
    next_at: datetime
    """When the next attempt is due."""
    lost: bool = False
    """It was cut off with its worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityCacheHit(_Activity):
    """A recorded activity was not run again: its result, or its error, came from the history."""

    raw_result: bytes | None = field(default=None, repr=False)
    error: Error | None = None
    """The error that it failed with; None if it succeeded."""

    @property
    def result(self) -> Any:
        """The recorded result, as plain JSON."""
        return _plain(self.raw_result)


# --- events and timers


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSent(Info):
    """A workflow or an activity has sent an event."""

    activity_id: str | None
    """The activity that sent it; None if the workflow itself did."""
    attempt: int | None
    event_id: str
    event_type: str
    source: str
    subject: str | None = None
    extensions: Mapping[str, str | int | bool] = field(default_factory=dict[str, str | int | bool])
    raw_data: bytes | None = field(default=None, repr=False)
    binary: bool = False
    """Its data is bytes, not JSON."""

    @property
    def data(self) -> Any:
        """Its data: plain JSON, or bytes."""
        return self.raw_data if self.binary else _plain(self.raw_data)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventReceived(Info):
    """An instance has consumed an event: one that it waited for, or the one that started it."""

    activity_id: str | None
    """The wait that it matched; None if it started the instance."""
    event: ReceivedEvent[Any] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wait(Info):
    activity_id: str
    event_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventWaitStarted(_Wait):
    """An instance waits for an event."""

    due: datetime | None
    """When the wait times out."""
    subject: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventWaitCompleted(_Wait):
    """An instance has received the event that it waited for."""

    since: datetime
    event: ReceivedEvent[Any] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTimedOut(_Wait):
    """A wait for an event has timed out."""

    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerStarted(Info):
    """An instance starts a sleep or a time limit."""

    activity_id: str
    due: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired(Info):
    """A timer has fired."""

    activity_id: str
    since: datetime


# --- replay


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayStarted(Info):
    """An instance that is not in memory is resumed: its history is about to be replayed."""

    entries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayCompleted(Info):
    """A history was replayed to its end, or does not fit the code."""

    entries: int
    seconds: float
    problem: str | None = None
    """Why the code does not fit, and the instance is blocked; None if it fits."""


class Hooks:
    """The base class of hooks: override the methods that you need, as `async def` or plain `def`.

    Each is called once for what happened, with one info object, after the commit, in the order in which things happened. An
    exception is logged and changes nothing.
    """

    async def on_workflow_start(self, info: WorkflowStarted) -> None:
        """An instance begins to run for the first time."""

    async def on_workflow_complete(self, info: WorkflowCompleted) -> None:
        """An instance has returned."""

    async def on_workflow_failed(self, info: WorkflowFailed) -> None:
        """An instance has failed; compensations have run."""

    async def on_workflow_cancelled(self, info: WorkflowCancelled) -> None:
        """An instance was cancelled; compensations have run."""

    async def on_workflow_recur(self, info: WorkflowRecurred) -> None:
        """A generation is over, and the next one begins."""

    async def on_activity_start(self, info: ActivityStarted) -> None:
        """An attempt of an activity or a compensation begins."""

    async def on_activity_complete(self, info: ActivityCompleted) -> None:
        """An activity or a compensation has its result."""

    async def on_activity_failed(self, info: ActivityFailed) -> None:
        """An activity or a compensation has failed for good, or was cancelled."""

    async def on_activity_retry(self, info: ActivityRetried) -> None:
        """An attempt has failed, and another follows."""

    async def on_activity_cache_hit(self, info: ActivityCacheHit) -> None:
        """A recorded result was used instead of running an activity."""

    async def on_event_sent(self, info: EventSent) -> None:
        """A workflow or an activity has sent an event."""

    async def on_event_received(self, info: EventReceived) -> None:
        """An instance has consumed an event."""

    async def on_event_wait_start(self, info: EventWaitStarted) -> None:
        """An instance waits for an event."""

    async def on_event_wait_complete(self, info: EventWaitCompleted) -> None:
        """The event that an instance waited for was received."""

    async def on_event_timeout(self, info: EventTimedOut) -> None:
        """A wait for an event has timed out."""

    async def on_timer_start(self, info: TimerStarted) -> None:
        """An instance starts a sleep or a time limit."""

    async def on_timer_fired(self, info: TimerFired) -> None:
        """A timer has fired."""

    async def on_replay_start(self, info: ReplayStarted) -> None:
        """A history is about to be replayed."""

    async def on_replay_complete(self, info: ReplayCompleted) -> None:
        """A history was replayed."""

    def around_activity(self, info: ActivityStarted) -> AbstractContextManager[object]:
        """Return a context manager to run an attempt in. It is entered and left in the activity's own context, not `async`.

        Use it for what must be in force while the function runs: a current span, a bound logger. It must be fast. Its own
        errors are logged. It cannot suppress an error of the activity.
        """
        return nullcontext()

    def event_extensions(self, info: EventSent) -> Mapping[str, str | int | bool]:
        """Return extensions to add to an event that a workflow or activity of this app sends. Not `async`, must be fast.

        Extensions that the sender has set itself take precedence.
        """
        return {}


HOOK_METHODS = tuple(name for name in vars(Hooks) if name.startswith("on_"))
"""The names of the methods that are called after commits."""
HooksOption: TypeAlias = Hooks | Sequence[Hooks]


def read_hooks(value: Any) -> tuple[Hooks, ...]:
    """Read the `hooks` option: objects, or a string of `module:name` separated by commas. Raises `ValueError`."""
    if isinstance(value, str):
        return tuple(one for text in value.split(",") for one in read_hooks(find_named(text, "hooks")))
    given: tuple[Any, ...] = tuple(value) if isinstance(value, list | tuple) else (value,)
    for one in given:
        if not isinstance(one, Hooks):
            raise ValueError("give objects of classes that inherit from Hooks")
    return given


def _plain(raw: bytes | None) -> Any:
    try:
        return None if raw is None else json.loads(raw)
    except ValueError:
        return repr(raw)

"""Hooks: be told what happens, once it is durable.

    class Log(Hooks):
        async def on_activity_complete(self, info: ActivityCompleted) -> None:
            print(info.activity_id, "took", info.at - info.started_at)

    App(hooks=Log())

A step commits, then what happened in it is put into a line for each `Hooks` object, and a task beside the engine calls the
methods one after another. So nothing is told that was rolled back, replay tells nothing again, and a slow hook holds up
nobody but itself. Two methods are asked instead of told, and answer at once: `around_activity` and `event_extensions`.
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
    """What all of them say."""

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
    """The event that started it, if one did and this process saw it."""
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
    """An instance has failed; what was to be compensated is."""

    created_at: datetime
    error: Error


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowCancelled(Info):
    """An instance has been cancelled; what was to be compensated is."""

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
    """The activity that it undoes, if it is a compensation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityStarted(_Attempt):
    """An attempt of an activity or a compensation begins."""

    scheduled_at: datetime
    """When the workflow asked for it."""
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
    """What the workflow catches."""
    cancelled: bool = False
    """Nobody wanted its result any more: it did not fail by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityRetried(_Attempt):
    """An attempt has failed, or was cut off with its worker, and another follows."""

    scheduled_at: datetime
    started_at: datetime
    error: Error
    next_at: datetime
    """When the next one is due."""
    lost: bool = False
    """It was cut off with its worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityCacheHit(_Activity):
    """A recorded activity was not run again: its result, or its error, came from the history."""

    raw_result: bytes | None = field(default=None, repr=False)
    error: Error | None = None
    """What it failed with, if it did."""

    @property
    def result(self) -> Any:
        """What was recorded, as plain JSON."""
        return _plain(self.raw_result)


# --- events and timers


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSent(Info):
    """A workflow or an activity has sent an event."""

    activity_id: str | None
    """The activity that sent it; None: the workflow itself."""
    attempt: int | None
    event_id: str
    event_type: str
    source: str
    subject: str | None = None
    extensions: Mapping[str, str | int | bool] = field(default_factory=dict[str, str | int | bool])
    raw_data: bytes | None = field(default=None, repr=False)
    binary: bool = False
    """Its data are bytes, not JSON."""

    @property
    def data(self) -> Any:
        """Its data: plain JSON, or bytes."""
        return self.raw_data if self.binary else _plain(self.raw_data)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventReceived(Info):
    """An instance has consumed an event: one that it waited for, or that started it."""

    activity_id: str | None
    """The wait that it met; None: it started the instance."""
    event: ReceivedEvent[Any] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wait(Info):
    activity_id: str
    event_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventWaitStarted(_Wait):
    """An instance waits for an event."""

    due: datetime | None
    """When it gives up."""
    subject: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventWaitCompleted(_Wait):
    """The event that an instance waited for is there."""

    since: datetime
    event: ReceivedEvent[Any] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTimedOut(_Wait):
    """The event that an instance waited for did not come in time."""

    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerStarted(Info):
    """An instance sleeps, or bounds something in time."""

    activity_id: str
    due: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired(Info):
    """The time of a timer has come."""

    activity_id: str
    since: datetime


# --- replay


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayStarted(Info):
    """An instance that is not in memory was taken up: its history is replayed."""

    entries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayCompleted(Info):
    """The instance stands where its history ends, or its code does not fit the history."""

    entries: int
    seconds: float
    problem: str | None = None
    """Why the code does not fit: the instance is blocked."""


class Hooks:
    """What you want to be told: inherit, and write the methods that you need, `async def` or plain `def`.

    Each is called with one info object, after the commit, in the order in which things happened, once. An exception is
    logged and changes nothing.
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
        """The event is there."""

    async def on_event_timeout(self, info: EventTimedOut) -> None:
        """The event did not come in time."""

    async def on_timer_start(self, info: TimerStarted) -> None:
        """An instance sleeps, or bounds something in time."""

    async def on_timer_fired(self, info: TimerFired) -> None:
        """The time of a timer has come."""

    async def on_replay_start(self, info: ReplayStarted) -> None:
        """A history is about to be replayed."""

    async def on_replay_complete(self, info: ReplayCompleted) -> None:
        """A history was replayed."""

    def around_activity(self, info: ActivityStarted) -> AbstractContextManager[object]:
        """What surrounds an attempt: entered and left in the activity's own context, at once. Not `async`, and quick.

        For what must be in force while the function runs: a current span, a bound logger. What it raises is logged; an error
        of the activity passes through, whatever it returns.
        """
        return nullcontext()

    def event_extensions(self, info: EventSent) -> Mapping[str, str | int | bool]:
        """What to add to an event that a workflow or activity of this app sends. Not `async`, and quick.

        The sender's own extensions of the same names stay.
        """
        return {}


HOOK_METHODS = tuple(name for name in vars(Hooks) if name.startswith("on_"))
"""The methods that are told."""
HooksOption: TypeAlias = Hooks | Sequence[Hooks]


def read_hooks(value: Any) -> tuple[Hooks, ...]:
    """What was given as `hooks`; as a text, where to find them: `module:name`, separated by commas. Raises `ValueError`."""
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

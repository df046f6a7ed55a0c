"""What hooks are told of a commit, and of what needs none.

Of one commit: attempts that are repeated, then results and timers in the order of the history, events sent, waits begun,
events received and waits given up, timers begun, the end. Waits and timers are recorded when they end, so a host keeps the
ids of those whose beginning was told; after a replay everything pending counts as told, by whoever had the instance before.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypedDict

from romancy import hooks as told
from romancy.authoring.events import checked_extensions
from romancy.clock import to_datetime
from romancy.core.commands import Issue
from romancy.hooks import TOLD, Hooks
from romancy.model.history import Attempt as AttemptRow
from romancy.model.history import Entry, Kind, Outcome
from romancy.model.instance import Loaded, Row
from romancy.model.status import Status
from romancy.model.talk import Ask, Event, ReceivedEvent, Reply, SendEvent
from romancy.model.transition import Applied, Create, Ending, Transition
from romancy.serde.failure import encode_failure
from romancy.serde.talk import event_json, event_of_input, received_event
from romancy.views import error_of
from romancy.worker.lanes import Lane

if TYPE_CHECKING:
    from romancy.worker.attempt import Attempt
    from romancy.worker.host import Host

_log = logging.getLogger("romancy.hooks")
_UNDOES = "compensate:"
_FEW = 64
"""So many ids a host keeps before it looks which of them are still needed."""


class Common(TypedDict):
    """What every info says."""

    instance_id: str
    workflow_name: str
    generation: int
    worker_id: str
    at: datetime


P = ParamSpec("P")


def _harmless(tell: Callable[P, None]) -> Callable[P, None]:
    """What cannot be told is logged: the engine goes on."""

    @functools.wraps(tell)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            tell(*args, **kwargs)
        except Exception:
            _log.exception("hooks could not be told of something; nothing else is affected")

    return guarded


class Unwritten(NamedTuple):
    """What is told with a transition and is not to be seen in it: timers that begin, events with their senders."""

    timers: Sequence[Issue] = ()
    sent: Sequence[told.EventSent] = ()


class Teller:
    """Tells the hooks of an app what happens on its worker."""

    def __init__(self, hooks: Sequence[Hooks]) -> None:
        self._lanes = [Lane(one) for one in hooks]
        self._told = {name: _overridden(hooks, self._lanes, name) for name in TOLD}
        self._around = [one for one in hooks if type(one).around_activity is not Hooks.around_activity]
        self._extending = [one for one in hooks if type(one).event_extensions is not Hooks.event_extensions]

    async def close(self, patience: float) -> None:
        """Let everything be told that happened, within a time."""
        await asyncio.gather(*(lane.close(patience) for lane in self._lanes))

    async def abandon(self) -> None:
        """Tell nothing more."""
        await asyncio.gather(*(lane.abandon() for lane in self._lanes))

    def _tell(self, name: str, make: Callable[..., Any], common: Common, /, **more: Any) -> None:
        """Put a call into the lines of those who want it; if nobody does, nothing is made."""
        if wanted := self._told[name]:
            info = make(**common, **more)
            for lane, hook in wanted:
                lane.push(hook, info)

    # --- instances come and go

    @_harmless
    def started(self, create: Create, worker_id: str) -> None:
        """An instance that was created here begins, or had failed before it could."""
        common = _common(create.instance_id, create.workflow, 1, worker_id, create.now)
        event = received_event(event_json(create.event)) if create.event is not None else None
        self._started(common, create.now, create.input, event)
        if create.ending is not None:
            self._ended(common, create.now, Status.FAILED, create.ending)

    @_harmless
    def claimed_first(self, loaded: Loaded, worker_id: str, now: int) -> None:
        """An instance that was created elsewhere begins here."""
        row = loaded.row
        event = event_of_input(loaded.input)
        received = received_event(event_json(event)) if event is not None else None
        common = _common(row.instance_id, row.workflow, row.generation, worker_id, now)
        self._started(common, row.created_at, loaded.input, received)

    def _started(self, common: Common, created_at: int, input: bytes, event: ReceivedEvent[Any] | None) -> None:
        created = to_datetime(created_at)
        self._tell("on_workflow_start", told.WorkflowStarted, common, created_at=created, event=event, raw_input=input)
        if event is not None:
            self._tell("on_event_received", told.EventReceived, common, activity_id=None, event=event)

    @_harmless
    def failed_at_once(self, row: Row, ending: Ending, worker_id: str, now: int) -> None:
        """An instance has failed before its body began."""
        common = _common(row.instance_id, row.workflow, row.generation, worker_id, now)
        self._ended(common, row.created_at, Status.FAILED, ending)

    def _ended(self, common: Common, created_at: int, status: Status, ending: Ending) -> None:
        created = to_datetime(created_at)
        if status is Status.COMPLETED:
            make: Callable[..., Any] = told.WorkflowCompleted
            self._tell("on_workflow_complete", make, common, created_at=created, raw_result=ending.output)
        elif status is Status.FAILED:
            error = error_of(ending.error)
            self._tell("on_workflow_failed", told.WorkflowFailed, common, created_at=created, error=error)
        elif status is Status.CANCELLED:
            reason = getattr(error_of(ending.error), "message", "") or None
            self._tell("on_workflow_cancelled", told.WorkflowCancelled, common, created_at=created, reason=reason)

    # --- replay

    @_harmless
    def replaying(self, host: Host, history: Sequence[Entry], now: int) -> None:
        """A history is about to be replayed."""
        self._tell("on_replay_start", told.ReplayStarted, _of(host, now), entries=len(history))

    @_harmless
    def replayed(self, host: Host, history: Sequence[Entry], now: int, seconds: float, problem: str | None) -> None:
        """It was, as far as it fits."""
        host.told = set(host.execution.run.pending)
        common = _of(host, now)
        if problem is None and self._told["on_activity_cache_hit"]:
            for entry in history:
                if entry.kind is Kind.ACTIVITY and entry.role <= 1:
                    self._cache_hit(common, entry)
        entries = len(history)
        make = told.ReplayCompleted
        self._tell("on_replay_complete", make, common, entries=entries, seconds=seconds, problem=problem)

    def _cache_hit(self, common: Common, entry: Entry) -> None:
        more = {"activity_id": entry.op, "activity_name": entry.name, "attempt": entry.attempt}
        failed = entry.outcome is not Outcome.OK
        outcome: dict[str, Any] = {"error": error_of(_failure(entry))} if failed else {"raw_result": entry.value}
        self._tell("on_activity_cache_hit", told.ActivityCacheHit, common, **more, **outcome)

    # --- attempts

    def attempt_started(self, attempt: Attempt) -> AbstractContextManager[None]:
        """An attempt begins; what surrounds it."""
        host, work = attempt.host, attempt.work
        if not (self._around or self._told["on_activity_start"]):
            return _Around([], None)
        info = told.ActivityStarted(
            **_of(host, attempt.started_at),
            **_activity(work.op, work.name, attempt.number),
            scheduled_at=to_datetime(work.issue.at if work.undo is None else attempt.started_at),
            raw_input=work.issue.input,
        )
        for lane, hook in self._told["on_activity_start"]:
            lane.push(hook, info)
        return _Around(self._around, info)

    # --- events on their way out

    def sending(self, host: Host, deed: SendEvent, attempt: Attempt | None) -> SendEvent:
        """An event with what the hooks add to it. It is told when it is durable."""
        at = host.worker.clock.now()
        if self._extending:
            deed = _extended(deed, self._extending, _sent(host, deed.event, attempt, at))
        if self._told["on_event_sent"]:
            sender = host if attempt is None else attempt
            sender.sent = (*sender.sent, _sent(host, deed.event, attempt, at))
        return deed

    def events_sent(self, infos: Iterable[told.EventSent]) -> None:
        """These are durable."""
        for info in infos:
            for lane, hook in self._told["on_event_sent"]:
                lane.push(hook, info)

    # --- commits

    def unwritten(self, host: Host) -> Unwritten:
        """What a transition brings about that is not to be seen in it."""
        sent, host.sent = host.sent, ()
        return Unwritten(self._new_timers(host), sent)

    @_harmless
    def goes_on(self, host: Host) -> None:
        """A run has gone on with nothing to be written: what it asked for follows from what is durable."""
        self._timers_began(host, self._new_timers(host))

    def _new_timers(self, host: Host) -> list[Issue]:
        run = host.execution.run
        if not run.due:
            return []
        known = _known(host)
        new = [run.pending[op].issue for op in run.due if op not in known and run.pending[op].issue.kind is Kind.TIMER]
        known.update(issue.op for issue in new)
        return new

    def _timers_began(self, host: Host, timers: Iterable[Issue]) -> None:
        for issue in timers:
            due = to_datetime(issue.due or issue.at)
            self._tell("on_timer_start", told.TimerStarted, _of(host, issue.at), activity_id=issue.op, due=due)

    @_harmless
    def committed(self, host: Host, transition: Transition, answer: Applied, unwritten: Unwritten | None) -> None:
        """A transition is durable: tell what happened in it."""
        timers, sent = unwritten or Unwritten()
        for row in transition.attempts:
            if not row.open:
                self._retried(host, row)
        for entry in transition.history:
            self._happened(host, entry)
        self.events_sent(sent)
        if transition.asks:
            self._asked(host, transition.asks, answer.replies)
        self._timers_began(host, timers)
        created, common = host.identity.created_at, _of(host, transition.now)
        if transition.recur is not None:
            self._tell("on_workflow_recur", told.WorkflowRecurred, common, created_at=to_datetime(created))
        elif transition.ending is not None and not answer.held:
            self._ended(common, created, transition.status, transition.ending)

    def _retried(self, host: Host, row: AttemptRow) -> None:
        ended_at = row.ended_at or row.started_at
        self._tell(
            "on_activity_retry",
            told.ActivityRetried,
            _of(host, ended_at),
            **_activity(row.op, row.name, row.attempt),
            scheduled_at=to_datetime(row.scheduled_at),
            started_at=to_datetime(row.started_at),
            error=error_of(row.error),
            next_at=to_datetime(row.next_at if row.next_at is not None else ended_at),
            lost=row.next_at is None,
        )

    def _happened(self, host: Host, entry: Entry) -> None:
        if entry.kind is Kind.TIMER:
            _known(host).discard(entry.op)
            since = to_datetime(entry.scheduled_at or entry.at)
            self._tell("on_timer_fired", told.TimerFired, _of(host, entry.at), activity_id=entry.op, since=since)
        elif entry.kind is Kind.ACTIVITY and entry.seq in host.execution.recalled:
            self._cache_hit(_of(host, entry.at), entry)
        elif entry.kind in _RUN and entry.started_at is not None:  # else it was withdrawn while it waited for its slot
            self._settled(host, entry, entry.started_at)

    def _settled(self, host: Host, entry: Entry, started_at: int) -> None:
        common = _of(host, entry.ended_at or entry.at)
        scheduled_at = started_at if entry.scheduled_at is None else entry.scheduled_at
        more = {
            **_activity(entry.op, entry.name, entry.attempt),
            "scheduled_at": to_datetime(scheduled_at),
            "started_at": to_datetime(started_at),
        }
        if entry.outcome is Outcome.OK:
            self._tell("on_activity_complete", told.ActivityCompleted, common, **more, raw_result=entry.value)
        else:
            cancelled, error = entry.outcome is Outcome.CANCELLED, error_of(_failure(entry))
            self._tell("on_activity_failed", told.ActivityFailed, common, **more, error=error, cancelled=cancelled)

    def _asked(self, host: Host, asks: Iterable[Ask], replies: Iterable[Reply]) -> None:
        known = _known(host)
        waits = {ask.entry.op: ask for ask in asks if ask.entry.kind is Kind.EVENT}
        for op, ask in waits.items():
            if op not in known:
                known.add(op)
                self._wait_began(host, ask)
        for reply in replies:
            if (met := waits.get(reply.op)) is not None:
                known.discard(reply.op)
                self._wait_ended(host, met, reply)

    def _wait_began(self, host: Host, ask: Ask) -> None:
        since = ask.entry.scheduled_at or ask.entry.at
        self._tell(
            "on_event_wait_start",
            told.EventWaitStarted,
            _of(host, since),
            activity_id=ask.entry.op,
            event_type=_wanted(ask),
            due=to_datetime(ask.due) if ask.due is not None else None,
            subject=getattr(ask.question, "subject", None),
        )

    def _wait_ended(self, host: Host, ask: Ask, reply: Reply) -> None:
        common = _of(host, reply.at)
        since = to_datetime(ask.entry.scheduled_at or ask.entry.at)
        more = {"activity_id": reply.op, "event_type": _wanted(ask), "since": since}
        if reply.outcome is not Outcome.OK:
            self._tell("on_event_timeout", told.EventTimedOut, common, **more)
            return
        event = received_event(reply.value or b"{}")
        self._tell("on_event_received", told.EventReceived, common, activity_id=reply.op, event=event)
        self._tell("on_event_wait_complete", told.EventWaitCompleted, common, **more, event=event)


_RUN = frozenset({Kind.ACTIVITY, Kind.COMPENSATION})
_CANCELLED = encode_failure(asyncio.CancelledError("nobody wanted its result any more"))


class _Around:
    """What hooks put around an attempt: entered in order, left in reverse; their own troubles are logged."""

    def __init__(self, hooks: Sequence[Hooks], info: told.ActivityStarted | None) -> None:
        self._hooks = hooks
        self._info = info
        self._entered: list[AbstractContextManager[object]] = []

    def __enter__(self) -> None:
        for one in self._hooks:
            try:
                assert self._info is not None
                around = one.around_activity(self._info)
                around.__enter__()
                self._entered.append(around)
            except Exception:
                _complain(one, "around_activity", self._info)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for around in reversed(self._entered):
            try:
                around.__exit__(kind, error, trace)  # what it returns does not count: the error is the activity's
            except BaseException as trouble:
                if trouble is not error:
                    _complain(around, "around_activity", self._info)


def _sent(host: Host, event: Event, attempt: Attempt | None, at: int) -> told.EventSent:
    return told.EventSent(
        **_of(host, at),
        activity_id=attempt.work.op if attempt is not None else None,
        attempt=attempt.number if attempt is not None else None,
        event_id=event.id,
        event_type=event.type,
        source=event.source,
        subject=event.subject,
        extensions=event.extensions,
        raw_data=event.data,
        binary=event.binary,
    )


def _failure(entry: Entry) -> bytes | None:
    return _CANCELLED if entry.outcome is Outcome.CANCELLED else entry.value


def _extended(deed: SendEvent, extending: Sequence[Hooks], info: told.EventSent) -> SendEvent:
    more: dict[str, str | int | bool] = {}
    for hooks in reversed(extending):  # of two that give the same, the first counts
        more |= _guarded(hooks, info)
    event = deed.event
    return replace(deed, event=replace(event, extensions={**more, **event.extensions})) if more else deed


def _guarded(hooks: Hooks, info: told.EventSent) -> Mapping[str, str | int | bool]:
    try:
        return checked_extensions(hooks.event_extensions(info), f"event {info.event_type!r}")
    except Exception:
        _complain(hooks, "event_extensions", info)
        return {}


def _complain(what: object, method: str, info: told.Info | None) -> None:
    about = info.instance_id if info is not None else "nothing"
    _log.exception("%s.%s failed for %r; nothing else is affected", type(what).__qualname__, method, about)


def _overridden(hooks: Sequence[Hooks], lanes: Sequence[Lane], name: str) -> list[tuple[Lane, Callable[[Any], Any]]]:
    """Whom to call, leaving out those who did not write the method."""
    base = getattr(Hooks, name)
    found = ((lane, getattr(one, name)) for one, lane in zip(hooks, lanes, strict=True))
    return [(lane, hook) for lane, hook in found if getattr(hook, "__func__", None) is not base]


def _common(instance_id: str, workflow: str, generation: int, worker_id: str, at: int) -> Common:
    return Common(
        instance_id=instance_id, workflow_name=workflow, generation=generation, worker_id=worker_id, at=to_datetime(at)
    )


def _of(host: Host, at: int) -> Common:
    return _common(host.instance_id, host.workflow.name, host.identity.generation, host.worker.id, at)


def _activity(op: str, name: str, attempt: int) -> dict[str, Any]:
    undone = op.removeprefix(_UNDOES) if op.startswith(_UNDOES) else None
    return {"activity_id": op, "activity_name": name, "attempt": attempt, "compensates": undone}


def _known(host: Host) -> set[str]:
    """The waits and timers of a host whose beginning was told."""
    if host.told is None:
        host.told = set()
    elif len(host.told) > _FEW and len(host.told) > 2 * len(host.execution.run.pending):
        host.told.intersection_update(host.execution.run.pending)  # some were withdrawn
    return host.told


def _wanted(ask: Ask) -> str:
    return str(getattr(ask.question, "key", ask.entry.name))

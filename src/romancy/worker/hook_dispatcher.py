"""Dispatches calls to hooks after commits, and after progress that needs no commit.

The order within one commit: attempts that are retried, then results and timers in the order of the history, events sent,
waits started, events received and waits timed out, timers started, the end. The history records waits and timers only when
they end, so a runner keeps the ids of those whose start was dispatched (`announced_ops`). After a replay, all pending ones
count as dispatched: by the earlier owner of the instance.
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

from romancy import hooks as infos
from romancy.authoring.events import checked_extensions
from romancy.clock import to_datetime
from romancy.core.commands import Issue
from romancy.hooks import HOOK_METHODS, Hooks
from romancy.hooks.queue import HookQueue
from romancy.model.history import AttemptRow, Entry, Kind, Outcome
from romancy.model.instance import InstanceRow, LoadedInstance
from romancy.model.messaging import Event, ReceivedEvent, SendEvent, StoreCall, StoreReply
from romancy.model.status import Status
from romancy.model.transition import Applied, CreateInstance, Ending, Transition
from romancy.presenters import error_of
from romancy.serde.failure import encode_failure
from romancy.serde.messaging import event_json, event_of_input, received_event

if TYPE_CHECKING:
    from romancy.worker.attempt import Attempt
    from romancy.worker.runner.runner import InstanceRunner

_log = logging.getLogger("romancy.hooks")
_COMPENSATION_PREFIX = "compensate:"
_COMPACT_ABOVE = 64
"""With more ids than this, a runner removes those that are not pending any more."""


class CommonInfo(TypedDict):
    """The fields that all infos have."""

    instance_id: str
    workflow_name: str
    generation: int
    worker_id: str
    at: datetime


P = ParamSpec("P")


def _log_errors(dispatch: Callable[P, None]) -> Callable[P, None]:
    """Log an error of dispatching instead of raising it: hooks must not affect the engine."""

    @functools.wraps(dispatch)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            dispatch(*args, **kwargs)
        except Exception:
            _log.exception("calls to hooks could not be dispatched; nothing else is affected")

    return guarded


class HookExtras(NamedTuple):
    """What is dispatched with a transition but is not part of it: timers that start, and events with their attempts."""

    timers: Sequence[Issue] = ()
    sent: Sequence[infos.EventSent] = ()


class HookDispatcher:
    """Turns what happens on a worker into calls of the app's hooks, and queues them."""

    def __init__(self, hooks: Sequence[Hooks]) -> None:
        self._queues = [HookQueue(one) for one in hooks]
        self._hooks_by_method = {name: _find_overrides(hooks, self._queues, name) for name in HOOK_METHODS}
        self._around_hooks = [one for one in hooks if type(one).around_activity is not Hooks.around_activity]
        self._extending_hooks = [one for one in hooks if type(one).event_extensions is not Hooks.event_extensions]

    async def close(self, timeout: float) -> None:
        """Make the queued calls within `timeout` seconds; drop the rest."""
        await asyncio.gather(*(queue.close(timeout) for queue in self._queues))

    async def abandon(self) -> None:
        """Drop all queued calls."""
        await asyncio.gather(*(queue.abandon() for queue in self._queues))

    def _dispatch(self, name: str, make: Callable[..., Any], common: CommonInfo, /, **more: Any) -> None:
        """Queue a call for each hooks object that implements the method. Without any, the info is not even built."""
        if receivers := self._hooks_by_method[name]:
            info = make(**common, **more)
            for queue, hook in receivers:
                queue.push(hook, info)

    # --- starts and ends of instances

    @_log_errors
    def workflow_started(self, create: CreateInstance, worker_id: str) -> None:
        """An instance that was created here starts, or failed before its body could start."""
        common = _common(create.instance_id, create.workflow, 1, worker_id, create.now)
        event = received_event(event_json(create.event)) if create.event is not None else None
        self._dispatch_started(common, create.now, create.input, event)
        if create.ending is not None:
            self._dispatch_ended(common, create.now, Status.FAILED, create.ending)

    @_log_errors
    def workflow_claimed_first(self, loaded: LoadedInstance, worker_id: str, now: int) -> None:
        """An instance that was created by another process, or without room, starts here."""
        row = loaded.row
        event = event_of_input(loaded.input)
        received = received_event(event_json(event)) if event is not None else None
        common = _common(row.instance_id, row.workflow, row.generation, worker_id, now)
        self._dispatch_started(common, row.created_at, loaded.input, received)

    def _dispatch_started(self, common: CommonInfo, created_at: int, input: bytes, event: ReceivedEvent[Any] | None) -> None:
        created = to_datetime(created_at)
        self._dispatch("on_workflow_start", infos.WorkflowStarted, common, created_at=created, event=event, raw_input=input)
        if event is not None:
            self._dispatch("on_event_received", infos.EventReceived, common, activity_id=None, event=event)

    @_log_errors
    def workflow_failed_at_once(self, row: InstanceRow, ending: Ending, worker_id: str, now: int) -> None:
        """An instance failed before its body could start."""
        common = _common(row.instance_id, row.workflow, row.generation, worker_id, now)
        self._dispatch_ended(common, row.created_at, Status.FAILED, ending)

    def _dispatch_ended(self, common: CommonInfo, created_at: int, status: Status, ending: Ending) -> None:
        created = to_datetime(created_at)
        if status is Status.COMPLETED:
            make: Callable[..., Any] = infos.WorkflowCompleted
            self._dispatch("on_workflow_complete", make, common, created_at=created, raw_result=ending.output)
        elif status is Status.FAILED:
            error = error_of(ending.error)
            self._dispatch("on_workflow_failed", infos.WorkflowFailed, common, created_at=created, error=error)
        elif status is Status.CANCELLED:
            reason = getattr(error_of(ending.error), "message", "") or None
            self._dispatch("on_workflow_cancelled", infos.WorkflowCancelled, common, created_at=created, reason=reason)

    # --- replay

    @_log_errors
    def replay_started(self, runner: InstanceRunner, history: Sequence[Entry], now: int) -> None:
        """A history is about to be replayed."""
        self._dispatch("on_replay_start", infos.ReplayStarted, _common_of(runner, now), entries=len(history))

    @_log_errors
    def replay_completed(
        self, runner: InstanceRunner, history: Sequence[Entry], now: int, seconds: float, problem: str | None
    ) -> None:
        """A history was replayed, or does not fit the code: `problem` says why."""
        runner.announced_ops = set(runner.execution.run.pending)
        common = _common_of(runner, now)
        if problem is None and self._hooks_by_method["on_activity_cache_hit"]:
            for entry in history:
                if entry.kind is Kind.ACTIVITY and entry.role <= 1:
                    self._dispatch_cache_hit(common, entry)
        entries = len(history)
        make = infos.ReplayCompleted
        self._dispatch("on_replay_complete", make, common, entries=entries, seconds=seconds, problem=problem)

    def _dispatch_cache_hit(self, common: CommonInfo, entry: Entry) -> None:
        more = {"activity_id": entry.op, "activity_name": entry.name, "attempt": entry.attempt}
        failed = entry.outcome is not Outcome.OK
        outcome: dict[str, Any] = {"error": error_of(_failure(entry))} if failed else {"raw_result": entry.value}
        self._dispatch("on_activity_cache_hit", infos.ActivityCacheHit, common, **more, **outcome)

    # --- attempts

    def attempt_started(self, attempt: Attempt) -> AbstractContextManager[None]:
        """Dispatch the start of an attempt, and return the context manager to run it in (`around_activity`)."""
        runner, work = attempt.runner, attempt.work
        if not (self._around_hooks or self._hooks_by_method["on_activity_start"]):
            return _AroundHooks([], None)
        info = infos.ActivityStarted(
            **_common_of(runner, attempt.started_at),
            **_activity(work.op, work.name, attempt.number),
            scheduled_at=to_datetime(work.issue.at if work.pending_compensation is None else attempt.started_at),
            raw_input=work.issue.input,
        )
        for queue, hook in self._hooks_by_method["on_activity_start"]:
            queue.push(hook, info)
        return _AroundHooks(self._around_hooks, info)

    # --- events that are sent

    def extend_event(self, runner: InstanceRunner, effect: SendEvent, attempt: Attempt | None) -> SendEvent:
        """Add the hooks' extensions to an event. Its `on_event_sent` is dispatched when it is durable."""
        at = runner.worker.clock.now()
        if self._extending_hooks:
            effect = _with_extensions(effect, self._extending_hooks, _event_sent(runner, effect.event, attempt, at))
        if self._hooks_by_method["on_event_sent"]:
            sender = runner if attempt is None else attempt
            sender.sent_events = (*sender.sent_events, _event_sent(runner, effect.event, attempt, at))
        return effect

    def events_sent(self, infos: Iterable[infos.EventSent]) -> None:
        """Dispatch events that are durable now."""
        for info in infos:
            for queue, hook in self._hooks_by_method["on_event_sent"]:
                queue.push(hook, info)

    # --- commits

    def take_extras(self, runner: InstanceRunner) -> HookExtras:
        """Return the extras to dispatch with the runner's transition, and mark its timers as announced."""
        sent, runner.sent_events = runner.sent_events, ()
        return HookExtras(self._new_timers(runner), sent)

    @_log_errors
    def resumed_without_commit(self, runner: InstanceRunner) -> None:
        """A run continued with nothing to write: the timers that it started follow from durable history."""
        self._dispatch_timers_started(runner, self._new_timers(runner))

    def _new_timers(self, runner: InstanceRunner) -> list[Issue]:
        run = runner.execution.run
        if not run.due:
            return []
        known = _announced_ops(runner)
        new = [run.pending[op].issue for op in run.due if op not in known and run.pending[op].issue.kind is Kind.TIMER]
        known.update(issue.op for issue in new)
        return new

    def _dispatch_timers_started(self, runner: InstanceRunner, timers: Iterable[Issue]) -> None:
        for issue in timers:
            due = to_datetime(issue.due or issue.at)
            self._dispatch("on_timer_start", infos.TimerStarted, _common_of(runner, issue.at), activity_id=issue.op, due=due)

    @_log_errors
    def committed(self, runner: InstanceRunner, transition: Transition, answer: Applied, extras: HookExtras | None) -> None:
        """Dispatch what happened in a transition that is durable now."""
        timers, sent = extras or HookExtras()
        for row in transition.attempts:
            if not row.open:
                self._dispatch_retry(runner, row)
        for entry in transition.history:
            self._dispatch_entry(runner, entry)
        self.events_sent(sent)
        if transition.store_calls:
            self._dispatch_waits(runner, transition.store_calls, answer.replies)
        self._dispatch_timers_started(runner, timers)
        created, common = runner.identity.created_at, _common_of(runner, transition.now)
        if transition.recur is not None:
            self._dispatch("on_workflow_recur", infos.WorkflowRecurred, common, created_at=to_datetime(created))
        elif transition.ending is not None and not answer.owned:
            self._dispatch_ended(common, created, transition.status, transition.ending)

    def _dispatch_retry(self, runner: InstanceRunner, row: AttemptRow) -> None:
        ended_at = row.ended_at or row.started_at
        self._dispatch(
            "on_activity_retry",
            infos.ActivityRetried,
            _common_of(runner, ended_at),
            **_activity(row.op, row.name, row.attempt),
            scheduled_at=to_datetime(row.scheduled_at),
            started_at=to_datetime(row.started_at),
            error=error_of(row.error),
            next_at=to_datetime(row.next_at if row.next_at is not None else ended_at),
            lost=row.next_at is None,
        )

    def _dispatch_entry(self, runner: InstanceRunner, entry: Entry) -> None:
        if entry.kind is Kind.TIMER:
            _announced_ops(runner).discard(entry.op)
            since = to_datetime(entry.scheduled_at or entry.at)
            self._dispatch(
                "on_timer_fired", infos.TimerFired, _common_of(runner, entry.at), activity_id=entry.op, since=since
            )
        elif entry.kind is Kind.ACTIVITY and entry.seq in runner.execution.reused_seqs:
            self._dispatch_cache_hit(_common_of(runner, entry.at), entry)
        elif (
            entry.kind in _ATTEMPT_KINDS and entry.started_at is not None
        ):  # otherwise it was withdrawn while it waited for its slot
            self._dispatch_activity_end(runner, entry, entry.started_at)

    def _dispatch_activity_end(self, runner: InstanceRunner, entry: Entry, started_at: int) -> None:
        common = _common_of(runner, entry.ended_at or entry.at)
        scheduled_at = started_at if entry.scheduled_at is None else entry.scheduled_at
        more = {
            **_activity(entry.op, entry.name, entry.attempt),
            "scheduled_at": to_datetime(scheduled_at),
            "started_at": to_datetime(started_at),
        }
        if entry.outcome is Outcome.OK:
            self._dispatch("on_activity_complete", infos.ActivityCompleted, common, **more, raw_result=entry.value)
        else:
            cancelled, error = entry.outcome is Outcome.CANCELLED, error_of(_failure(entry))
            self._dispatch("on_activity_failed", infos.ActivityFailed, common, **more, error=error, cancelled=cancelled)

    def _dispatch_waits(
        self, runner: InstanceRunner, store_calls: Iterable[StoreCall], replies: Iterable[StoreReply]
    ) -> None:
        known = _announced_ops(runner)
        waits = {store_call.entry.op: store_call for store_call in store_calls if store_call.entry.kind is Kind.EVENT}
        for op, store_call in waits.items():
            if op not in known:
                known.add(op)
                self._dispatch_wait_started(runner, store_call)
        for reply in replies:
            if (matched := waits.get(reply.op)) is not None:
                known.discard(reply.op)
                self._dispatch_wait_ended(runner, matched, reply)

    def _dispatch_wait_started(self, runner: InstanceRunner, store_call: StoreCall) -> None:
        since = store_call.entry.scheduled_at or store_call.entry.at
        self._dispatch(
            "on_event_wait_start",
            infos.EventWaitStarted,
            _common_of(runner, since),
            activity_id=store_call.entry.op,
            event_type=_event_type_of(store_call),
            due=to_datetime(store_call.due) if store_call.due is not None else None,
            subject=getattr(store_call.command, "subject", None),
        )

    def _dispatch_wait_ended(self, runner: InstanceRunner, store_call: StoreCall, reply: StoreReply) -> None:
        common = _common_of(runner, reply.at)
        since = to_datetime(store_call.entry.scheduled_at or store_call.entry.at)
        more = {"activity_id": reply.op, "event_type": _event_type_of(store_call), "since": since}
        if reply.outcome is not Outcome.OK:
            self._dispatch("on_event_timeout", infos.EventTimedOut, common, **more)
            return
        event = received_event(reply.value or b"{}")
        self._dispatch("on_event_received", infos.EventReceived, common, activity_id=reply.op, event=event)
        self._dispatch("on_event_wait_complete", infos.EventWaitCompleted, common, **more, event=event)


_ATTEMPT_KINDS = frozenset({Kind.ACTIVITY, Kind.COMPENSATION})
_CANCELLED_FAILURE = encode_failure(asyncio.CancelledError("its result was no longer wanted"))


class _AroundHooks:
    """The hooks' context managers around an attempt: entered in order, left in reverse order. Their errors are logged."""

    def __init__(self, hooks: Sequence[Hooks], info: infos.ActivityStarted | None) -> None:
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
                _log_hook_failure(one, "around_activity", self._info)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for around in reversed(self._entered):
            try:
                around.__exit__(kind, error, trace)  # its return value is ignored: it must not suppress the activity's error
            except BaseException as failure:
                if failure is not error:
                    _log_hook_failure(around, "around_activity", self._info)


def _event_sent(runner: InstanceRunner, event: Event, attempt: Attempt | None, at: int) -> infos.EventSent:
    return infos.EventSent(
        **_common_of(runner, at),
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
    return _CANCELLED_FAILURE if entry.outcome is Outcome.CANCELLED else entry.value


def _with_extensions(effect: SendEvent, extending: Sequence[Hooks], info: infos.EventSent) -> SendEvent:
    more: dict[str, str | int | bool] = {}
    for hooks in reversed(extending):  # reversed: of two hooks that give the same extension, the first wins
        more |= _extensions_of(hooks, info)
    event = effect.event
    return replace(effect, event=replace(event, extensions={**more, **event.extensions})) if more else effect


def _extensions_of(hooks: Hooks, info: infos.EventSent) -> Mapping[str, str | int | bool]:
    try:
        return checked_extensions(hooks.event_extensions(info), f"event {info.event_type!r}")
    except Exception:
        _log_hook_failure(hooks, "event_extensions", info)
        return {}


def _log_hook_failure(what: object, method: str, info: infos.Info | None) -> None:
    about = info.instance_id if info is not None else "nothing"
    _log.exception("%s.%s failed for %r; nothing else is affected", type(what).__qualname__, method, about)


def _find_overrides(
    hooks: Sequence[Hooks], queues: Sequence[HookQueue], name: str
) -> list[tuple[HookQueue, Callable[[Any], Any]]]:
    """The queues and bound methods to call, without hooks objects that do not override the method."""
    base = getattr(Hooks, name)
    found = ((queue, getattr(one, name)) for one, queue in zip(hooks, queues, strict=True))
    return [(queue, hook) for queue, hook in found if getattr(hook, "__func__", None) is not base]


def _common(instance_id: str, workflow: str, generation: int, worker_id: str, at: int) -> CommonInfo:
    return CommonInfo(
        instance_id=instance_id, workflow_name=workflow, generation=generation, worker_id=worker_id, at=to_datetime(at)
    )


def _common_of(runner: InstanceRunner, at: int) -> CommonInfo:
    return _common(runner.instance_id, runner.workflow.name, runner.identity.generation, runner.worker.id, at)


def _activity(op: str, name: str, attempt: int) -> dict[str, Any]:
    compensates = op.removeprefix(_COMPENSATION_PREFIX) if op.startswith(_COMPENSATION_PREFIX) else None
    return {"activity_id": op, "activity_name": name, "attempt": attempt, "compensates": compensates}


def _announced_ops(runner: InstanceRunner) -> set[str]:
    """The runner's waits and timers whose start was dispatched."""
    if runner.announced_ops is None:
        runner.announced_ops = set()
    elif len(runner.announced_ops) > _COMPACT_ABOVE and len(runner.announced_ops) > 2 * len(runner.execution.run.pending):
        runner.announced_ops.intersection_update(runner.execution.run.pending)  # removes those that were withdrawn
    return runner.announced_ops


def _event_type_of(store_call: StoreCall) -> str:
    return str(getattr(store_call.command, "key", store_call.entry.name))

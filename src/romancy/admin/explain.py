"""Explains the status of an instance, and what will change it: a function from records to an explanation.

waiting        for an event, a message or a timer: what the wait selects, since when, and which events nearly matched
backing off    which attempt failed with which error, and when the next one begins
running        on which worker, and whether that worker is alive
unclaimed      why no worker runs it: none is running, none has the workflow, or all are at capacity
paused         when, by which actor, and for which reason
blocked        why the code does not match the history, and which workers have the workflow
compensating   which activities have been compensated, and which are still to be
ended          with which error, or by which actor
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from romancy.admin.filters import OVERDUE
from romancy.admin.records import ActionKind, Explanation, Health, Remedy, WakeCondition
from romancy.admin.summaries import error_line, match_text
from romancy.clock import MICROS, to_datetime
from romancy.codec import is_encoded
from romancy.core.matcher import find, is_same_json
from romancy.model.history import AttemptRow, Entry, Kind, Outcome, Role
from romancy.model.instance import StoredInstance, WorkerRow
from romancy.model.status import Status
from romancy.model.transition import Wait, WaitKind
from romancy.serde.messaging import received_event
from romancy.store.port import JournalEntry

_COMPENSATE = "compensate:"
_LATE = 10 * MICROS
"""Microseconds after which a due instance that none of the running workers has claimed counts as stuck."""


@dataclass(frozen=True, slots=True)
class CandidateEvent:
    """A recent event of the type that an instance waits for."""

    accepted_at: int
    body: bytes | None
    """None if it is too large to be compared."""
    target: str | None = None
    consumed: bool = False
    """The instance has already consumed it."""
    predates_instance: bool = False
    """It was accepted before the instance was created."""


@dataclass(frozen=True, slots=True)
class ChannelFacts:
    """The state of a channel on which an instance waits for a message."""

    subscribed: bool
    mode: str | None
    backlog: int
    """Messages that no instance has received yet, counted up to a limit."""
    others: int
    """Other subscribers, counted up to a limit."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts from which an explanation is made."""

    stored: StoredInstance
    now: int
    lease: int
    """Microseconds without a heartbeat after which a worker counts as dead."""
    workers: Sequence[WorkerRow] = ()
    attempts: Sequence[AttemptRow] = ()
    journal: Sequence[JournalEntry] = ()
    entries: Sequence[Entry] = ()
    """The history, if the instance may have compensations: failures, activities to compensate, and their compensations."""
    events: Mapping[str, Sequence[CandidateEvent]] = field(default_factory=dict[str, Sequence[CandidateEvent]])
    """The latest events of each type that the instance waits for, newest first."""
    channels: Mapping[str, ChannelFacts] = field(default_factory=dict[str, ChannelFacts])
    most_attempts: Mapping[str, int] = field(default_factory=dict[str, int])
    """The maximum of attempts of each operation whose code is known; 0: unlimited."""
    compensable: frozenset[str] = frozenset()
    """Names of the activities that have a compensation, as far as their code is known."""
    usual_duration: float | None = None
    """Seconds within which 95% of the workflow's instances end."""


def explain(facts: Facts) -> Explanation:
    """Explain the status of the instance."""
    row = facts.stored.row
    if row.status.ended:
        return _explain_ended(facts)
    if row.status is Status.PAUSED:
        return _explain_paused(facts)
    if row.status is Status.BLOCKED:
        return _explain_blocked(facts)
    if row.owner is not None:
        return _explain_owned(facts)
    if row.wake_at is not None and row.wake_at <= facts.now:
        return _explain_unclaimed(facts)
    return _explain_waiting(facts)


def _make_explanation(
    facts: Facts, health: Health, because: str, conditions: Iterable[WakeCondition] = (), remedies: Iterable[Remedy] = ()
) -> Explanation:
    row = facts.stored.row
    return Explanation(row.instance_id, row.status, health, because, tuple(conditions), tuple(remedies))


# --- waiting


def _explain_waiting(facts: Facts) -> Explanation:
    waits = facts.stored.waits
    wakes = [_wake_condition(facts, wait) for wait in waits]
    remedies = [remedy for wait in waits for remedy in _remedies(wait)]
    if facts.stored.row.status is Status.COMPENSATING:
        wakes = [*wakes, *_compensation_condition(facts)]
    if not _live_workers(facts):
        because = f"{_capitalized(_describe_waits(facts))}, but no worker is running to continue it."
        return _make_explanation(facts, Health.STUCK, because, wakes, [*remedies, _start_worker()])
    verdict = Health.SLOW if any(wait.kind is WaitKind.RETRY for wait in waits) else Health.HEALTHY
    return _make_explanation(
        facts, verdict, f"{_capitalized(_describe_waits(facts))}.", wakes, [*remedies, *_action_remedies(ActionKind.CANCEL)]
    )


def _describe_waits(facts: Facts) -> str:
    waits = facts.stored.waits
    parts = [_describe_wait(facts, wait) for wait in waits]
    if facts.stored.row.status is Status.COMPENSATING:
        parts.insert(0, "compensating")
    return " and ".join(parts) or "waiting, although no wait is recorded"


def _describe_wait(facts: Facts, wait: Wait) -> str:
    match wait.kind:
        case WaitKind.EVENT:
            return f"waiting for event {wait.key!r}{_describe_selector(wait)}"
        case WaitKind.MESSAGE:
            return f"waiting for a message on channel {wait.key!r}"
        case WaitKind.TIMER:
            return f"sleeping until {_clock(wait.due)}" if wait.due is not None else "sleeping"
        case WaitKind.RETRY:
            return _backoff(facts, wait)


def _backoff(facts: Facts, wait: Wait) -> str:
    failed = [attempt for attempt in facts.attempts if attempt.op == wait.op and attempt.error is not None]
    if not failed:
        return f"waiting for the next attempt of {wait.op}"
    last = failed[-1]
    assert last.error is not None
    return f"waiting to retry {wait.op}: attempt {_count(facts, last)} failed with {error_line(last.error)}"


def _count(facts: Facts, attempt: AttemptRow) -> str:
    most = facts.most_attempts.get(attempt.op)
    return f"{attempt.attempt} of {most}" if most else str(attempt.attempt)


def _describe_selector(wait: Wait) -> str:
    subject = f" with subject {wait.subject!r}" if wait.subject is not None else ""
    match = f" whose data matches {match_text(wait.match)}" if wait.match is not None else ""
    return subject + match


def _wake_condition(facts: Facts, wait: Wait) -> WakeCondition:
    evidence: Iterable[str] = ()
    match wait.kind:
        case WaitKind.EVENT:
            evidence = _near_misses(facts, wait)
        case WaitKind.MESSAGE:
            evidence = _channel(facts, wait)
        case WaitKind.TIMER:
            evidence = ()
        case WaitKind.RETRY:
            evidence = _failures(facts, wait)
    key = wait.key or wait.op
    return WakeCondition(wait.kind.value, key, to_datetime(wait.since), _optional_datetime(wait.due), tuple(evidence))


def _failures(facts: Facts, wait: Wait) -> Iterator[str]:
    for attempt in facts.attempts:
        if attempt.op == wait.op and attempt.error is not None:
            yield f"Attempt {_count(facts, attempt)} failed at {_clock(attempt.ended_at)}: {error_line(attempt.error)}"


def _near_misses(facts: Facts, wait: Wait) -> Iterator[str]:
    if wait.key not in facts.events:
        return
    candidates = facts.events[wait.key]
    if not candidates:
        yield f"No event of type {wait.key!r} is stored: none has arrived, or it has expired."
    for candidate in candidates:
        yield f"An event arrived at {_clock(candidate.accepted_at)}: {_difference(facts, wait, candidate)}."


def _difference(facts: Facts, wait: Wait, candidate: CandidateEvent) -> str:
    """Return why an event did not match a wait."""
    own = facts.stored.row.instance_id
    if candidate.target is not None and candidate.target != own:
        return f"it was addressed to {candidate.target!r}"
    if candidate.consumed:
        return "this instance has already consumed it"
    if candidate.predates_instance:
        return "that was before this instance started"
    if candidate.body is None:
        return "it is too large to check whether it matches"
    if is_encoded(candidate.body) or is_encoded(wait.match):
        return "it is encoded and cannot be decoded in this process"
    event = received_event(candidate.body)
    if wait.subject is not None and event.subject != wait.subject:
        return f"its subject is {event.subject!r}, not {wait.subject!r}"
    for path, wanted in _selector_items(wait):
        found = find(event.data, path)
        if not is_same_json(found, wanted):
            return f"its {path} is {_json_text(found)}, not {_json_text(wanted)}"
    if wait.due is not None and candidate.accepted_at >= wait.due:
        return "the wait had already timed out"
    return "it matches, and the instance is about to receive it"


def _selector_items(wait: Wait) -> list[tuple[str, Any]]:
    try:
        return list(json.loads(wait.match).items()) if wait.match is not None else []
    except ValueError:
        return []


def _json_text(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except TypeError:
        return "missing"
    return text if len(text) <= 80 else text[:79] + "…"


def _channel(facts: Facts, wait: Wait) -> Iterator[str]:
    known = facts.channels.get(wait.key)
    if known is None:
        return
    if not known.subscribed:
        yield f"The instance is not subscribed to channel {wait.key!r}."
    if known.mode is not None:
        yield f"The channel is in {known.mode} mode."
    yield f"The channel has {known.backlog or 'no'} unread message{'' if known.backlog == 1 else 's'}."
    if known.mode == "competing" and known.others:
        compete = "subscriber competes" if known.others == 1 else "subscribers compete"
        yield f"{known.others} other {compete} for its messages."


def _remedies(wait: Wait) -> Iterator[Remedy]:
    if wait.kind is WaitKind.EVENT:
        data = dict(_selector_items(wait))
        values = {"type": wait.key, "subject": wait.subject, "data": _nested(data), "op": wait.op}
        yield Remedy("send_event", f"Send event {wait.key}", values)
    elif wait.kind is WaitKind.MESSAGE:
        yield Remedy("publish", f"Send a message on channel {wait.key}", {"channel": wait.key, "op": wait.op})


def _nested(flat: Mapping[str, Any]) -> Any:
    """Turn dotted paths into an object, with which a form is filled in."""
    whole: dict[str, Any] = {}
    for path, value in flat.items():
        inner = whole
        *steps, last = path.split(".")
        for step in steps:
            following = inner.setdefault(step, {})
            if not isinstance(following, dict):
                break
            inner = following
        else:
            inner[last] = value
    return whole


# --- owned, or due and unclaimed


def _explain_owned(facts: Facts) -> Explanation:
    row = facts.stored.row
    assert row.owner is not None
    worker = next((one for one in facts.workers if one.id == row.owner), None)
    wakes = [*_open_attempts(facts), *(_wake_condition(facts, wait) for wait in facts.stored.waits)]
    if row.status is Status.COMPENSATING:
        wakes = [*wakes, *_compensation_condition(facts)]
    what = "Compensating" if row.status is Status.COMPENSATING else "Running"
    actions = [ActionKind.TERMINATE] if row.status is Status.COMPENSATING else [ActionKind.CANCEL, ActionKind.PAUSE]
    if worker is None or not _is_alive(worker, facts):
        return _make_explanation(
            facts, Health.STUCK, *_silent(facts, what, worker), [*_action_remedies(*actions), _start_worker()]
        )
    because = f"{what} on {row.owner}"
    failing = [attempt for attempt in facts.attempts if attempt.next_at is not None and attempt.next_at > facts.now]
    if row.retrying_since is not None and failing and failing[-1].error is not None:
        last = failing[-1]
        assert last.error is not None
        because += f"; attempt {_count(facts, last)} of {last.op} failed with {error_line(last.error)}"
        return _make_explanation(
            facts, Health.SLOW, f"{because}.", [*wakes, _next_attempt(facts, last)], _action_remedies(*actions)
        )
    if facts.usual_duration is not None and row.started_at is not None:
        running = (facts.now - row.started_at) / MICROS
        if running > max(60.0, 3 * facts.usual_duration):
            usual = format_span(facts.usual_duration)
            because += f" for {format_span(running)}; 95% of this workflow's instances end within {usual}"
            return _make_explanation(facts, Health.SLOW, f"{because}.", wakes, _action_remedies(*actions))
    return _make_explanation(facts, Health.HEALTHY, f"{because}.", wakes, _action_remedies(*actions))


def _silent(facts: Facts, what: str, worker: WorkerRow | None) -> tuple[str, list[WakeCondition]]:
    owner = facts.stored.row.owner
    if worker is None:
        because = f"{what} on worker {owner}, which no longer exists; another worker will take over shortly."
        return because, [WakeCondition("lease", owner or "")]
    over = worker.heartbeat_at + facts.lease
    silent = format_span((facts.now - worker.heartbeat_at) / MICROS)
    left = over - facts.now
    lease = f"its lease ends in {format_span(left / MICROS)}" if left > 0 else "its lease has expired"
    then = "and another worker will take over" if _live_workers(facts) else "but no other worker is running to take over"
    evidence = (f"The last heartbeat of worker {worker.id} was at {_clock(worker.heartbeat_at)}.",)
    because = f"{what} on worker {owner}, which has been silent for {silent}; {lease}, {then}."
    return because, [WakeCondition("lease", owner or "", to_datetime(worker.heartbeat_at), to_datetime(over), evidence)]


def _open_attempts(facts: Facts) -> Iterator[WakeCondition]:
    for attempt in facts.attempts:
        if attempt.open:
            beat = f"; its last heartbeat was at {_clock(attempt.heartbeat_at)}" if attempt.heartbeat_at is not None else ""
            text = f"Attempt {_count(facts, attempt)} has been running for {_since(facts, attempt.started_at)}{beat}."
            yield WakeCondition("activity", attempt.op, to_datetime(attempt.started_at), None, (text,))


def _next_attempt(facts: Facts, attempt: AttemptRow) -> WakeCondition:
    wait = Wait(attempt.op, WaitKind.RETRY, attempt.scheduled_at, attempt.next_at)
    return _wake_condition(facts, wait)


def _explain_unclaimed(facts: Facts) -> Explanation:
    row = facts.stored.row
    assert row.wake_at is not None
    late = facts.now - row.wake_at
    due = WakeCondition(
        "claim", row.workflow, to_datetime(row.wake_at), to_datetime(row.wake_at), tuple(_worker_evidence(facts))
    )
    fired = [_wake_condition(facts, wait) for wait in facts.stored.waits]
    living = _live_workers(facts)
    label = f"{row.workflow} version {row.version}" if row.version else row.workflow
    if not living:
        because = "Ready to run, but no worker is running."
        return _make_explanation(facts, Health.STUCK, because, [due, *fired], [_start_worker()])
    if not any([row.workflow, row.version] in json.loads(worker.workflows) for worker in living):
        because = f"Ready to run, but no running worker has workflow {label}."
        return _make_explanation(
            facts, Health.STUCK, because, [due, *fired], [Remedy("deploy", f"Start an app with workflow {label}")]
        )
    if late < OVERDUE:
        return _make_explanation(facts, Health.HEALTHY, "Ready to run; a worker is about to claim it.", [due, *fired])
    verdict = Health.STUCK if late >= _LATE else Health.SLOW
    waited = format_span(late / MICROS)
    because = f"Ready to run for {waited}, but no worker has claimed it: they may all be at capacity or blocked."
    return _make_explanation(facts, verdict, because, [due, *fired], [Remedy("deploy", "Start more workers")])


def _worker_evidence(facts: Facts) -> Iterator[str]:
    row = facts.stored.row
    for worker in facts.workers:
        knows = "has" if [row.workflow, row.version] in json.loads(worker.workflows) else "does not have"
        alive = "alive" if _is_alive(worker, facts) else f"silent for {_since(facts, worker.heartbeat_at)}"
        yield f"Worker {worker.id} is {alive} and {knows} the workflow."


# --- paused, blocked, ended


def _explain_paused(facts: Facts) -> Explanation:
    by = _last(facts, "pause")
    why = f" at {_clock(by.at)}{_by(by)}" if by is not None else ""
    wakes = [WakeCondition("operator", "resume"), *(_wake_condition(facts, wait) for wait in facts.stored.waits)]
    return _make_explanation(
        facts, Health.STUCK, f"Paused{why}.", wakes, _action_remedies(ActionKind.RESUME, ActionKind.CANCEL)
    )


def _by(entry: JournalEntry) -> str:
    who = f" by {entry.worker}" if entry.worker else ""
    return f"{who}: {entry.note.detail}" if entry.note.detail else who


def _explain_blocked(facts: Facts) -> Explanation:
    note = _last(facts, "blocked")
    why = note.note.detail if note is not None else "the code does not match the history"
    remedies = [Remedy("deploy", "Deploy matching code"), *_action_remedies(ActionKind.RESUME, ActionKind.TERMINATE)]
    wakes = [WakeCondition("claim", facts.stored.row.workflow, evidence=tuple(_worker_evidence(facts)))]
    return _make_explanation(facts, Health.STUCK, f"Blocked: {why.rstrip('.')}.", wakes, remedies)


def _explain_ended(facts: Facts) -> Explanation:
    row, error = facts.stored.row, facts.stored.error
    compensated = (
        [WakeCondition("compensation", "finished", evidence=tuple(_compensation_evidence(facts)))]
        if _has_compensations(facts)
        else []
    )
    match row.status:
        case Status.FAILED:
            failed = _failed_operation(facts)
            where = f" in {failed.op}" if failed is not None else ""
            because = f"Failed{where}: {error_line(error)}" if error is not None else f"Failed{where}"
            return _make_explanation(
                facts, Health.ENDED, f"{because.rstrip('.')}.", compensated, _action_remedies(ActionKind.RETRY)
            )
        case Status.CANCELLED | Status.TERMINATED:
            by = _last(facts, "cancel" if row.status is Status.CANCELLED else "terminate")
            because = f"{row.status.value.capitalize()}{_by(by) if by is not None else ''}".rstrip(".")
            return _make_explanation(facts, Health.ENDED, f"{because}.", compensated)
        case _:
            because = f"{row.status.value.capitalize()} at {_clock(row.ended_at)}."
            return _make_explanation(facts, Health.ENDED, because)


def _failed_operation(facts: Facts) -> Entry | None:
    failed = [entry for entry in facts.entries if entry.role is Role.FED and entry.outcome is Outcome.ERROR]
    return failed[-1] if failed else None


def _compensation_condition(facts: Facts) -> Iterator[WakeCondition]:
    yield WakeCondition("compensation", "in progress", evidence=tuple(_compensation_evidence(facts)))


def _has_compensations(facts: Facts) -> bool:
    return any(entry.kind is Kind.COMPENSATION and entry.role is not Role.DISCARDED for entry in facts.entries)


def _compensation_evidence(facts: Facts) -> Iterator[str]:
    steps = [entry for entry in facts.entries if entry.kind is Kind.COMPENSATION and entry.role is not Role.DISCARDED]
    for step in steps:
        compensated = step.op.removeprefix(_COMPENSATE)
        if step.outcome is Outcome.OK:
            yield f"{compensated} was compensated by {step.name}."
        else:
            why = f": {error_line(step.value)}" if step.value is not None else ""
            yield f"{compensated} could not be compensated by {step.name}{why}."
    if facts.stored.row.status is Status.COMPENSATING:
        for entry in pending_compensations(facts.entries, facts.compensable):
            yield f"{entry.op} is still to be compensated."


def pending_compensations(entries: Sequence[Entry], compensable: frozenset[str]) -> list[Entry]:
    """Return the entries that would be compensated if the instance failed now, in that order."""
    done = {e.op.removeprefix(_COMPENSATE) for e in entries if e.kind is Kind.COMPENSATION and e.role is not Role.DISCARDED}
    return [
        entry
        for entry in reversed(entries)
        if entry.role is not Role.DISCARDED and entry.op not in done and _is_compensable(entry, compensable)
    ]


def _is_compensable(entry: Entry, compensable: frozenset[str]) -> bool:
    if entry.kind is Kind.REGISTRATION:
        return True
    return entry.kind is Kind.ACTIVITY and entry.outcome is Outcome.OK and entry.name in compensable


# --- helpers


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _live_workers(facts: Facts) -> list[WorkerRow]:
    return [worker for worker in facts.workers if _is_alive(worker, facts)]


def _is_alive(worker: WorkerRow, facts: Facts) -> bool:
    """Return whether the last heartbeat of a worker is at most half a lease old."""
    return facts.now - worker.heartbeat_at <= facts.lease // 2


def _last(facts: Facts, kind: str) -> JournalEntry | None:
    return next((entry for entry in reversed(facts.journal) if entry.note.kind == kind), None)


def _start_worker() -> Remedy:
    return Remedy("deploy", "Start an app on this database")


def _action_remedies(*actions: ActionKind) -> list[Remedy]:
    return [Remedy(action.value, action.value.capitalize()) for action in actions]


def _optional_datetime(micros: int | None) -> Any:
    return None if micros is None else to_datetime(micros)


def _clock(micros: int | None) -> str:
    return "an unknown time" if micros is None else to_datetime(micros).strftime("%Y-%m-%d %H:%M:%S UTC")


def _since(facts: Facts, micros: int) -> str:
    return format_span((facts.now - micros) / MICROS)


def format_span(seconds: float) -> str:
    """Format a duration with two units at most: `3 h 20 min`."""
    seconds = max(0.0, seconds)
    if seconds < 10:
        return f"{seconds:.1f} s"
    for size, name, part, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            whole, rest = divmod(int(seconds), size)
            return f"{whole} {name} {rest // part} {small}" if rest >= part else f"{whole} {name}"
    return f"{seconds:.0f} s"

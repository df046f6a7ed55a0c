"""The state of one instance around its run: open operations, recorded entries, pending compensations.

The worker feeds what happened (`start`, `feed`, `feed_replies`, `record_late_result`, `record_compensation`) and reads what
to do next (`take_new_activities`, `take_store_calls`, `take_effects`, `take_withdrawn`, `due_issues`, `next_compensation`).
`take_entries` returns the new entries of the history. They must be committed before any activity starts, and together with
the effects.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from operator import itemgetter
from typing import NamedTuple, cast

from romancy.core.commands import BodyOutcome, Cancelled, Command, Fail, Finish, Issue, Recur, Resolution, Withdraw
from romancy.core.loop import CODE_CHANGE_ADVICE, NONDETERMINISM_ADVICE, Run
from romancy.errors import DeterminismViolationError
from romancy.model.history import EFFECTS, STORE_CALLS, Entry, Kind, Outcome, Role
from romancy.model.messaging import Effect, StoreReply

_MESSAGING_KINDS = STORE_CALLS | EFFECTS - {Kind.REGISTRATION}
_EXTERNAL_KINDS = frozenset({Kind.CANCEL, Kind.TIMEOUT, Kind.RETRY})
# Module names for enum members: before Python 3.12, looking up a member of an enum takes as long as a call.
_ACTIVITY, _OK, _FED = Kind.ACTIVITY, Outcome.OK, Role.FED


class Phase(StrEnum):
    """The phases of an instance, in their order."""

    BODY = "body"
    """The workflow's code runs or waits."""
    FINISHING = "finishing"
    """The body has ended; attempts that cannot be interrupted have not."""
    COMPENSATING = "compensating"
    """Recorded operations are being compensated."""
    ENDED = "ended"


_BODY = Phase.BODY


@dataclass(frozen=True, slots=True)
class PendingCompensation:
    """A compensation that is to be run."""

    op: str
    """The id of the compensation: `compensate:` and the id of the operation that it compensates."""
    seq: int
    issue: Issue
    result: bytes | None


class AttemptResult(NamedTuple):
    """An attempt's outcome, with the details that operators see."""

    outcome: Outcome
    value: bytes | None
    attempt: int = 1
    started_at: int | None = None
    ended_at: int | None = None
    worker: str = ""
    epoch: int = 0


_NOT_RUN = AttemptResult(Outcome.OK, None, attempt=0)


class Execution:
    """One generation of one instance. It changes only through the resolutions and results that are fed to it."""

    __slots__ = (
        "_compensable",
        "_compensated",
        "_compensations",
        "_effect_seqs",
        "_entries",
        "_open_store_calls",
        "_retained",
        "_withdrawn_store_calls",
        "effects",
        "finishing",
        "new_activities",
        "reused_seqs",
        "run",
        "seq",
        "store_calls",
        "used_messaging",
        "withdrawn",
    )  # fmt: skip

    def __init__(self, run: Run, history: Iterable[Entry] = (), *, length: int = 0) -> None:
        self.run = run
        self.seq = length
        self.new_activities: list[Issue] = []
        self.store_calls: list[Issue] = []
        self.effects: list[tuple[str, Effect]] = []
        self.used_messaging = False
        """The run has sent, subscribed or waited: at its end, the store may have messaging state to delete."""
        self.withdrawn: list[str] = []
        self.finishing: set[str] = set()
        """Withdrawn operations whose attempt is still running; the instance ends only after it has ended."""
        self.reused_seqs: set[int] = set()
        """The entries with results retained from before a retry of the instance: no attempt ran for them."""
        self._entries: list[Entry] = []
        self._open_store_calls: set[str] = set()
        self._withdrawn_store_calls: set[str] = set()
        """Store calls that the body withdrew during the current step.

        Another reply of the same commit may be for one of them; that reply is ignored, also in a replay.
        """
        self._retained: dict[str, Entry] = {entry.op: entry for entry in history if entry.role is Role.RETAINED}
        self._compensable: dict[str, Issue] = {}
        self._compensations: list[PendingCompensation] = []
        self._compensated: set[str] = set()
        self._effect_seqs: dict[str, int] = {}

    # --- feeding

    def start(self, at: int) -> None:
        """Start the body."""
        self._apply_commands(self.run.advance(Resolution(Kind.START, "", at)))
        self._withdrawn_store_calls.clear()
        self._reuse_retained()

    def feed(self, resolution: Resolution, ended: AttemptResult | None = None, *, name: str = "") -> None:
        """Record a resolution and resume the body with it."""
        self._feed(resolution, ended, name)
        self._reuse_retained()

    def _feed(self, resolution: Resolution, ended: AttemptResult | None, name: str) -> None:
        run = self.run
        if run.body_outcome is not None and run.override_outcome(resolution):
            self._record(resolution, None, ended, _FED, name)
            return
        waiting = run.pending.get(resolution.op)
        issue = waiting.issue if waiting is not None else None
        entry = self._record(resolution, issue, ended, _FED, name)
        commands = run.advance(resolution)
        self._push_compensation(entry, issue)
        self._apply_commands(commands)
        self._withdrawn_store_calls.clear()

    def feed_replies(self, *replies: StoreReply) -> None:
        """Resume the body with the store's replies of one commit, which the store has recorded in the history itself.

        The sequence numbers of all replies are taken before the body moves: what it does now comes after all of them in the
        history, as it will in a replay. If a reply makes the body withdraw another store call, the reply to that is ignored.
        """
        for reply in replies:
            self.seq += 1
            if reply.seq != self.seq:
                raise AssertionError(f"{reply.op} was recorded as entry {reply.seq}, where entry {self.seq} was to come")
        for reply in replies:
            self._feed_reply(reply)
        self._withdrawn_store_calls.clear()
        self._reuse_retained()

    def _feed_reply(self, reply: StoreReply) -> None:
        waiting = self.run.pending.get(reply.op)
        if waiting is None and reply.op in self._withdrawn_store_calls:
            return
        if waiting is None:
            raise AssertionError(f"{reply.op} has a reply, but it is not pending")
        self._open_store_calls.discard(reply.op)
        self._apply_commands(
            self.run.advance(Resolution(waiting.issue.kind, reply.op, reply.at, reply.outcome, reply.value))
        )

    def record_late_result(self, issue: Issue, ended: AttemptResult, at: int) -> None:
        """Record the end of an attempt whose operation the body had withdrawn. The body does not see it."""
        self.finishing.discard(issue.op)
        resolution = Resolution(issue.kind, issue.op, at, ended.outcome, ended.value)
        self._push_compensation(self._record(resolution, issue, ended, Role.OUT_OF_BAND, ""), issue)

    def record_compensation(
        self, compensation: PendingCompensation, ended: AttemptResult, at: int, *, name: str = ""
    ) -> None:
        """Record that a compensation has run or failed for good."""
        self._compensated.add(compensation.op)
        begun = ended.started_at if ended.started_at is not None else at
        issue = compensation.issue._replace(
            op=compensation.op, kind=Kind.COMPENSATION, name=name or compensation.issue.name, at=begun
        )
        self._record(
            Resolution(Kind.COMPENSATION, compensation.op, at, ended.outcome, ended.value),
            issue,
            ended,
            Role.OUT_OF_BAND,
            "",
        )

    def replay(self, at: int, history: Iterable[Entry]) -> None:
        """Bring a new run to the state at the end of the history.

        Raises `DeterminismViolationError` when the code does not fit the history.
        """
        run = self.run
        run.replaying = True
        history = tuple(history)
        self._effect_seqs = {entry.op: entry.seq for entry in history if is_effect(entry)}
        self.used_messaging = any(entry.kind in _MESSAGING_KINDS for entry in history)
        self._compensated = {
            entry.op for entry in history if entry.kind is Kind.COMPENSATION and entry.role is not Role.DISCARDED
        }
        self._apply_commands(run.advance(Resolution(Kind.START, "", at)))
        self._withdrawn_store_calls.clear()
        for entry in history:
            if entry.role is _FED:
                self._replay_entry(entry)
            elif entry.role is Role.OUT_OF_BAND and entry.kind is Kind.ACTIVITY:
                self._push_compensation(entry, self._compensable.get(entry.op))
            elif is_effect(entry) and run.is_effect_outstanding(entry.op):
                raise DeterminismViolationError(
                    f"recorded: {_describe(entry)}; but the code does not do that. {CODE_CHANGE_ADVICE}"
                )
        run.replaying = False
        self.new_activities = [issue for issue in self.new_activities if issue.op in run.pending]
        self.store_calls = [issue for issue in self.store_calls if issue.op in run.pending]
        self.withdrawn.clear()
        self._withdrawn_store_calls.clear()
        self._reuse_retained()

    def _replay_entry(self, entry: Entry) -> None:
        if entry.op in self._withdrawn_store_calls:  # the reply before it, in the same commit, made the body withdraw it
            return
        if self.run.override_outcome(Resolution.of(entry)):
            return
        if entry.kind is Kind.RETRY:
            if self.run.body_outcome is not None:
                return  # the code failed by itself and does so again, or was fixed and now ends without the retry
            self.run.renew_timeouts(entry.at, self._retained)
        waiting = self.run.pending.get(entry.op)
        issue = waiting.issue if waiting is not None else None
        if self.run.body_outcome is not None:
            raise DeterminismViolationError(f"recorded: {_describe(entry)}; but the code had ended by then")
        if entry.kind not in _EXTERNAL_KINDS:
            _check_fits(entry, issue, self.run)
            self._open_store_calls.discard(entry.op)
        commands = self.run.advance(Resolution.of(entry))
        self._push_compensation(entry, issue)
        self._apply_commands(commands)
        if entry.kind not in STORE_CALLS:  # no other entry comes between the replies of one commit
            self._withdrawn_store_calls.clear()

    def _apply_commands(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Issue):
                self._handle_issue(command)
            elif isinstance(command, Withdraw):
                self._withdraw(command.op)
            else:
                self._handle_effect(command.issue, command.recorded)

    def _handle_issue(self, issue: Issue) -> None:
        if issue.compensation is not None:
            self._compensable[issue.op] = issue
        if issue.kind is _ACTIVITY:
            self.new_activities.append(issue)
        elif issue.kind in STORE_CALLS:
            self.used_messaging = True
            self.store_calls.append(issue)
            self._open_store_calls.add(issue.op)

    def _withdraw(self, op: str) -> None:
        is_store_call = op in self._open_store_calls
        if is_store_call:
            self._open_store_calls.discard(op)
            self._withdrawn_store_calls.add(op)
        if self.run.replaying:  # `replay` filters the lists once at its end; a search here each time would be O(n²)
            return
        new = self.store_calls if is_store_call else self.new_activities
        for index, issue in enumerate(new):
            if issue.op == op:  # issued and withdrawn before the worker took it: there is nothing to stop
                del new[index]
                return
        self.withdrawn.append(op)

    def _handle_effect(self, issue: Issue, recorded: bool) -> None:
        if issue.kind is not Kind.REGISTRATION:
            self.used_messaging = True
        if recorded:
            seq = self._effect_seqs[issue.op]
        else:
            # An effect from before a retry of the instance is recorded again, so that replays check it, but not repeated.
            done = self._pop_retained(issue)
            resolution = Resolution(issue.kind, issue.op, self.run.at)
            seq = self._record(resolution, issue, None, Role.OUT_OF_BAND, "").seq
            if issue.detail is not None and done is None:
                self.effects.append((issue.op, cast(Effect, issue.detail)))
        if issue.compensation is not None:
            self._compensations.append(PendingCompensation(f"compensate:{issue.op}", seq, issue, None))

    def _push_compensation(self, entry: Entry, issue: Issue | None) -> None:
        if issue is None or issue.compensation is None:
            return
        self._compensable.pop(issue.op, None)
        if entry.outcome is _OK and entry.kind is _ACTIVITY:
            self._compensations.append(PendingCompensation(f"compensate:{issue.op}", entry.seq, issue, entry.value))

    def _reuse_retained(self) -> None:
        """Resolve pending operations whose results were retained from before a retry of the instance."""
        while self._retained:
            timers = [one.issue for one in self.run.pending.values() if one.issue.kind is Kind.TIMER]
            issue = next(
                (one for one in chain(self.new_activities, self.store_calls, timers) if one.op in self._retained), None
            )
            if issue is None:
                return
            entry = self._pop_retained(issue)
            if entry is None:
                continue
            if issue.kind in STORE_CALLS:
                self.store_calls.remove(issue)
                self._open_store_calls.discard(issue.op)
            elif issue.kind is _ACTIVITY:
                self.new_activities.remove(issue)
            ended = AttemptResult(
                entry.outcome, entry.value, entry.attempt, entry.started_at, entry.ended_at, entry.worker, entry.epoch
            )
            self.reused_seqs.add(self.seq + 1)
            self._feed(Resolution(issue.kind, issue.op, self.run.at, entry.outcome, entry.value), ended, "")

    def _pop_retained(self, issue: Issue) -> Entry | None:
        """Remove and return the entry retained for an operation; None if its kind or arguments are not the same."""
        entry = self._retained.pop(issue.op, None)
        if entry is None or entry.kind is not issue.kind:
            return None
        return entry if entry.digest == issue.digest or self.run.find_difference(issue, entry) is None else None

    def _record(
        self, resolution: Resolution, issue: Issue | None, ended: AttemptResult | None, role: Role, name: str
    ) -> Entry:
        self.seq += 1
        digest, input, site, scheduled_at = b"", None, "", None
        if issue is not None:
            name, digest, input, site, scheduled_at = issue.name, issue.digest, issue.input, issue.site, issue.at
        kind, op, at, outcome, value = resolution
        head = (self.seq, kind, op, outcome, at, name, role, digest, input, value)
        _, _, attempt, started_at, ended_at, worker, epoch = _NOT_RUN if ended is None else ended
        # tuple.__new__ for speed: the constructor of the named tuple takes twice the time.
        entry = tuple.__new__(Entry, (*head, attempt, site, scheduled_at, started_at, ended_at, worker, epoch))
        self._entries.append(entry)
        return entry

    # --- read by the worker

    @property
    def has_entries(self) -> bool:
        """There are new entries of the history."""
        return bool(self._entries)

    def take_entries(self) -> tuple[Entry, ...]:
        """The new entries of the history since they were last taken."""
        entries = tuple(self._entries)
        self._entries.clear()
        return entries

    def take_new_activities(self) -> list[Issue]:
        """Activities to start once everything before them is durable."""
        starts, self.new_activities = self.new_activities, []
        return starts

    def take_store_calls(self) -> list[Issue]:
        """The new store calls, in the order they were issued."""
        store_calls, self.store_calls = self.store_calls, []
        return store_calls

    def take_effects(self) -> list[tuple[str, Effect]]:
        """The new effects with their operations, for the commit that has their entries."""
        effects, self.effects = self.effects, []
        return effects

    def take_withdrawn(self) -> list[str]:
        """The operations that the body has withdrawn."""
        withdrawn, self.withdrawn = self.withdrawn, []
        return withdrawn

    @property
    def body_outcome(self) -> BodyOutcome | None:
        """How the body ended, if it has. A result that could not be stored is a failure."""
        return self.run.body_outcome

    @property
    def may_time_out(self) -> bool:
        """The instance can still time out: its body has not ended, or has ended only to recur."""
        return self.run.body_outcome is None or isinstance(self.run.body_outcome, Recur)

    def reject_result(self, error: BaseException) -> None:
        """The body's result cannot be stored: the instance fails with this error instead."""
        self.run.body_outcome = Fail(error)

    @property
    def phase(self) -> Phase:
        """The phase that the instance is in."""
        outcome = self.run.body_outcome
        if outcome is None:
            return _BODY
        if self.finishing:
            return Phase.FINISHING
        if isinstance(outcome, Finish | Recur) or self.next_compensation() is None:
            return Phase.ENDED
        return Phase.COMPENSATING

    def next_compensation(self) -> PendingCompensation | None:
        """The compensation to run next: that of the operation that completed last."""
        stack = self._compensations  # in the order of completion, which is that of the history and of its replay
        while stack and stack[-1].op in self._compensated:
            stack.pop()
        return stack[-1] if stack else None

    def find_compensable(self, op: str) -> Issue | None:
        """An activity that was issued, has a compensation, and has no result in the history yet."""
        return self._compensable.get(op)

    @property
    def cancelled(self) -> bool:
        """The instance ends as cancelled."""
        return isinstance(self.run.body_outcome, Cancelled)

    @property
    def stopping(self) -> bool:
        """A cancellation or a timeout of the whole instance was fed."""
        return self.run.stopped

    def next_due(self) -> int | None:
        """When the next timer, or timeout of a wait, is due."""
        due = self.run.due
        return min(due.values()) if due else None

    def due_issues(self, now: int) -> list[Issue]:
        """The timers and waits that are due, in the order of their times."""
        run = self.run
        due = [(op, due) for op, due in run.due.items() if due <= now]
        due.sort(key=itemgetter(1))  # stable: those of the same time stay in the order they were issued
        return [run.pending[op].issue for op, _ in due]


def is_effect(entry: Entry) -> bool:
    """The entry records an effect, which was carried out by its commit."""
    return entry.kind in EFFECTS and entry.role is Role.OUT_OF_BAND


def _check_fits(entry: Entry, issue: Issue | None, run: Run) -> None:
    if issue is None:
        waits = ", ".join(run.pending) or "nothing"
        raise DeterminismViolationError(
            f"recorded: {_describe(entry)}; attempted: the code waits for {waits} instead. {CODE_CHANGE_ADVICE}"
        )
    if issue.kind is entry.kind is Kind.TIMER:
        _check_time(entry, issue)
    elif issue.kind is not entry.kind:
        raise _violation(entry, issue, "a different kind of operation", CODE_CHANGE_ADVICE)
    elif issue.digest != entry.digest and (found := run.find_difference(issue, entry)) is not None:
        raise _violation(
            entry,
            issue,
            f"other arguments: {found}" if found else "other arguments",
            f"{CODE_CHANGE_ADVICE} {NONDETERMINISM_ADVICE}",
        )


def _violation(entry: Entry, issue: Issue, what: str, advice: str) -> DeterminismViolationError:
    return DeterminismViolationError(
        f"recorded: {_describe(entry)}; attempted: {issue.kind.value} {issue.op} at {issue.site}, with {what}. {advice}"
    )


def _check_time(entry: Entry, issue: Issue) -> None:
    """Raise if a recorded timer has another duration in the code now. Earlier versions recorded no durations."""
    length = int.from_bytes(entry.digest, "big", signed=True)
    due = cast(int, issue.due)
    if entry.digest and entry.digest != issue.digest:
        was, now = f"a timer of {length / 1_000_000:g} s", f"one of {(due - issue.at) / 1_000_000:g} s"
    elif entry.at < due:
        was, now = "it fired", f"a timer that was not due for another {(due - entry.at) / 1_000_000:g} s"
    else:
        return
    raise DeterminismViolationError(
        f"recorded: {_describe(entry)}, {was}; attempted: {issue.op} at {issue.site}, {now}. {CODE_CHANGE_ADVICE}"
    )


def _describe(entry: Entry) -> str:
    return f"{entry.kind.value} {entry.op} (entry {entry.seq}, called at {entry.site or 'an unknown place'})"

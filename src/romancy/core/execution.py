"""The books of one instance: what is open, what was recorded, what must be undone.

The shell feeds what happened (`start`, `feed`, `settled`, `late`, `compensated`) and reads what to do next (`starts`,
`asks`, `deeds`, `withdrawn`, `due_issues`, `next_undo`). `take_entries` are the new lines of the history, to be committed
before anything is started, and together with the deeds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from operator import itemgetter
from typing import NamedTuple, cast

from romancy.core.commands import Cancelled, Command, Fail, Finish, Issue, Recur, Resolution, Verdict, Withdraw
from romancy.core.loop import ADVICE, UNSTEADY, Run
from romancy.errors import DeterminismViolationError
from romancy.model.history import ASKS, EFFECTS, Entry, Kind, Outcome, Role
from romancy.model.talk import Deed, Reply

_TALKING = ASKS | EFFECTS - {Kind.REGISTRATION}
_FROM_OUTSIDE = frozenset({Kind.CANCEL, Kind.TIMEOUT, Kind.RETRY})
# By names of their own: to look a member of an enum up takes as long as a call (before Python 3.12).
_ACTIVITY, _OK, _FED = Kind.ACTIVITY, Outcome.OK, Role.FED


class Phase(StrEnum):
    """How far an instance has come."""

    BODY = "body"
    """The workflow's code runs or waits."""
    SETTLING = "settling"
    """The body has ended; attempts that cannot be interrupted have not."""
    COMPENSATING = "compensating"
    """What was recorded is being undone."""
    ENDED = "ended"


_BODY = Phase.BODY


@dataclass(frozen=True, slots=True)
class Undo:
    """One step of the saga's way back."""

    op: str
    """The operation's own id: what it undoes with `compensate:` in front."""
    seq: int
    issue: Issue
    result: bytes | None


class Ended(NamedTuple):
    """An attempt's outcome with what operators want to know of it."""

    outcome: Outcome
    value: bytes | None
    attempt: int = 1
    started_at: int | None = None
    ended_at: int | None = None
    worker: str = ""
    epoch: int = 0


_NOT_RUN = Ended(Outcome.OK, None, attempt=0)


class Execution:
    """One generation of one instance, driven by what happens to it."""

    __slots__ = (
        "_asking", "_effect_seqs", "_entries", "_kept", "_stack", "_unasked", "_undoable", "_undone", "asks", "deeds",
        "lingering", "recalled", "run", "seq", "starts", "talked", "withdrawn",
    )  # fmt: skip

    def __init__(self, run: Run, history: Iterable[Entry] = (), *, length: int = 0) -> None:
        self.run = run
        self.seq = length
        self.starts: list[Issue] = []
        self.asks: list[Issue] = []
        self.deeds: list[tuple[str, Deed]] = []
        self.talked = False
        """The run has said or asked something: at its end there may be something to clear."""
        self.withdrawn: list[str] = []
        self.lingering: set[str] = set()
        """Withdrawn operations whose attempt is still running and must end before the instance may."""
        self.recalled: set[int] = set()
        """The entries whose results were kept from before a retry of the instance: nothing ran for them."""
        self._entries: list[Entry] = []
        self._asking: set[str] = set()
        self._unasked: set[str] = set()
        """Asks that the body withdrew on an answer: one of the same commit may answer them in vain."""
        self._kept: dict[str, Entry] = {entry.op: entry for entry in history if entry.role is Role.KEPT}
        self._undoable: dict[str, Issue] = {}
        self._stack: list[Undo] = []
        self._undone: set[str] = set()
        self._effect_seqs: dict[str, int] = {}

    # --- going on

    def start(self, at: int) -> None:
        """Begin the body."""
        self._follow(self.run.advance(Resolution(Kind.START, "", at)))
        self._unasked.clear()
        self._recall()

    def feed(self, resolution: Resolution, ended: Ended | None = None, *, name: str = "") -> None:
        """Something happened: record it and let the body go on."""
        self._feed(resolution, ended, name)
        self._recall()

    def _feed(self, resolution: Resolution, ended: Ended | None, name: str) -> None:
        run = self.run
        if run.verdict is not None and run.overrule(resolution):
            self._record(resolution, None, ended, _FED, name)
            return
        waiting = run.pending.get(resolution.op)
        issue = waiting.issue if waiting is not None else None
        entry = self._record(resolution, issue, ended, _FED, name)
        commands = run.advance(resolution)
        self._completed(entry, issue)
        self._follow(commands)
        self._unasked.clear()

    def settled(self, *replies: Reply) -> None:
        """The store has decided asks, all in one commit, and recorded its answers: let the body go on.

        Their places in the history are taken before the body moves: what it does now comes after all of them, as it will
        in a replay. An ask that the body withdraws because of an answer before it is not answered.
        """
        for reply in replies:
            self.seq += 1
            if reply.seq != self.seq:
                raise AssertionError(f"{reply.op} was recorded as entry {reply.seq}, where entry {self.seq} was to come")
        for reply in replies:
            self._answer(reply)
        self._unasked.clear()
        self._recall()

    def _answer(self, reply: Reply) -> None:
        waiting = self.run.pending.get(reply.op)
        if waiting is None and reply.op in self._unasked:
            return
        if waiting is None:
            raise AssertionError(f"{reply.op} was answered, but nobody had asked")
        self._asking.discard(reply.op)
        self._follow(self.run.advance(Resolution(waiting.issue.kind, reply.op, reply.at, reply.outcome, reply.value)))

    def late(self, issue: Issue, ended: Ended, at: int) -> None:
        """An attempt of an operation that the body had withdrawn has ended after all."""
        self.lingering.discard(issue.op)
        resolution = Resolution(issue.kind, issue.op, at, ended.outcome, ended.value)
        self._completed(self._record(resolution, issue, ended, Role.BESIDE, ""), issue)

    def compensated(self, undo: Undo, ended: Ended, at: int, *, name: str = "") -> None:
        """A step of the way back was taken, or given up."""
        self._undone.add(undo.op)
        begun = ended.started_at if ended.started_at is not None else at
        issue = undo.issue._replace(op=undo.op, kind=Kind.COMPENSATION, name=name or undo.issue.name, at=begun)
        self._record(Resolution(Kind.COMPENSATION, undo.op, at, ended.outcome, ended.value), issue, ended, Role.BESIDE, "")

    def replay(self, at: int, history: Iterable[Entry]) -> None:
        """Bring a new run to where the history ends."""
        run = self.run
        run.replaying = True
        history = tuple(history)
        self._effect_seqs = {entry.op: entry.seq for entry in history if is_effect(entry)}
        self.talked = any(entry.kind in _TALKING for entry in history)
        self._undone = {entry.op for entry in history if entry.kind is Kind.COMPENSATION and entry.role is not Role.UNDONE}
        self._follow(run.advance(Resolution(Kind.START, "", at)))
        self._unasked.clear()
        for entry in history:
            if entry.role is _FED:
                self._refeed(entry)
            elif entry.role is Role.BESIDE and entry.kind is Kind.ACTIVITY:
                self._completed(entry, self._undoable.get(entry.op))
            elif is_effect(entry) and run.owes_effect(entry.op):
                raise DeterminismViolationError(f"recorded: {_describe(entry)}; but the code does not do that. {ADVICE}")
        run.replaying = False
        self.starts = [issue for issue in self.starts if issue.op in run.pending]
        self.asks = [issue for issue in self.asks if issue.op in run.pending]
        self.withdrawn.clear()
        self._unasked.clear()
        self._recall()

    def _refeed(self, entry: Entry) -> None:
        if entry.op in self._unasked:  # answered in one commit with what made the body withdraw it
            return
        if self.run.overrule(Resolution.of(entry)):
            return
        if entry.kind is Kind.RETRY:
            if self.run.verdict is not None:
                return  # the code failed by itself and does so again, or it was mended and needs nothing more
            self.run.renew(entry.at, self._kept)
        waiting = self.run.pending.get(entry.op)
        issue = waiting.issue if waiting is not None else None
        if self.run.verdict is not None:
            raise DeterminismViolationError(f"recorded: {_describe(entry)}; but the code had ended by then")
        if entry.kind not in _FROM_OUTSIDE:
            _check_fits(entry, issue, self.run)
            self._asking.discard(entry.op)
        commands = self.run.advance(Resolution.of(entry))
        self._completed(entry, issue)
        self._follow(commands)
        if entry.kind not in ASKS:  # nothing is being asked while anything else is fed
            self._unasked.clear()

    def _follow(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Issue):
                self._issued(command)
            elif isinstance(command, Withdraw):
                self._withdraw(command.op)
            else:
                self._effected(command.issue, command.recorded)

    def _issued(self, issue: Issue) -> None:
        if issue.undo is not None:
            self._undoable[issue.op] = issue
        if issue.kind is _ACTIVITY:
            self.starts.append(issue)
        elif issue.kind in ASKS:
            self.talked = True
            self.asks.append(issue)
            self._asking.add(issue.op)

    def _withdraw(self, op: str) -> None:
        asked = op in self._asking
        if asked:
            self._asking.discard(op)
            self._unasked.add(op)
        if self.run.replaying:  # what is still wanted is seen when the replay ends; to look each time would be O(n²)
            return
        new = self.asks if asked else self.starts
        for index, issue in enumerate(new):
            if issue.op == op:  # asked for and withdrawn in one breath: nothing to stop
                del new[index]
                return
        self.withdrawn.append(op)

    def _effected(self, issue: Issue, recorded: bool) -> None:
        if issue.kind is not Kind.REGISTRATION:
            self.talked = True
        if recorded:
            seq = self._effect_seqs[issue.op]
        else:
            # Done before a retry of the instance: recorded again, so that this round is checked too, but not done.
            done = self._was_kept(issue)
            resolution = Resolution(issue.kind, issue.op, self.run.at)
            seq = self._record(resolution, issue, None, Role.BESIDE, "").seq
            if issue.detail is not None and done is None:
                self.deeds.append((issue.op, cast(Deed, issue.detail)))
        if issue.undo is not None:
            self._stack.append(Undo(f"compensate:{issue.op}", seq, issue, None))

    def _completed(self, entry: Entry, issue: Issue | None) -> None:
        if issue is None or issue.undo is None:
            return
        self._undoable.pop(issue.op, None)
        if entry.outcome is _OK and entry.kind is _ACTIVITY:
            self._stack.append(Undo(f"compensate:{issue.op}", entry.seq, issue, entry.value))

    def _recall(self) -> None:
        """Answer operations whose results were kept from before a retry of the instance."""
        while self._kept:
            timers = [one.issue for one in self.run.pending.values() if one.issue.kind is Kind.TIMER]
            issue = next((one for one in chain(self.starts, self.asks, timers) if one.op in self._kept), None)
            if issue is None:
                return
            entry = self._was_kept(issue)
            if entry is None:
                continue
            if issue.kind in ASKS:
                self.asks.remove(issue)
                self._asking.discard(issue.op)
            elif issue.kind is _ACTIVITY:
                self.starts.remove(issue)
            ended = Ended(
                entry.outcome, entry.value, entry.attempt, entry.started_at, entry.ended_at, entry.worker, entry.epoch
            )
            self.recalled.add(self.seq + 1)
            self._feed(Resolution(issue.kind, issue.op, self.run.at, entry.outcome, entry.value), ended, "")

    def _was_kept(self, issue: Issue) -> Entry | None:
        """What was kept for an operation, if it is asked for as it was then; it is asked for once."""
        entry = self._kept.pop(issue.op, None)
        if entry is None or entry.kind is not issue.kind:
            return None
        return entry if entry.digest == issue.digest or self.run.differs(issue, entry) is None else None

    def _record(self, resolution: Resolution, issue: Issue | None, ended: Ended | None, role: Role, name: str) -> Entry:
        self.seq += 1
        digest, input, site, scheduled_at = b"", None, "", None
        if issue is not None:
            name, digest, input, site, scheduled_at = issue.name, issue.digest, issue.input, issue.site, issue.at
        kind, op, at, outcome, value = resolution
        head = (self.seq, kind, op, outcome, at, name, role, digest, input, value)
        _, _, attempt, started_at, ended_at, worker, epoch = _NOT_RUN if ended is None else ended
        # By the constructor of tuples: a named one's own takes twice the time.
        entry = tuple.__new__(Entry, (*head, attempt, site, scheduled_at, started_at, ended_at, worker, epoch))
        self._entries.append(entry)
        return entry

    # --- what the shell reads

    @property
    def has_entries(self) -> bool:
        """There are new lines of the history."""
        return bool(self._entries)

    def take_entries(self) -> tuple[Entry, ...]:
        """The new lines of the history since they were last taken."""
        entries = tuple(self._entries)
        self._entries.clear()
        return entries

    def take_starts(self) -> list[Issue]:
        """Activities to start once everything before them is durable."""
        starts, self.starts = self.starts, []
        return starts

    def take_asks(self) -> list[Issue]:
        """What the store is to decide, in the order it was asked."""
        asks, self.asks = self.asks, []
        return asks

    def take_deeds(self) -> list[tuple[str, Deed]]:
        """What is to be done in the commit of the entries that record it, with its operations."""
        deeds, self.deeds = self.deeds, []
        return deeds

    def take_withdrawn(self) -> list[str]:
        """Operations the body no longer wants."""
        withdrawn, self.withdrawn = self.withdrawn, []
        return withdrawn

    @property
    def verdict(self) -> Verdict | None:
        """How the body ended, if it has. A result that could not be stored is a failure."""
        return self.run.verdict

    @property
    def undecided(self) -> bool:
        """The instance can still time out: its body has not ended, or only to begin anew."""
        return self.run.verdict is None or isinstance(self.run.verdict, Recur)

    def reject_result(self, error: BaseException) -> None:
        """The body's result cannot be stored: the instance fails with this error instead."""
        self.run.verdict = Fail(error)

    @property
    def phase(self) -> Phase:
        """How far the instance has come."""
        verdict = self.run.verdict
        if verdict is None:
            return _BODY
        if self.lingering:
            return Phase.SETTLING
        if isinstance(verdict, Finish | Recur) or self.next_undo() is None:
            return Phase.ENDED
        return Phase.COMPENSATING

    def next_undo(self) -> Undo | None:
        """What to undo next: the last completed first."""
        stack = self._stack  # in order of completion: entries are recorded in that order, and replayed in it
        while stack and stack[-1].op in self._undone:
            stack.pop()
        return stack[-1] if stack else None

    def undoable(self, op: str) -> Issue | None:
        """An activity that was asked for, has a compensation, and has not been recorded."""
        return self._undoable.get(op)

    @property
    def cancelled(self) -> bool:
        """The instance ends as cancelled."""
        return isinstance(self.run.verdict, Cancelled)

    @property
    def stopping(self) -> bool:
        """A cancellation or a timeout of the whole instance was fed."""
        return self.run.stopped

    def next_due(self) -> int | None:
        """When the next timer, or the end of a wait's patience, is due."""
        due = self.run.due
        return min(due.values()) if due else None

    def due_issues(self, now: int) -> list[Issue]:
        """The timers and waits whose time has come, in order of their time."""
        run = self.run
        due = [(op, due) for op, due in run.due.items() if due <= now]
        due.sort(key=itemgetter(1))  # stable: those of one time in the order they were asked for
        return [run.pending[op].issue for op, _ in due]


def is_effect(entry: Entry) -> bool:
    """The entry tells of something that was done by being committed."""
    return entry.kind in EFFECTS and entry.role is Role.BESIDE


def _check_fits(entry: Entry, issue: Issue | None, run: Run) -> None:
    if issue is None:
        waits = ", ".join(run.pending) or "nothing"
        raise DeterminismViolationError(
            f"recorded: {_describe(entry)}; attempted: the code waits for {waits} instead. {ADVICE}"
        )
    if issue.kind is entry.kind is Kind.TIMER:
        _check_time(entry, issue)
    elif issue.kind is not entry.kind:
        raise _violation(entry, issue, "a different kind of operation", ADVICE)
    elif issue.digest != entry.digest and (found := run.differs(issue, entry)) is not None:
        raise _violation(entry, issue, f"other arguments: {found}" if found else "other arguments", f"{ADVICE} {UNSTEADY}")


def _violation(entry: Entry, issue: Issue, what: str, advice: str) -> DeterminismViolationError:
    return DeterminismViolationError(
        f"recorded: {_describe(entry)}; attempted: {issue.kind.value} {issue.op} at {issue.site}, with {what}. {advice}"
    )


def _check_time(entry: Entry, issue: Issue) -> None:
    """A timer that has gone off was as long then as it is now. What earlier versions recorded says nothing of lengths."""
    length = int.from_bytes(entry.digest, "big", signed=True)
    due = cast(int, issue.due)
    if entry.digest and entry.digest != issue.digest:
        was, now = f"a timer of {length / 1_000_000:g} s", f"one of {(due - issue.at) / 1_000_000:g} s"
    elif entry.at < due:
        was, now = "it went off", f"a timer that was not due for another {(due - entry.at) / 1_000_000:g} s"
    else:
        return
    raise DeterminismViolationError(
        f"recorded: {_describe(entry)}, {was}; attempted: {issue.op} at {issue.site}, {now}. {ADVICE}"
    )


def _describe(entry: Entry) -> str:
    return f"{entry.kind.value} {entry.op} (entry {entry.seq}, asked for at {entry.site or 'an unknown place'})"

"""Runs a program live in a random order, then replays every prefix of what was recorded and compares."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import sys
import warnings
from collections.abc import Awaitable, Collection, Generator
from dataclasses import dataclass, field
from typing import Any

from tests.property.asyncio_programs import Failure, Node, describe

from romancy.core.commands import Cancelled, Command, EffectCommand, Fail, Finish, Issue, Recur, Resolution
from romancy.core.execution import AttemptResult, Execution
from romancy.core.loop import Run
from romancy.model.history import Entry, Kind, Outcome, Role

BEGIN = 1_700_000_000_000_000
LONGEST = 60
STATE = ("pending", "tasks", "trace", "undo", "verdict", "phase")


class Divergence(AssertionError):
    """A replay did not do what was recorded."""


class Recorder(Run):
    """A run that remembers what each advance asked for."""

    steps: list[list[Command]]

    def advance(self, resolution: Resolution) -> list[Command]:
        commands = super().advance(resolution)
        self.steps.append(list(commands))
        return commands


class InRun:
    """The world of a program on a run."""

    run: Run

    def __init__(self) -> None:
        self.trace: list[object] = []

    def operation(self, name: str, *, undo: bool = False) -> asyncio.Future[Any]:
        return self.run.issue_operation(
            Kind.ACTIVITY, name, decode, digest=digest_of(name), compensation=f"undo {name}" if undo else None
        )

    def effect(self, name: str) -> Awaitable[None]:
        return self.run.emit_effect(Kind.REGISTRATION, name, digest=digest_of(name), compensation=f"undo {name}")

    def several(self, futures: list[Any]) -> Collection[Any]:
        return set(futures)

    def note(self, *seen: object) -> None:
        self.trace.append([describe(one) for one in seen])


def digest_of(name: str) -> bytes:
    """Stands for the digest of an operation's arguments."""
    return name.encode()


def decode(resolution: Resolution) -> str:
    """The result of an activity, or its failure."""
    text = (resolution.value or b"").decode()
    if resolution.outcome is Outcome.ERROR:
        raise Failure(text)
    return text


@dataclass
class Played:
    """A program on a run, with its books."""

    program: Node
    execution: Execution
    run: Recorder
    world: InRun
    entries: list[Entry] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    issues: dict[str, Issue] = field(default_factory=dict)
    withdrawn: list[str] = field(default_factory=list)

    @property
    def now(self) -> int:
        """The time of the last thing that happened."""
        return self.entries[-1].at if self.entries else BEGIN

    def commit(self) -> None:
        """What a shell does after each step: take everything, write it down."""
        self.entries += self.execution.take_entries()
        self.issues |= {issue.op: issue for issue in self.execution.take_new_activities()}
        self.withdrawn += [op for op in self.execution.take_withdrawn() if op in self.issues]
        self.commits.append(Commit(len(self.entries), len(self.run.steps), state(self)))


@dataclass(frozen=True)
class Commit:
    """How far everything was when a step was durable."""

    entries: int
    steps: int
    state: list[object]


def state(played: Played) -> list[object]:
    """What must be the same after replay: what is open, what was seen, what is to be undone, how it ended."""
    run = played.run
    return [
        list(run.pending),
        [task.get_name() for task in run.live_tasks()],
        list(played.world.trace),
        undo_order(played.execution),
        verdict_of(run),
        str(played.execution.phase),
    ]


def undo_order(execution: Execution) -> list[tuple[str, int]]:
    """Every compensation still to be run, the next one first."""
    return [(undo.op, undo.seq) for undo in reversed(execution._compensations) if undo.op not in execution._compensated]


def verdict_of(run: Run) -> object:
    """How a body ended, so that it can be compared."""
    match run.body_outcome:
        case None:
            return None
        case Finish(value):
            return ["finish", describe(value)]
        case Fail(error):
            return ["fail", describe(error)]
        case Cancelled(reason):
            return ["cancelled", reason]
        case Recur(given):
            return ["recur", given.decode()]


def prepare(program: Node, history: list[Entry], run_class: type[Recorder], world_class: type[InRun] = InRun) -> Played:
    """A new run of a program, not started."""
    world = world_class()
    known = {entry.op: entry.digest for entry in history if entry.kind is Kind.REGISTRATION}
    world.run = run = run_class(lambda: program.run(world), "a program", known)
    run.steps = []
    return Played(program, Execution(run, history, length=len(history)), run, world, list(history))


# --- live


def live(program: Node, chance: random.Random, run_class: type[Recorder] = Recorder) -> Played:
    """Run a program from its start in a random order."""
    played = prepare(program, [], run_class)
    played.execution.start(BEGIN)
    played.commit()
    go_on(played, chance)
    return played


def go_on(played: Played, chance: random.Random) -> None:
    """Let things happen until the instance has ended, or for long enough."""
    execution, run = played.execution, played.run
    while len(played.commits) < LONGEST:
        now = played.now + chance.choice((0, 1, 500_000, 2_000_000))
        if played.withdrawn and chance.random() < 0.2:
            issue = played.issues[played.withdrawn.pop(chance.randrange(len(played.withdrawn)))]
            execution.record_late_result(issue, ended(chance, len(played.entries)), now)
        elif run.body_outcome is None:
            happen(played, chance, now)
        elif not isinstance(run.body_outcome, Finish) and (undo := execution.next_compensation()) is not None:
            execution.record_compensation(undo, ended(chance, len(played.entries)), now)
        else:
            return
        played.commit()


def happen(played: Played, chance: random.Random, now: int) -> None:
    """One thing the body sees: an operation ends, a timer is due, the whole is cancelled or takes too long."""
    execution, run = played.execution, played.run
    if not run.stopped and chance.random() < 0.04:
        kind = chance.choice((Kind.CANCEL, Kind.CANCEL, Kind.TIMEOUT))
        execution.feed(Resolution(kind, "", now, value=b"enough"), name=kind.value)
        return
    issue = run.pending[chance.choice(list(run.pending))].issue
    if issue.due is not None:
        execution.feed(Resolution(issue.kind, issue.op, max(now, issue.due)))
    else:
        end = ended(chance, len(played.entries))
        execution.feed(Resolution(issue.kind, issue.op, now, end.outcome, end.value), end)


def ended(chance: random.Random, number: int) -> AttemptResult:
    """The end of an attempt: mostly good."""
    outcome = Outcome.OK if chance.random() < 0.85 else Outcome.ERROR
    return AttemptResult(outcome, f"{outcome.value} {number}".encode())


# --- replay


def replayed(program: Node, history: list[Entry]) -> Played:
    """Bring a new run of a program to where its history ends."""
    played = prepare(program, history, Recorder)
    played.execution.replay(BEGIN, history)
    return played


def compare(original: Played, commit: Commit, chance: random.Random) -> None:
    """Replay the history up to a commit in a fresh run, and see that nothing differs."""
    with evicting() as runs:
        move_heap(chance)
        history = original.entries[: commit.entries]
        copy = replayed(original.program, history)
        runs.append(copy)
        for number, (was, now) in enumerate(zip(original.run.steps[: commit.steps], copy.run.steps, strict=False)):
            same(f"what step {number} asked for", comparable(was), comparable(now))
        same("steps", commit.steps, len(copy.run.steps))
        for what, before, after in zip(STATE, commit.state, state(copy), strict=True):
            same(what, before, after)
        check_books(copy, history)


def check_books(copy: Played, history: list[Entry]) -> None:
    """After a replay everything open is to be started, and nothing that was recorded is recorded again."""
    execution, run = copy.execution, copy.run
    resolved = {entry.op for entry in history if entry.role is Role.FED}
    open_now = [op for op, waiting in run.pending.items() if waiting.issue.kind is Kind.ACTIVITY]
    same("starts", open_now, [issue.op for issue in execution.new_activities])
    same("started again", set(), resolved & set(open_now))
    same("new entries", (), execution.take_entries())
    same("withdrawn", [], execution.withdrawn)
    same("effects", [], [e.issue.op for step in run.steps for e in step if isinstance(e, EffectCommand) and not e.recorded])


def comparable(commands: list[Command]) -> list[object]:
    """Commands without what may differ: whether an effect was known already."""
    return [command.issue if isinstance(command, EffectCommand) else command for command in commands]


def same(what: str, was: object, now: object) -> None:
    """Raise `Divergence` unless both are equal."""
    if was != now:
        raise Divergence(f"{what}: was {was}, is now {now}")


def check(program: Node, seed: int, live_class: type[Recorder] = Recorder) -> int:
    """The whole property for one program and one order of events; says how many prefixes were replayed."""
    chance = random.Random(seed)
    with evicting() as runs:
        original = live(program, chance, live_class)
        runs.append(original)
        for commit in original.commits:
            compare(original, commit, chance)
        crashed = chance.choice(original.commits)
        other = replayed(program, original.entries[: crashed.entries])
        runs.append(other)
        other.commit()
        other.issues = original.issues | other.issues
        other.commits.clear()
        go_on(other, chance)
        if other.commits:
            compare(other, other.commits[-1], chance)
        return len(original.commits) + 1


# --- the heap and the end


_junk: list[object] = []


def move_heap(chance: random.Random) -> None:
    """Give the next coroutines, tasks and futures other addresses than the last ones had."""

    async def coroutine() -> None: ...

    made = [coroutine() for _ in range(chance.randrange(30))]
    for one in made:
        one.close()
    _junk.extend(made)
    _junk.extend(asyncio.Future(loop=_elsewhere) for _ in range(chance.randrange(20)))
    chance.shuffle(_junk)
    del _junk[chance.randrange(len(_junk) + 1) :]
    if chance.random() < 0.01:
        gc.collect()


_elsewhere = Run(lambda: asyncio.sleep(0), "elsewhere")


@contextlib.contextmanager
def evicting() -> Generator[list[Played]]:
    """Evict every run that was made inside, and see that none of them does or says anything."""
    runs: list[Played] = []
    noise: list[str] = []
    hook = sys.unraisablehook
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        sys.unraisablehook = lambda unraisable: noise.append(f"{unraisable.exc_value!r} in {unraisable.object!r}")
        try:
            yield runs
        finally:
            complaints = [complaint for played in runs for complaint in evict(played)]
            sys.unraisablehook = hook
    same("noise", [], [*noise, *complaints, *(str(warning.message) for warning in warned)])


def evict(played: Played) -> list[str]:
    """Evict one run; says what was wrong with that."""
    run = played.run
    before = len(run._commands)
    coroutines: list[Any] = [task.get_coro() for task in run.live_tasks()]
    seen = state(played)[0], verdict_of(run)
    complaints = run.evict()
    alive = [coroutine for coroutine in coroutines if getattr(coroutine, "cr_frame", None) is not None]
    if alive or run.live_tasks() or run.pending:
        complaints.append(f"still alive: {alive}, {run.live_tasks()}, {run.pending}")
    if len(run._commands) != before or verdict_of(run) != seen[1]:
        complaints.append(f"asked for while being evicted: {run._commands[before:]}")
    return complaints

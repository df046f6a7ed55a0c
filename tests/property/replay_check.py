"""Check of replay: run a program live in a random order, then replay every prefix of its history and compare."""

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
MAX_COMMITS = 60
STATE = ("pending", "tasks", "trace", "compensations", "verdict", "phase")


class Divergence(AssertionError):
    """A replay did something other than what was recorded."""


class Recorder(Run):
    """A run that records the commands of each advance."""

    steps: list[list[Command]]

    def advance(self, resolution: Resolution) -> list[Command]:
        commands = super().advance(resolution)
        self.steps.append(list(commands))
        return commands


class RunEnvironment:
    """The environment of a program on a run."""

    run: Run

    def __init__(self) -> None:
        self.trace: list[object] = []

    def operation(self, name: str, *, compensated: bool = False) -> asyncio.Future[Any]:
        return self.run.issue_operation(
            Kind.ACTIVITY, name, decode, digest=digest_of(name), compensation=f"undo {name}" if compensated else None
        )

    def effect(self, name: str) -> Awaitable[None]:
        return self.run.emit_effect(Kind.REGISTRATION, name, digest=digest_of(name), compensation=f"undo {name}")

    def collect(self, futures: list[Any]) -> Collection[Any]:
        return set(futures)

    def note(self, *seen: object) -> None:
        self.trace.append([describe(one) for one in seen])


def digest_of(name: str) -> bytes:
    """Stands for the digest of an operation's arguments."""
    return name.encode()


def decode(resolution: Resolution) -> str:
    """The result of an activity; raises its failure."""
    text = (resolution.value or b"").decode()
    if resolution.outcome is Outcome.ERROR:
        raise Failure(text)
    return text


@dataclass
class ProgramRun:
    """A program on a run, with everything it has recorded."""

    program: Node
    execution: Execution
    run: Recorder
    environment: RunEnvironment
    entries: list[Entry] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    issues: dict[str, Issue] = field(default_factory=dict)
    withdrawn: list[str] = field(default_factory=list)

    @property
    def now(self) -> int:
        """The time of the last entry."""
        return self.entries[-1].at if self.entries else BEGIN

    def commit(self) -> None:
        """Take everything that the execution has produced, as a runner does after each step."""
        self.entries += self.execution.take_entries()
        self.issues |= {issue.op: issue for issue in self.execution.take_new_activities()}
        self.withdrawn += [op for op in self.execution.take_withdrawn() if op in self.issues]
        self.commits.append(Commit(len(self.entries), len(self.run.steps), state(self)))


@dataclass(frozen=True)
class Commit:
    """The state at one commit."""

    entries: int
    steps: int
    state: list[object]


def state(program_run: ProgramRun) -> list[object]:
    """Everything that must be the same after a replay."""
    run = program_run.run
    return [
        list(run.pending),
        [task.get_name() for task in run.live_tasks()],
        list(program_run.environment.trace),
        pending_compensations(program_run.execution),
        verdict_of(run),
        str(program_run.execution.phase),
    ]


def pending_compensations(execution: Execution) -> list[tuple[str, int]]:
    """The compensations still to be run, the next one first."""
    return [
        (compensation.op, compensation.seq)
        for compensation in reversed(execution._compensations)
        if compensation.op not in execution._compensated
    ]


def verdict_of(run: Run) -> object:
    """A comparable form of how the body ended."""
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


def prepare(
    program: Node, history: list[Entry], run_class: type[Recorder], environment_class: type[RunEnvironment] = RunEnvironment
) -> ProgramRun:
    """A new run of a program, not started."""
    environment = environment_class()
    known = {entry.op: entry.digest for entry in history if entry.kind is Kind.REGISTRATION}
    environment.run = run = run_class(lambda: program.run(environment), "a program", known)
    run.steps = []
    return ProgramRun(program, Execution(run, history, length=len(history)), run, environment, list(history))


# --- live


def live(program: Node, rng: random.Random, run_class: type[Recorder] = Recorder) -> ProgramRun:
    """Run a program from its start, with resolutions in a random order."""
    program_run = prepare(program, [], run_class)
    program_run.execution.start(BEGIN)
    program_run.commit()
    run_on(program_run, rng)
    return program_run


def run_on(program_run: ProgramRun, rng: random.Random) -> None:
    """Feed resolutions until the instance has ended or has `MAX_COMMITS` commits."""
    execution, run = program_run.execution, program_run.run
    while len(program_run.commits) < MAX_COMMITS:
        now = program_run.now + rng.choice((0, 1, 500_000, 2_000_000))
        if program_run.withdrawn and rng.random() < 0.2:
            issue = program_run.issues[program_run.withdrawn.pop(rng.randrange(len(program_run.withdrawn)))]
            execution.record_late_result(issue, ended(rng, len(program_run.entries)), now)
        elif run.body_outcome is None:
            resolve_one(program_run, rng, now)
        elif not isinstance(run.body_outcome, Finish) and (compensation := execution.next_compensation()) is not None:
            execution.record_compensation(compensation, ended(rng, len(program_run.entries)), now)
        else:
            return
        program_run.commit()


def resolve_one(program_run: ProgramRun, rng: random.Random, now: int) -> None:
    """Feed one resolution: an operation ends, a timer fires, or the run is cancelled or times out."""
    execution, run = program_run.execution, program_run.run
    if not run.stopped and rng.random() < 0.04:
        kind = rng.choice((Kind.CANCEL, Kind.CANCEL, Kind.TIMEOUT))
        execution.feed(Resolution(kind, "", now, value=b"enough"), name=kind.value)
        return
    issue = run.pending[rng.choice(list(run.pending))].issue
    if issue.due is not None:
        execution.feed(Resolution(issue.kind, issue.op, max(now, issue.due)))
    else:
        end = ended(rng, len(program_run.entries))
        execution.feed(Resolution(issue.kind, issue.op, now, end.outcome, end.value), end)


def ended(rng: random.Random, number: int) -> AttemptResult:
    """The end of an attempt; usually a success."""
    outcome = Outcome.OK if rng.random() < 0.85 else Outcome.ERROR
    return AttemptResult(outcome, f"{outcome.value} {number}".encode())


# --- replay


def replayed(program: Node, history: list[Entry]) -> ProgramRun:
    """A new run of a program, replayed to the end of a history."""
    program_run = prepare(program, history, Recorder)
    program_run.execution.replay(BEGIN, history)
    return program_run


def compare(original: ProgramRun, commit: Commit, rng: random.Random) -> None:
    """Replay the history up to a commit in a new run, and compare everything."""
    with evicting() as runs:
        move_heap(rng)
        history = original.entries[: commit.entries]
        copy = replayed(original.program, history)
        runs.append(copy)
        for number, (was, now) in enumerate(zip(original.run.steps[: commit.steps], copy.run.steps, strict=False)):
            same(f"what step {number} asked for", comparable(was), comparable(now))
        same("steps", commit.steps, len(copy.run.steps))
        for what, before, after in zip(STATE, commit.state, state(copy), strict=True):
            same(what, before, after)
        check_execution(copy, history)


def check_execution(copy: ProgramRun, history: list[Entry]) -> None:
    """After a replay, all pending activities are to be started, and nothing recorded is recorded again."""
    execution, run = copy.execution, copy.run
    resolved = {entry.op for entry in history if entry.role is Role.FED}
    open_now = [op for op, waiting in run.pending.items() if waiting.issue.kind is Kind.ACTIVITY]
    same("starts", open_now, [issue.op for issue in execution.new_activities])
    same("started again", set(), resolved & set(open_now))
    same("new entries", (), execution.take_entries())
    same("withdrawn", [], execution.withdrawn)
    same("effects", [], [e.issue.op for step in run.steps for e in step if isinstance(e, EffectCommand) and not e.recorded])


def comparable(commands: list[Command]) -> list[object]:
    """Commands without the flag that may differ: whether an effect was recorded before."""
    return [command.issue if isinstance(command, EffectCommand) else command for command in commands]


def same(what: str, was: object, now: object) -> None:
    """Raise `Divergence` unless both values are equal."""
    if was != now:
        raise Divergence(f"{what}: was {was}, is now {now}")


def check(program: Node, seed: int, live_class: type[Recorder] = Recorder) -> int:
    """Check the whole property for one program and one order of resolutions; returns how many prefixes were replayed."""
    rng = random.Random(seed)
    with evicting() as runs:
        original = live(program, rng, live_class)
        runs.append(original)
        for commit in original.commits:
            compare(original, commit, rng)
        crashed = rng.choice(original.commits)
        other = replayed(program, original.entries[: crashed.entries])
        runs.append(other)
        other.commit()
        other.issues = original.issues | other.issues
        other.commits.clear()
        run_on(other, rng)
        if other.commits:
            compare(other, other.commits[-1], rng)
        return len(original.commits) + 1


# --- addresses and eviction


_junk: list[object] = []


def move_heap(rng: random.Random) -> None:
    """Move the addresses of the next coroutines, tasks and futures."""

    async def coroutine() -> None: ...

    made = [coroutine() for _ in range(rng.randrange(30))]
    for one in made:
        one.close()
    _junk.extend(made)
    _junk.extend(asyncio.Future(loop=_other_run) for _ in range(rng.randrange(20)))
    rng.shuffle(_junk)
    del _junk[rng.randrange(len(_junk) + 1) :]
    if rng.random() < 0.01:
        gc.collect()


_other_run = Run(lambda: asyncio.sleep(0), "elsewhere")


@contextlib.contextmanager
def evicting() -> Generator[list[ProgramRun]]:
    """Evict every run that was created in this context, and check that eviction has no effects and no output."""
    runs: list[ProgramRun] = []
    output: list[str] = []
    hook = sys.unraisablehook
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        sys.unraisablehook = lambda unraisable: output.append(f"{unraisable.exc_value!r} in {unraisable.object!r}")
        try:
            yield runs
        finally:
            problems = [problem for program_run in runs for problem in evict(program_run)]
            sys.unraisablehook = hook
    same("noise", [], [*output, *problems, *(str(warning.message) for warning in warned)])


def evict(program_run: ProgramRun) -> list[str]:
    """Evict one run; returns the problems."""
    run = program_run.run
    before = len(run._commands)
    coroutines: list[Any] = [task.get_coro() for task in run.live_tasks()]
    seen = state(program_run)[0], verdict_of(run)
    problems = run.evict()
    alive = [coroutine for coroutine in coroutines if getattr(coroutine, "cr_frame", None) is not None]
    if alive or run.live_tasks() or run.pending:
        problems.append(f"still alive: {alive}, {run.live_tasks()}, {run.pending}")
    if len(run._commands) != before or verdict_of(run) != seen[1]:
        problems.append(f"asked for while being evicted: {run._commands[before:]}")
    return problems

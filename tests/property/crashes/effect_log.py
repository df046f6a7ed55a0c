"""What the activities of one instance did, when each may finish, and what was wrong with it.

A world is the outside of one instance. It keeps a ledger of effects, and looks into the database with a connection of its
own whenever an activity begins: everything the activity follows from must be there.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from romancy import ActivityContext
from romancy.core.commands import Finish
from romancy.model.history import Entry, Kind, Outcome, Role
from romancy.model.instance import LoadedInstance
from romancy.serde.failure import describe_failure
from romancy.store.port import Store
from romancy.testing import RecordedHistory, Replayed, replay_history

if TYPE_CHECKING:
    from romancy.authoring.workflow import Workflow

_worlds: dict[str, World] = {}


def world_of(instance_id: str) -> World:
    """The outside of an instance."""
    return _worlds[instance_id]


@dataclass(frozen=True)
class Effect:
    """One attempt that began."""

    op: str
    attempt: int
    number: int
    key: str
    worker: str
    finished: list[bool]


class World:
    """The outside of one instance."""

    def __init__(self, instance_id: str, store: Store, workflow: Workflow[..., Any], *, gated: bool) -> None:
        self.instance_id = instance_id
        self.effects: list[Effect] = []
        self.faults: list[str] = []
        self.waiting: list[asyncio.Future[None]] = []
        """Attempts that have begun and wait for leave to finish."""
        self.arrived = asyncio.Event()
        self._store = store
        self._workflow = workflow
        self._gated = gated
        _worlds[instance_id] = self

    def close(self) -> None:
        """Nobody acts here any more."""
        _worlds.pop(self.instance_id, None)

    # --- for activities

    async def begin(self, ctx: ActivityContext, number: int, *, undoing: bool = False) -> None:
        """An attempt begins; returns when it may finish."""
        effect = Effect(ctx.activity_id, ctx.attempt, number, ctx.idempotency_key, ctx.worker_id, [])
        self.effects.append(effect)
        loaded = await self._load()
        if loaded.row.owner == ctx.worker_id:  # what a zombie begins follows from what was durable when it was alive
            self._check_beginning(effect, loaded, undoing)
        if self._gated:
            leave: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.waiting.append(leave)
            self.arrived.set()
            try:
                await leave
            finally:
                if leave in self.waiting:
                    self.waiting.remove(leave)

    def finish(self, ctx: ActivityContext, number: int) -> None:
        """An attempt has had its effect."""
        for effect in reversed(self.effects):
            if (effect.op, effect.attempt, effect.worker) == (ctx.activity_id, ctx.attempt, ctx.worker_id):
                effect.finished.append(True)
                return
        self.fault(f"{ctx.activity_id} finished without having begun")

    # --- what must hold

    def fault(self, what: str) -> None:
        """Something is wrong."""
        self.faults.append(what)

    def _check_beginning(self, effect: Effect, loaded: LoadedInstance, undoing: bool) -> None:
        name = f"attempt {effect.attempt} of {effect.op}"
        if any(entry.op == effect.op and entry.role is not Role.DISCARDED for entry in loaded.history):
            self.fault(f"{name} began although its end is recorded")
        if any(row.op == effect.op and row.attempt == effect.attempt and not row.open for row in loaded.attempts):
            self.fault(f"{name} began although it is recorded that it failed")
        if effect.attempt > 1 and not any(
            row.op == effect.op and row.attempt == effect.attempt - 1 and not row.open for row in loaded.attempts
        ):
            self.fault(f"{name} began although it is not recorded that the one before it failed")
        replayed = self._replay(loaded)
        if undoing:
            if replayed.verdict is None or isinstance(replayed.verdict, Finish):
                self.fault(f"{name} began although what is durable has not failed")
            if to_undo(loaded.history)[:1] != [effect.op]:
                self.fault(f"{name} began out of turn: to undo are {to_undo(loaded.history)}")
        elif effect.op not in replayed.pending:
            self.fault(f"{name} began before what it follows from was durable")

    async def check_end(self) -> Ended:
        """The instance has ended: what is recorded must fit together, and fit the effects."""
        loaded = await self._load()
        history, row = loaded.history, loaded.row
        recorded = Counter(entry.op for entry in history)
        for op, times in recorded.items():
            if times > 1:
                self.fault(f"{op} is recorded {times} times")
        if [entry.seq for entry in history] != list(range(1, len(history) + 1)) or row.length != len(history):
            self.fault(f"the history has gaps: {[entry.seq for entry in history]}, length {row.length}")
        self._check_effects(history)
        self._check_compensation(history, failed=row.status.value in ("failed", "cancelled"))
        if row.owner is not None or row.wake_at is not None or loaded.waits or loaded.inbox:
            self.fault(f"{row.status} and still owned or waited for: {loaded.row}, {loaded.waits}, {loaded.inbox}")
        if any(attempt.open for attempt in loaded.attempts):
            self.fault("ended with an open attempt")
        stored = await self._store.get(self.instance_id)
        assert stored is not None
        self._check_replay(self._replay(loaded), stored.output)
        return Ended(row.status.value, stored.output, _text(stored.error), frozenset(recorded))

    def _check_effects(self, history: tuple[Entry, ...]) -> None:
        keys: dict[str, set[str]] = {}
        for effect in self.effects:
            keys.setdefault(effect.op, set()).add(effect.key)
        for op, known in keys.items():
            if len(known) > 1:
                self.fault(f"{op} ran with more than one idempotency key: {sorted(known)}")
        if len(set.union(set(), *keys.values())) < len(keys):
            self.fault(f"two operations share an idempotency key: {keys}")
        finished = {(effect.op, effect.attempt) for effect in self.effects if effect.finished}
        for entry in history:
            ran = entry.kind in (Kind.ACTIVITY, Kind.COMPENSATION) and entry.outcome is Outcome.OK
            if ran and (entry.op, entry.attempt) not in finished:
                self.fault(f"{entry.op} is recorded as done and was not")

    def _check_compensation(self, history: tuple[Entry, ...], *, failed: bool) -> None:
        done = [entry.op for entry in history if entry.kind is Kind.COMPENSATION]
        left = to_undo(history)
        if failed and left:
            self.fault(f"never undone: {left}")
        if not failed and done:
            self.fault(f"undone although nothing failed: {done}")
        if failed and done != list(reversed(_completed(history))):
            self.fault(f"undone in the order {done}, completed in the order {_completed(history)}")

    def _check_replay(self, replayed: Replayed, output: bytes | None) -> None:
        if replayed.verdict is None:
            self.fault("what is recorded, replayed, has not ended")
        elif isinstance(replayed.verdict, Finish):
            again = self._workflow.result.encode(replayed.verdict.value)
            if again != output:
                self.fault(f"the result is {output!r}; replayed, {again!r}")
        elif output is not None:
            self.fault(f"the result is {output!r}; replayed, {replayed.verdict}")

    async def _load(self) -> LoadedInstance:
        loaded = await self._store.load(self.instance_id)
        assert loaded is not None
        return loaded

    def _replay(self, loaded: LoadedInstance) -> Replayed:
        row = loaded.row
        history = RecordedHistory(
            row.workflow, row.version, row.instance_id, row.generation, row.created_at, loaded.input, loaded.history
        )
        return replay_history(self._workflow, history)


@dataclass(frozen=True)
class Ended:
    """How an instance ended."""

    status: str
    output: bytes | None
    error: str
    recorded: frozenset[str]


def to_undo(history: tuple[Entry, ...]) -> list[str]:
    """The compensations that are still to be run, in their order."""
    undone = {entry.op for entry in history if entry.kind is Kind.COMPENSATION}
    return [op for op in reversed(_completed(history)) if op not in undone]


def _completed(history: tuple[Entry, ...]) -> list[str]:
    """What can be undone, in order of completion."""
    return [f"compensate:{entry.op}" for entry in history if _is_undoable(entry)]


def _is_undoable(entry: Entry) -> bool:
    if entry.kind is Kind.ACTIVITY:
        return entry.name == "undoable" and entry.outcome is Outcome.OK
    return entry.kind is Kind.REGISTRATION


def _text(error: bytes | None) -> str:
    if error is None:
        return ""
    info = describe_failure(error)
    return f"{info.type}: {info.message}"

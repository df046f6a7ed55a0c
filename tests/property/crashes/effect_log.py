"""Log of what the activities of one instance did, with checks.

Whenever an activity begins, the log reads the database over its own connection: everything that led to the activity must be
stored.
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

_logs: dict[str, EffectLog] = {}


def effect_log_of(instance_id: str) -> EffectLog:
    """The log of an instance."""
    return _logs[instance_id]


@dataclass(frozen=True)
class Effect:
    """One attempt that began."""

    op: str
    attempt: int
    number: int
    key: str
    worker: str
    finished: list[bool]


class EffectLog:
    """The effects of one instance's activities, and the faults found in them."""

    def __init__(self, instance_id: str, store: Store, workflow: Workflow[..., Any], *, gated: bool) -> None:
        self.instance_id = instance_id
        self.effects: list[Effect] = []
        self.faults: list[str] = []
        self.waiting: list[asyncio.Future[None]] = []
        """Attempts that have begun and wait to be released."""
        self.arrived = asyncio.Event()
        self._store = store
        self._workflow = workflow
        self._gated = gated
        _logs[instance_id] = self

    def close(self) -> None:
        """Remove the log."""
        _logs.pop(self.instance_id, None)

    # --- called by activities

    async def begin(self, ctx: ActivityContext, number: int, *, compensating: bool = False) -> None:
        """Record that an attempt begins; return when it may finish."""
        effect = Effect(ctx.activity_id, ctx.attempt, number, ctx.idempotency_key, ctx.worker_id, [])
        self.effects.append(effect)
        loaded = await self._load()
        if loaded.row.owner == ctx.worker_id:  # an attempt of a worker that was declared dead follows from older rows
            self._check_beginning(effect, loaded, compensating)
        if self._gated:
            released: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.waiting.append(released)
            self.arrived.set()
            try:
                await released
            finally:
                if released in self.waiting:
                    self.waiting.remove(released)

    def finish(self, ctx: ActivityContext, number: int) -> None:
        """Record that an attempt has had its effect."""
        for effect in reversed(self.effects):
            if (effect.op, effect.attempt, effect.worker) == (ctx.activity_id, ctx.attempt, ctx.worker_id):
                effect.finished.append(True)
                return
        self.fault(f"{ctx.activity_id} finished without having begun")

    # --- checks

    def fault(self, what: str) -> None:
        """Record a violation."""
        self.faults.append(what)

    def _check_beginning(self, effect: Effect, loaded: LoadedInstance, compensating: bool) -> None:
        name = f"attempt {effect.attempt} of {effect.op}"
        if any(entry.op == effect.op and entry.role is not Role.DISCARDED for entry in loaded.history):
            self.fault(f"{name} began although its end is recorded")
        if any(row.op == effect.op and row.attempt == effect.attempt and not row.open for row in loaded.attempts):
            self.fault(f"{name} began although its failure is recorded")
        if effect.attempt > 1 and not any(
            row.op == effect.op and row.attempt == effect.attempt - 1 and not row.open for row in loaded.attempts
        ):
            self.fault(f"{name} began although the failure of the attempt before it is not recorded")
        replayed = self._replay(loaded)
        if compensating:
            if replayed.verdict is None or isinstance(replayed.verdict, Finish):
                self.fault(f"{name} began although the recorded workflow has not failed")
            if pending_compensations(loaded.history)[:1] != [effect.op]:
                self.fault(f"{name} began out of order: pending compensations are {pending_compensations(loaded.history)}")
        elif effect.op not in replayed.pending:
            self.fault(f"{name} began before the transition that starts it was durable")

    async def check_end(self) -> Ended:
        """Check the records of an instance that has ended, against each other and against the effects."""
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
            self.fault(
                f"{row.status}, but still owned, waiting or with inbox items: {loaded.row}, {loaded.waits}, {loaded.inbox}"
            )
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
                self.fault(f"{entry.op} is recorded as completed, but did not run to its end")

    def _check_compensation(self, history: tuple[Entry, ...], *, failed: bool) -> None:
        done = [entry.op for entry in history if entry.kind is Kind.COMPENSATION]
        left = pending_compensations(history)
        if failed and left:
            self.fault(f"not compensated: {left}")
        if not failed and done:
            self.fault(f"compensated although nothing failed: {done}")
        if failed and done != list(reversed(_completed(history))):
            self.fault(f"compensated in the order {done}, completed in the order {_completed(history)}")

    def _check_replay(self, replayed: Replayed, output: bytes | None) -> None:
        if replayed.verdict is None:
            self.fault("the replayed history does not end")
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


def pending_compensations(history: tuple[Entry, ...]) -> list[str]:
    """The compensations still to be run, in order."""
    undone = {entry.op for entry in history if entry.kind is Kind.COMPENSATION}
    return [op for op in reversed(_completed(history)) if op not in undone]


def _completed(history: tuple[Entry, ...]) -> list[str]:
    """The compensations of completed operations, in order of completion."""
    return [f"compensate:{entry.op}" for entry in history if _is_compensable(entry)]


def _is_compensable(entry: Entry) -> bool:
    if entry.kind is Kind.ACTIVITY:
        return entry.name == "compensable" and entry.outcome is Outcome.OK
    return entry.kind is Kind.REGISTRATION


def _text(error: bytes | None) -> str:
    if error is None:
        return ""
    info = describe_failure(error)
    return f"{info.type}: {info.message}"

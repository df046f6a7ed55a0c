"""The crash property finds each fault that is planted in the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st
from tests.property.crashes import crash_check
from tests.property.crashes.workflow_programs import Node, programs
from tests.property.hypothesis_settings import unhurried

from romancy.core.commands import Resolution
from romancy.core.execution import Execution, PendingCompensation
from romancy.model.history import AttemptRow, Entry
from romancy.model.transition import Applied, Transition, Write, WriteResult
from romancy.store.sql import transitions
from romancy.store.sql.store import SqlStore
from romancy.store.sql.unit_of_work import InstanceState, UnitOfWork
from romancy.worker.attempt import AttemptEnded
from romancy.worker.runner.runner import InstanceRunner
from romancy.worker.runner.state import Input

Plant = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def _short_limit(monkeypatch: Plant) -> None:
    """Shorten the time limit for instances that a planted fault makes stuck."""
    monkeypatch.setattr(crash_check, "_LIMIT", 1.5)


def found(*, attempts: int = 100, crashes: int = 8, orders: int = 6) -> str | None:
    """The first divergence that the property finds, if there is one."""
    divergences: list[str] = []

    @seed(1)
    @settings(unhurried(attempts), phases=[Phase.generate])
    @given(programs, st.integers(0, 2**32))
    def search(program: Node, order: int) -> None:
        # Not raised to Hypothesis: it would run the program again and shrink it.
        if not divergences:
            try:
                crash_check.check(program, order, crashes=crashes, orders=orders)
            except crash_check.Divergence as divergence:
                divergences.append(str(divergence))

    search()
    return divergences[0] if divergences else None


def test_without_a_fault_nothing_is_found() -> None:
    assert found(attempts=3) is None


def test_a_history_row_that_is_dropped_is_found(monkeypatch: Plant) -> None:
    original = UnitOfWork.add_history

    def drop(self: UnitOfWork, state: InstanceState, entries: Sequence[Entry]) -> None:
        original(self, state, [entry for entry in entries if entry.seq != 2])

    monkeypatch.setattr(UnitOfWork, "add_history", drop)
    assert found()


def test_an_acknowledgement_before_the_commit_is_found(monkeypatch: Plant) -> None:
    original = SqlStore.commit
    unwritten: list[tuple[SqlStore, list[Transition]]] = []

    async def acknowledge_early(self: SqlStore, batch: Sequence[Write]) -> Any:
        """Acknowledge transitions that keep their instance, and write them with the next batch."""
        late = [write for store, writes in unwritten if store is self for write in writes]
        unwritten.clear()
        if late:
            await original(self, late)
        if not all(isinstance(write, Transition) and write.keep_owned for write in batch):
            return await original(self, batch)
        held = [write for write in batch if isinstance(write, Transition)]
        unwritten.append((self, held))
        answers: list[WriteResult] = [Applied(write.inbox_seen, True) for write in held]
        return answers

    monkeypatch.setattr(SqlStore, "commit", acknowledge_early)
    assert found()


def test_a_start_before_its_cause_is_durable_is_found(monkeypatch: Plant) -> None:
    original = InstanceRunner.take_transition

    def launch_early(self: InstanceRunner) -> Transition | None:
        transition = original(self)
        launching, self.attempts.starting = self.attempts.starting, []
        self.attempts.launch(self, launching)
        return transition

    monkeypatch.setattr(InstanceRunner, "take_transition", launch_early)
    assert found()


def test_epochs_that_are_ignored_are_found(monkeypatch: Plant) -> None:
    monkeypatch.setattr(transitions, "may_write", lambda state, write: not state.ended)
    assert found(crashes=0)


def test_owners_without_epochs_are_found(monkeypatch: Plant) -> None:
    """A worker that lost an instance and claimed it again must not write what it did before."""

    def same_process(state: InstanceState, write: Transition) -> bool:
        return not state.ended and (state.owner is None or state.owner.split("/")[0] == write.worker.split("/")[0])

    monkeypatch.setattr(transitions, "may_write", same_process)
    assert found(crashes=0)


def test_compensation_in_the_wrong_order_is_found(monkeypatch: Plant) -> None:
    def first_completed(self: Execution) -> PendingCompensation | None:
        left = [undo for undo in self._compensations if undo.op not in self._compensated]
        return left[0] if left else None

    monkeypatch.setattr(Execution, "next_compensation", first_completed)
    assert found()


def test_a_compensation_that_replay_forgets_is_found(monkeypatch: Plant) -> None:
    original = Execution.replay

    def drop(self: Execution, at: int, history: Sequence[Entry]) -> None:
        original(self, at, history)
        self._compensated.clear()

    monkeypatch.setattr(Execution, "replay", drop)
    assert found()


def test_a_failed_attempt_that_is_forgotten_is_found(monkeypatch: Plant) -> None:
    def drop(self: UnitOfWork, state: InstanceState, attempts: Sequence[AttemptRow]) -> None:
        """Writes no attempts."""

    monkeypatch.setattr(UnitOfWork, "put_attempts", drop)
    assert found()


def test_a_wake_that_is_lost_is_found(monkeypatch: Plant) -> None:
    original = transitions._advance

    def clear_wake_time(state: InstanceState, write: Transition) -> None:
        original(state, write)
        if not write.keep_owned:
            state.wake_at = None

    monkeypatch.setattr(transitions, "_advance", clear_wake_time)
    assert found()


def test_a_result_that_replay_changes_is_found(monkeypatch: Plant) -> None:
    original = Resolution.of

    def change_value(entry: Entry) -> Resolution:
        fed = original(entry)
        return Resolution(fed.kind, fed.op, fed.at, fed.outcome, b"40") if fed.value == b"30" else fed

    monkeypatch.setattr(Resolution, "of", change_value)
    assert found()


def test_a_withdrawn_attempt_that_never_reports_is_found(monkeypatch: Plant) -> None:
    original = InstanceRunner.handle

    def ignore_cancellation(self: InstanceRunner, input: Input) -> None:
        if not (isinstance(input, AttemptEnded) and isinstance(input.error, asyncio.CancelledError)):
            original(self, input)

    monkeypatch.setattr(InstanceRunner, "handle", ignore_cancellation)
    assert found()

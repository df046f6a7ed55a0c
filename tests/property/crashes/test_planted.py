"""The property finds the faults it is there for: each is planted, and must be seen."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st
from tests.property.crashes import driver
from tests.property.crashes.programs import Node, programs
from tests.property.settings import unhurried

from romancy.core.execution import Execution, Undo
from romancy.model.history import Attempt, Entry, Kind
from romancy.model.transition import Answer, Applied, Transition, Write
from romancy.store.sqlite import transitions
from romancy.store.sqlite.ledger import Ledger
from romancy.store.sqlite.store import SqliteStore
from romancy.worker.host import Host

Plant = pytest.MonkeyPatch


def found(monkeypatch: Plant, attempts: int = 60) -> str | None:
    """The first divergence that the property finds, if it finds one."""
    monkeypatch.setattr(driver, "_LIMIT", 3.0)
    divergences: list[str] = []

    @seed(1)
    @settings(unhurried(attempts), phases=[Phase.generate])
    @given(programs, st.integers(0, 2**32))
    def search(program: Node, order: int) -> None:
        # Not left to hypothesis: it would run the program again, and again in smaller pieces.
        if not divergences:
            try:
                driver.check(program, order)
            except driver.Divergence as divergence:
                divergences.append(str(divergence))

    search()
    return divergences[0] if divergences else None


def test_a_history_row_that_is_dropped_is_found(monkeypatch: Plant) -> None:
    original = Ledger.add_history

    def forgetful(self: Ledger, state: Any, entries: Sequence[Entry]) -> None:
        original(self, state, [entry for entry in entries if entry.seq != 2])

    monkeypatch.setattr(Ledger, "add_history", forgetful)
    assert found(monkeypatch)


def test_an_acknowledgement_before_the_commit_is_found(monkeypatch: Plant) -> None:
    original = SqliteStore.commit
    unwritten: list[tuple[SqliteStore, list[Transition]]] = []

    async def hasty(self: SqliteStore, batch: Sequence[Write]) -> Any:
        """Transitions that hold their instance are written with the batch that follows."""
        late = [write for store, writes in unwritten if store is self for write in writes]
        unwritten.clear()
        if late:
            await original(self, late)
        if not all(isinstance(write, Transition) and write.hold for write in batch):
            return await original(self, batch)
        held = [write for write in batch if isinstance(write, Transition)]
        unwritten.append((self, held))
        answers: list[Answer] = [Applied(write.seen, True) for write in held]
        return answers

    monkeypatch.setattr(SqliteStore, "commit", hasty)
    assert found(monkeypatch)


def test_a_start_before_its_cause_is_durable_is_found(monkeypatch: Plant) -> None:
    original = Host.take

    def eager(self: Host) -> Transition | None:
        transition = original(self)
        launching, self._launching = self._launching, []
        self._launch(launching)
        return transition

    monkeypatch.setattr(Host, "take", eager)
    assert found(monkeypatch)


def test_epochs_that_are_ignored_are_found(monkeypatch: Plant) -> None:
    monkeypatch.setattr(transitions, "_may_write", lambda state, write: not state.ended)
    assert found(monkeypatch)


def test_owners_without_epochs_are_found(monkeypatch: Plant) -> None:
    """A worker that lost an instance and got it again must not write what it did before."""

    def same_process(state: Any, write: Transition) -> bool:
        return not state.ended and (state.owner is None or state.owner.split("/")[0] == write.worker.split("/")[0])

    monkeypatch.setattr(transitions, "_may_write", same_process)
    assert found(monkeypatch)


def test_compensation_in_the_wrong_order_is_found(monkeypatch: Plant) -> None:
    def first_completed(self: Execution) -> Undo | None:
        left = [undo for undo in self._stack if undo.op not in self._undone]
        return left[0] if left else None

    monkeypatch.setattr(Execution, "next_undo", first_completed)
    assert found(monkeypatch)


def test_a_compensation_that_replay_forgets_is_found(monkeypatch: Plant) -> None:
    original = Execution.replay

    def forgetful(self: Execution, at: int, history: Sequence[Entry]) -> None:
        original(self, at, history)
        self._undone.clear()

    monkeypatch.setattr(Execution, "replay", forgetful)
    assert found(monkeypatch)


def test_a_failed_attempt_that_is_forgotten_is_found(monkeypatch: Plant) -> None:
    def forgetful(self: Ledger, state: Any, attempts: Sequence[Attempt]) -> None:
        """Writes none."""

    monkeypatch.setattr(Ledger, "put_attempts", forgetful)
    assert found(monkeypatch)


def test_a_wake_that_is_lost_is_found(monkeypatch: Plant) -> None:
    original = Host.take

    def sleepy(self: Host) -> Transition | None:
        transition = original(self)
        if transition is not None and not transition.hold and transition.ending is None:
            object.__setattr__(transition, "wake_at", None)
        return transition

    monkeypatch.setattr(Host, "take", sleepy)
    assert found(monkeypatch)


def test_a_result_that_depends_on_the_process_is_found(monkeypatch: Plant) -> None:
    original = Execution._refeed

    def other(self: Execution, entry: Entry) -> None:
        """Replay swaps what two activities returned."""
        if entry.kind is Kind.ACTIVITY and entry.value == b"30":
            object.__setattr__(entry, "value", b"40")
        original(self, entry)

    monkeypatch.setattr(Execution, "_refeed", other)
    assert found(monkeypatch)


def test_a_withdrawn_attempt_that_never_reports_is_found(monkeypatch: Plant) -> None:
    original = Host.attempt_ended

    def silent(self: Host, attempt: Any, value: bytes | None, error: BaseException | None) -> None:
        if not isinstance(error, asyncio.CancelledError):
            original(self, attempt, value, error)

    monkeypatch.setattr(Host, "attempt_ended", silent)
    assert found(monkeypatch)

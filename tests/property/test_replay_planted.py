"""The replay property finds each fault that is planted in the core."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st
from tests.property.asyncio_programs import Node, programs
from tests.property.hypothesis_settings import unhurried
from tests.property.replay_check import Divergence, Recorder, check

from romancy.core import asyncio_patches
from romancy.core.commands import Resolution
from romancy.core.futures import RunFuture, RunTask
from romancy.core.loop import Run


def found(live_class: type[Recorder] = Recorder, attempts: int = 400) -> str | None:
    """The first divergence that the property finds, if there is one."""
    divergences: list[str] = []

    @seed(1)
    @settings(unhurried(attempts), phases=[Phase.generate])
    @given(programs, st.integers(0, 2**32))
    def search(program: Node, order: int) -> None:
        # Not raised to Hypothesis: it would run the program again and report it as flaky.
        if not divergences:
            try:
                check(program, order, live_class)
            except Divergence as divergence:
                divergences.append(str(divergence))

    search()
    return divergences[0] if divergences else None


def test_without_a_fault_nothing_is_found() -> None:
    assert found(attempts=50) is None


@pytest.mark.parametrize("hashed", [RunTask, RunFuture])
def test_hashes_by_address_are_found(hashed: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashed, "__hash__", object.__hash__)
    assert found()


@pytest.fixture
def _unpatched() -> Iterator[None]:
    asyncio_patches.uninstall()
    yield
    asyncio_patches.install()


@pytest.mark.usefixtures("_unpatched")
def test_asyncio_as_it_is_is_found() -> None:
    assert found()


def test_task_names_of_the_whole_process_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = itertools.count(1)
    monkeypatch.setattr(Run, "next_task_name", lambda run: f"Task-{next(numbers)}")
    assert found()


def test_a_forgotten_task_that_is_collected_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    make = Run.create_task
    weak: weakref.WeakKeyDictionary[Run, list[weakref.ref[RunTask]]] = weakref.WeakKeyDictionary()

    def create_task(run: Run, coro: Any, **options: Any) -> RunTask:
        task = make(run, coro, **options)
        weak.setdefault(run, []).append(weakref.ref(task))
        run._tasks.clear()
        return task

    def live_tasks(run: Run) -> list[RunTask]:
        tasks = [reference() for reference in weak.get(run, [])]
        return [task for task in tasks if task is not None and not task.done()]

    monkeypatch.setattr(Run, "create_task", create_task)
    monkeypatch.setattr(Run, "live_tasks", live_tasks)
    assert found()


class TwoResultsAtOnce(Recorder):
    """A fault: two results are set before the body runs."""

    def advance(self, resolution: Resolution) -> list[Any]:
        self.number = getattr(self, "number", 0) + 1
        return super().advance(resolution)

    def _drain(self) -> None:
        if self.number % 2 or len(self.pending) < 2:
            super()._drain()

    def _check_body_end(self) -> None:
        if not self._ready:
            super()._check_body_end()


def test_two_results_in_one_drain_are_found() -> None:
    assert found(TwoResultsAtOnce)

"""The engine's clock: it follows a server or the machine, and is steady in between."""

import logging
import time
from types import SimpleNamespace

import pytest
from tests.machine_clock import DAY, HOUR, Machine

from romancy import clock as clocks
from romancy.clock import MICROS, SystemClock

JUMPS = [HOUR, -HOUR, 8 * DAY, -8 * DAY, 3]


@pytest.fixture
def machine() -> Machine:
    """A machine whose time passes only by `let_pass`."""
    return Machine(still=True)


def test_without_a_server_the_machines_date_counts(machine: Machine) -> None:
    clock = machine.clock()
    assert clock.now() == machine.wall() // 1000
    machine.let_pass(3.5)
    assert clock.now() == machine.wall() // 1000
    assert clock.is_certain


@pytest.mark.parametrize("jump", JUMPS)
def test_a_date_that_jumps_and_comes_back_changes_nothing(machine: Machine, jump: float) -> None:
    clock = machine.clock()
    before = clock.now()
    machine.jump(jump)
    for _ in range(50):
        machine.let_pass(1)
        clock.now()
    assert clock.now() == before + 50 * MICROS
    machine.jump(-jump)
    machine.let_pass(1)
    assert clock.now() == before + 51 * MICROS
    machine.jump(jump)  # the same difference again is another jump
    for _ in range(50):
        machine.let_pass(1)
        clock.now()
    assert clock.now() == before + 101 * MICROS


@pytest.mark.parametrize("jump", JUMPS)
def test_a_date_that_stays_is_believed_after_a_minute_and_nothing_is_deleted_for_an_hour(
    machine: Machine, jump: float, caplog: pytest.LogCaptureFixture
) -> None:
    clock = machine.clock()
    machine.jump(jump)
    machine.let_pass(1)
    assert not clock.is_certain
    machine.let_pass(60)
    assert clock.now() == machine.wall() // 1000
    assert [(one.name, one.levelno) for one in caplog.records] == [("romancy.clock", logging.WARNING)] * 2
    assert all(f"{jump:.3f} s" in one.getMessage() for one in caplog.records)
    machine.let_pass(HOUR - 1)
    assert not clock.is_certain
    machine.let_pass(1)
    assert clock.is_certain


def test_a_date_that_goes_on_jumping_is_not_believed(machine: Machine) -> None:
    clock = machine.clock()
    before = clock.now()
    for _ in range(100):
        machine.jump(10)
        machine.let_pass(30)
        clock.now()
    assert clock.now() == before + 3000 * MICROS
    assert not clock.is_certain


@pytest.mark.parametrize("correction", [0.5, -0.5, 1, -1, 2])
def test_a_small_correction_is_followed_at_once(machine: Machine, correction: float) -> None:
    clock = machine.clock()
    machine.jump(correction)
    machine.let_pass(1)
    assert clock.now() == machine.wall() // 1000
    assert clock.is_certain


@pytest.mark.parametrize("jump", JUMPS)
def test_with_a_server_the_machines_date_does_not_matter_at_all(machine: Machine, jump: float) -> None:
    clock = machine.clock()
    theirs = clock.now() - 77 * MICROS
    at = clock.elapsed()
    clock.follow_server(theirs, at, at)
    machine.jump(jump)
    machine.let_pass(HOUR)
    assert clock.now() == theirs + 3600 * MICROS
    assert clock.is_certain
    assert clock.has_jumped, "the machine may have slept, so the server must be asked"
    clock.follow_server(theirs + 3600 * MICROS, clock.elapsed(), clock.elapsed())
    machine.let_pass(1)
    assert clock.now() == theirs + 3601 * MICROS
    assert not clock.has_jumped
    assert clock.ahead == 77 * MICROS + round(jump * MICROS)


def test_a_server_moves_the_clock_no_further_than_its_answer_demands(machine: Machine) -> None:
    clock = machine.clock()
    begun = clock.now()
    began = clock.elapsed()
    machine.let_pass(4)  # the round trip
    for theirs in (begun, begun + 4 * MICROS, begun + 1):
        clock.follow_server(theirs, began, clock.elapsed())
        assert clock.now() == begun + 4 * MICROS, "the answer is consistent with the round trip"
    clock.follow_server(begun + 10 * MICROS, began, clock.elapsed())
    assert clock.now() == begun + 10 * MICROS
    clock.follow_server(begun - 10 * MICROS, began, clock.elapsed())
    assert clock.now() == begun - 6 * MICROS


def test_a_machines_own_clock_is_steady_and_right() -> None:
    clock = SystemClock()
    before, began = time.time_ns() // 1000, clock.elapsed()
    shown = [clock.now() for _ in range(1000)]
    assert shown == sorted(shown)
    assert before - 1000 <= shown[0] <= shown[-1] <= time.time_ns() // 1000 + 1000
    assert clock.elapsed() > began


def test_where_no_clock_counts_sleep_there_is_one_all_the_same() -> None:
    # Not by patching the module: apps of other tests read it in their threads.
    steady = clocks._find_steady_clock(SimpleNamespace(monotonic_ns=time.monotonic_ns))
    assert steady is time.monotonic_ns
    assert abs(SystemClock(steady=steady).now() - time.time_ns() // 1000) < 60 * MICROS

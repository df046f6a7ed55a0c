"""The execution of an instance: what is started, what is answered from before a retry, and the order of compensations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import pytest

from romancy.core.commands import Fail, Finish, Resolution
from romancy.core.execution import AttemptResult, Execution, Phase
from romancy.core.loop import Run
from romancy.errors import DeterminismViolationError
from romancy.model.history import Entry, Kind, Outcome, Role
from romancy.model.messaging import JoinGroup

Body = Callable[[Run], Coroutine[Any, Any, Any]]
SECOND = 1_000_000


class ExecutionDriver:
    """An execution without a worker, with the history that a store would have."""

    def __init__(self, body: Body, history: Iterable[Entry] = ()) -> None:
        self.history = list(history)
        known = {entry.op: entry.digest for entry in self.history if entry.kind is Kind.REGISTRATION}
        self.run = Run(lambda: body(self.run), "driven", known)
        self.execution = Execution(self.run, self.history, length=len(self.history))
        self.at = 0

    def start(self) -> list[str]:
        self.execution.start(self.at)
        return self.take_started()

    def replay(self) -> list[str]:
        self.execution.replay(0, self.history)
        return [issue.op for issue in self.execution.new_activities]

    def take_started(self) -> list[str]:
        self.history += self.execution.take_entries()
        return [issue.op for issue in self.execution.take_new_activities()]

    def ok(self, op: str, value: str = "") -> list[str]:
        return self._end(op, Outcome.OK, value)

    def error(self, op: str, value: str = "") -> list[str]:
        return self._end(op, Outcome.ERROR, value)

    def _end(self, op: str, outcome: Outcome, value: str) -> list[str]:
        self.at += SECOND
        ended = AttemptResult(outcome, value.encode())
        self.execution.feed(Resolution(Kind.ACTIVITY, op, self.at, outcome, ended.value), ended)
        return self.take_started()

    def compensate_all(self) -> list[str]:
        undone: list[str] = []
        while (undo := self.execution.next_compensation()) is not None:
            undone.append(undo.op)
            self.execution.record_compensation(undo, AttemptResult(Outcome.OK, None), self.at)
        self.history += self.execution.take_entries()
        return undone


def act(run: Run, name: str, *, digest: str = "", undo: str | None = None) -> Any:
    return run.issue_operation(Kind.ACTIVITY, name, decode, digest=digest.encode(), compensation=undo)


def register(run: Run, name: str, *, digest: str = "") -> Any:
    return run.emit_effect(Kind.REGISTRATION, name, digest=digest.encode(), compensation=f"undo {name}")


def decode(resolution: Resolution) -> str:
    text = (resolution.value or b"").decode()
    if resolution.outcome is Outcome.ERROR:
        raise ValueError(text)
    return text


# --- compensation


async def trip(run: Run) -> None:
    """Three bookings at once, then a registration, then the failure."""
    await asyncio.gather(*(act(run, name, undo=f"cancel {name}") for name in ("flight", "hotel", "car")))
    await register(run, "guide")
    await act(run, "pay")


def failed_trip() -> ExecutionDriver:
    driver = ExecutionDriver(trip)
    assert driver.start() == ["flight:1", "hotel:1", "car:1"]
    driver.ok("hotel:1")
    driver.ok("car:1")
    assert driver.ok("flight:1") == ["pay:1"]
    driver.error("pay:1", "declined")
    assert isinstance(driver.execution.body_outcome, Fail)
    return driver


ORDER = ["compensate:guide:1", "compensate:flight:1", "compensate:car:1", "compensate:hotel:1"]


def test_the_last_completed_is_undone_first() -> None:
    driver = failed_trip()
    assert driver.execution.phase is Phase.COMPENSATING
    assert driver.compensate_all() == ORDER
    assert driver.execution.next_compensation() is None


@pytest.mark.parametrize("taken", range(5))
def test_the_way_back_goes_on_after_a_replay(taken: int) -> None:
    driver = failed_trip()
    for _ in range(taken):
        undo = driver.execution.next_compensation()
        assert undo is not None
        driver.execution.record_compensation(undo, AttemptResult(Outcome.OK, None), driver.at)
    again = ExecutionDriver(trip, [*driver.history, *driver.execution.take_entries()])
    assert again.replay() == []
    assert again.compensate_all() == ORDER[taken:]


def test_what_failed_is_not_undone() -> None:
    driver = ExecutionDriver(trip)
    driver.start()
    driver.ok("hotel:1")
    driver.error("flight:1", "full")
    assert driver.compensate_all() == ["compensate:hotel:1"]


def test_a_finished_instance_undoes_nothing() -> None:
    driver = ExecutionDriver(trip)
    driver.start()
    for op in ("flight:1", "hotel:1", "car:1", "pay:1"):
        driver.ok(op)
    assert isinstance(driver.execution.body_outcome, Finish)
    assert driver.execution.phase is Phase.ENDED


def test_the_result_is_given_to_what_undoes_it() -> None:
    driver = ExecutionDriver(trip)
    driver.start()
    driver.ok("hotel:1", "room 7")
    undo = driver.execution.next_compensation()
    assert undo is not None
    assert (undo.op, undo.result, undo.issue.compensation) == ("compensate:hotel:1", b"room 7", "cancel hotel")


def late_hotel() -> ExecutionDriver:
    """The attempt of the hotel could not be stopped, and succeeded after the body had failed."""
    driver = ExecutionDriver(trip)
    driver.execution.start(0)
    issues = {issue.op: issue for issue in driver.execution.take_new_activities()}
    driver.ok("car:1")
    driver.error("flight:1", "full")
    assert set(driver.execution.take_withdrawn()) == {"hotel:1"}
    driver.execution.finishing.add("hotel:1")
    assert driver.execution.phase is Phase.FINISHING
    driver.execution.record_late_result(issues["hotel:1"], AttemptResult(Outcome.OK, b"room 7"), driver.at)
    driver.history += driver.execution.take_entries()
    return driver


def test_a_late_success_is_recorded_beside_the_run_and_undone_first() -> None:
    driver = late_hotel()
    assert (driver.history[-1].op, driver.history[-1].role) == ("hotel:1", Role.OUT_OF_BAND)
    again = ExecutionDriver(trip, driver.history)
    again.replay()
    assert again.compensate_all() == driver.compensate_all() == ["compensate:hotel:1", "compensate:car:1"]


def test_a_registration_is_recorded_once() -> None:
    driver = failed_trip()
    registrations = [entry for entry in driver.history if entry.kind is Kind.REGISTRATION]
    assert [(entry.op, entry.role) for entry in registrations] == [("guide:1", Role.OUT_OF_BAND)]
    again = ExecutionDriver(trip, driver.history)
    again.replay()
    assert again.execution.take_entries() == ()


# --- new activities


def test_asked_for_and_withdrawn_in_one_breath_is_never_started() -> None:
    async def body(run: Run) -> None:
        act(run, "a").cancel()
        await act(run, "b")

    driver = ExecutionDriver(body)
    assert driver.start() == ["b:1"]
    assert driver.execution.take_withdrawn() == []


def test_withdrawn_later_is_told() -> None:
    async def body(run: Run) -> None:
        await asyncio.wait([act(run, "a"), act(run, "b")], return_when=asyncio.FIRST_COMPLETED)

    driver = ExecutionDriver(body)
    assert driver.start() == ["a:1", "b:1"]
    driver.ok("b:1")
    assert driver.execution.take_withdrawn() == ["a:1"]


def test_nothing_is_asked_twice_and_nothing_done_twice() -> None:
    async def body(run: Run) -> None:
        await run.emit_effect(Kind.JOIN_GROUP, "join_group", detail=JoinGroup("riders"))
        await run.issue_operation(Kind.SUBSCRIBE, "subscribe", decode, detail="a question")

    driver = ExecutionDriver(body)
    driver.execution.start(0)
    assert driver.execution.take_effects() == [("join_group:1", JoinGroup("riders"))]
    assert [issue.detail for issue in driver.execution.take_store_calls()] == ["a question"]
    assert (driver.execution.take_effects(), driver.execution.take_store_calls()) == ([], [])
    assert driver.take_started() == []


def test_after_a_replay_exactly_what_is_open_is_started() -> None:
    async def body(run: Run) -> None:
        await asyncio.gather(act(run, "a"), act(run, "b"), asyncio.wait_for(act(run, "c"), 5))

    driver = ExecutionDriver(body)
    driver.start()
    driver.ok("b:1")
    again = ExecutionDriver(body, driver.history)
    assert again.replay() == ["a:1", "c:1"]
    assert again.execution.take_withdrawn() == []
    assert again.execution.next_due() == 5 * SECOND
    assert [issue.op for issue in again.execution.due_issues(5 * SECOND)] == ["timer:1"]
    assert again.execution.due_issues(5 * SECOND - 1) == []


# --- results that a retry retains


def kept(op: str, value: str, digest: str = "", seq: int = 1) -> Entry:
    return Entry(
        seq=seq,
        kind=Kind.ACTIVITY,
        op=op,
        outcome=Outcome.OK,
        at=0,
        name=op.partition(":")[0],
        role=Role.RETAINED,
        digest=digest.encode(),
        value=value.encode(),
        attempt=3,
        worker="before",
    )


def test_kept_results_answer_in_the_order_they_are_asked_for() -> None:
    async def body(run: Run) -> list[str]:
        first = await act(run, "b")
        return [first, await act(run, "new"), *await asyncio.gather(act(run, "a"), act(run, "c"))]

    before = [kept("a:1", "A", seq=1), kept("b:1", "B", seq=2)]
    driver = ExecutionDriver(body, before)
    driver.replay()
    assert driver.take_started() == ["new:1"]
    assert driver.ok("new:1", "N") == ["c:1"]
    driver.ok("c:1", "C")
    assert driver.execution.body_outcome == Finish(["B", "N", "A", "C"])
    recorded = [entry for entry in driver.history if entry.role is Role.FED]
    assert [entry.op for entry in recorded] == ["b:1", "new:1", "a:1", "c:1"]
    assert (recorded[0].attempt, recorded[0].worker) == (3, "before")

    again = ExecutionDriver(body, driver.history)
    assert again.replay() == []
    assert again.execution.body_outcome == driver.execution.body_outcome


def test_a_kept_result_is_undone_like_any_other() -> None:
    async def body(run: Run) -> None:
        await act(run, "a", undo="undo a")
        await act(run, "b")

    driver = ExecutionDriver(body, [kept("a:1", "A")])
    driver.replay()
    assert driver.take_started() == ["b:1"]
    driver.error("b:1")
    assert driver.compensate_all() == ["compensate:a:1"]


def test_a_kept_result_of_other_arguments_answers_nothing() -> None:
    async def body(run: Run) -> str:
        await asyncio.gather(act(run, "a", digest="new"), act(run, "b"))
        return "done"

    driver = ExecutionDriver(body, [kept("a:1", "A", digest="old")])
    driver.replay()
    assert driver.take_started() == ["a:1", "b:1"]


def test_thousands_of_kept_results_are_recalled() -> None:
    async def body(run: Run) -> int:
        return sum([int(await act(run, "a")) for _ in range(3_000)])

    driver = ExecutionDriver(body, [kept(f"a:{n}", "1", seq=n) for n in range(1, 3_001)])
    driver.replay()
    assert driver.execution.body_outcome == Finish(3_000)


# --- code that no longer fits


async def two(run: Run) -> None:
    await act(run, "charge", digest="7 euros")
    await register(run, "note", digest="n")
    await act(run, "ship")
    await act(run, "thank")


def recorded(body: Body, *ops: str) -> list[Entry]:
    driver = ExecutionDriver(body)
    driver.start()
    for op in ops:
        driver.ok(op)
    return driver.history


def violation(body: Body, history: list[Entry]) -> str:
    driver = ExecutionDriver(body, history)
    with pytest.raises(DeterminismViolationError) as caught:
        driver.replay()
    driver.run.evict()
    return str(caught.value)


HISTORY = recorded(two, "charge:1", "ship:1")


def test_the_same_code_fits() -> None:
    assert ExecutionDriver(two, HISTORY).replay() == ["thank:1"]


def test_an_operation_that_is_gone_is_named_with_what_the_code_does_instead() -> None:
    async def other(run: Run) -> None:
        await act(run, "bill")

    message = violation(other, HISTORY)
    assert "activity charge:1 (entry 1" in message
    assert "called at tests.unit.test_execution:" in message
    assert "waits for bill:1 instead" in message


def test_another_kind_of_operation_under_the_same_id_is_named() -> None:
    async def other(run: Run) -> None:
        await run.issue_operation(Kind.TIMER, "charge", decode, digest=b"7 euros", due=9)

    message = violation(other, HISTORY)
    assert "recorded: activity charge:1" in message
    assert "attempted: timer charge:1" in message
    assert "a different kind of operation" in message


def sleeping(*seconds: float, history: list[Entry] | None = None) -> ExecutionDriver:
    """Timers at the same time, each in a task of its own."""

    async def body(run: Run) -> None:
        await asyncio.gather(*(asyncio.sleep(one) for one in seconds))
        await act(run, "end")

    return ExecutionDriver(body, history or [])


def fired(*seconds: float, of: int) -> list[Entry]:
    """The history after the first of several timers have fired."""
    driver = sleeping(*seconds)
    driver.start()
    for issue in driver.execution.due_issues(10**12)[:of]:
        driver.at = issue.due or 0
        driver.execution.feed(Resolution(Kind.TIMER, issue.op, driver.at))
    driver.take_started()
    driver.run.evict()
    return driver.history


@pytest.mark.parametrize("of", [1, 2])
def test_timers_that_change_places_do_not_answer_for_each_other(of: int) -> None:
    history = fired(60, 86_400, of=of)
    assert sleeping(60, 86_400, history=history).replay() == ([] if of == 1 else ["end:1"])
    again = sleeping(86_400, 60, history=history)
    with pytest.raises(DeterminismViolationError, match=r"timer:1 .* of 60 s; attempted: timer:1 at .* one of 86400 s"):
        again.replay()
    again.run.evict()


@pytest.mark.parametrize("seconds", [59, 61])
def test_a_timer_that_has_gone_off_keeps_its_length_and_one_that_waits_takes_the_new(seconds: int) -> None:
    history = fired(60, 86_400, of=1)
    waiting = sleeping(60, seconds, history=history)
    waiting.replay()
    assert waiting.run.due == {"timer:2": seconds * SECOND}
    again = sleeping(seconds, 86_400, history=history)
    with pytest.raises(DeterminismViolationError, match=f"one of {seconds} s"):
        again.replay()
    waiting.run.evict()
    again.run.evict()


def test_what_earlier_versions_recorded_says_nothing_of_lengths_but_no_timer_goes_off_before_it_is_due() -> None:
    history = [entry._replace(digest=b"") for entry in fired(60, of=1)]
    assert sleeping(59, history=history).replay() == ["end:1"]
    again = sleeping(61, history=history)
    with pytest.raises(DeterminismViolationError, match=r"it fired; attempted: .* not due for another 1 s"):
        again.replay()
    again.run.evict()


def test_other_arguments_are_named_with_their_line() -> None:
    async def other(run: Run) -> None:
        await act(run, "charge", digest="8 euros")

    message = violation(other, HISTORY)
    assert "attempted: activity charge:1 at tests.unit.test_execution:" in message
    assert "with other arguments" in message


def test_code_that_ends_too_early_is_named() -> None:
    async def other(run: Run) -> None:
        await act(run, "charge", digest="7 euros")
        await register(run, "note", digest="n")

    message = violation(other, HISTORY)
    assert "activity ship:1" in message
    assert "the code had ended by then" in message


def test_an_effect_with_other_arguments_is_named_even_if_the_code_swallows_it() -> None:
    async def other(run: Run) -> None:
        await act(run, "charge", digest="7 euros")
        try:
            await register(run, "note", digest="other")
        except Exception:
            await act(run, "ship")

    message = violation(other, HISTORY)
    assert "note:1 was recorded with other arguments" in message
    assert "test_execution:" in message


def test_an_effect_that_the_code_leaves_out_is_named() -> None:
    async def other(run: Run) -> None:
        await act(run, "charge", digest="7 euros")
        await act(run, "ship")

    message = violation(other, HISTORY)
    assert "registration note:1 (entry 2" in message
    assert "the code does not do that" in message


def test_an_effect_that_comes_later_than_it_was_recorded_is_named() -> None:
    async def other(run: Run) -> None:
        await act(run, "charge", digest="7 euros")
        await act(run, "ship")
        await register(run, "note", digest="n")

    assert "the code does not do that" in violation(other, HISTORY)


def test_new_operations_beside_the_recorded_ones_are_simply_started() -> None:
    async def more(run: Run) -> None:
        await act(run, "charge", digest="7 euros")
        await register(run, "note", digest="n")
        await register(run, "letter", digest="l")
        await asyncio.gather(act(run, "ship"), act(run, "insure"))
        await act(run, "thank")

    driver = ExecutionDriver(more, HISTORY)
    assert driver.replay() == ["insure:1"]
    assert [entry.op for entry in driver.execution.take_entries()] == ["letter:1"]


def test_a_run_that_was_cancelled_is_cancelled_again() -> None:
    driver = ExecutionDriver(trip)
    driver.start()
    driver.ok("car:1")
    driver.execution.feed(Resolution(Kind.CANCEL, "", 3 * SECOND, value=b"by hand"), name="cancel")
    assert driver.execution.cancelled
    assert driver.execution.stopping
    driver.take_started()
    again = ExecutionDriver(trip, driver.history)
    assert again.replay() == []
    assert again.execution.cancelled
    assert again.compensate_all() == ["compensate:car:1"]


def test_a_result_that_cannot_be_stored_fails_the_instance() -> None:
    driver = failed_trip()
    driver.execution.reject_result(TypeError("no"))
    assert isinstance(driver.execution.body_outcome, Fail)
    assert str(driver.execution.body_outcome.error) == "no"

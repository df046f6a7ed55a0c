"""The event loop of a run: refused operations, the ends of a body, and isolation from the host."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import copy
import math
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import anyio
import pytest

from romancy.core.commands import Cancelled, Command, EffectCommand, Fail, Finish, Issue, Recur, Resolution, Withdraw
from romancy.core.loop import Run
from romancy.errors import (
    ActivityIDConflictError,
    DeterminismViolationError,
    InvalidWorkflowStateError,
    WorkflowIOError,
    WorkflowStuckError,
    WorkflowTimeoutError,
)
from romancy.model.history import Kind, Outcome

Body = Callable[[Run], Coroutine[Any, Any, Any]]
SECOND = 1_000_000


class RunDriver:
    """A run without a worker, evicted at the end of the test."""

    def __init__(self, body: Body) -> None:
        self.run = Run(lambda: body(self.run), "order-1 (checkout)")
        self.at = 0

    def start(self, at: int = 0) -> list[str]:
        self.at = at
        return self._shown(self.run.advance(Resolution(Kind.START, "", at)))

    def ok(self, op: str, value: str = "") -> list[str]:
        return self.feed(Kind.ACTIVITY, op, Outcome.OK, value)

    def error(self, op: str, value: str = "") -> list[str]:
        return self.feed(Kind.ACTIVITY, op, Outcome.ERROR, value)

    def fire(self, op: str) -> list[str]:
        due = self.run.pending[op].issue.due
        assert due is not None
        self.at = max(self.at, due)
        return self._shown(self.run.advance(Resolution(Kind.TIMER, op, self.at)))

    def cancel(self, reason: str | None = None) -> list[str]:
        value = None if reason is None else reason.encode()
        return self._shown(self.run.advance(Resolution(Kind.CANCEL, "", self.at, value=value)))

    def time_out(self) -> list[str]:
        return self._shown(self.run.advance(Resolution(Kind.TIMEOUT, "", self.at)))

    def feed(self, kind: Kind, op: str, outcome: Outcome, value: str) -> list[str]:
        return self._shown(self.run.advance(Resolution(kind, op, self.at, outcome, value.encode())))

    def _shown(self, commands: list[Command]) -> list[str]:
        return [shown(command) for command in commands]

    @property
    def result(self) -> Any:
        assert isinstance(self.run.body_outcome, Finish), self.run.body_outcome
        return self.run.body_outcome.value

    @property
    def failure(self) -> BaseException:
        assert isinstance(self.run.body_outcome, Fail), self.run.body_outcome
        return self.run.body_outcome.error


def shown(command: Command) -> str:
    match command:
        case Issue() as issue:
            return issue.op
        case EffectCommand(issue):
            return f"effect {issue.op}"
        case Withdraw(op):
            return f"-{op}"


@pytest.fixture
def drive() -> Iterator[Callable[[Body], RunDriver]]:
    drivers: list[RunDriver] = []

    def make(body: Body) -> RunDriver:
        drivers.append(RunDriver(body))
        return drivers[-1]

    yield make
    for driver in drivers:
        assert driver.run.evict() == []


Drive = Callable[[Body], RunDriver]


def act(run: Run, name: str = "a", op_id: str | None = None) -> Any:
    return run.issue_operation(Kind.ACTIVITY, name, decode, op_id=op_id)


async def call(run: Run, name: str = "a") -> Any:
    return await act(run, name)


def decode(resolution: Resolution) -> str:
    text = (resolution.value or b"").decode()
    if resolution.outcome is Outcome.ERROR:
        raise ValueError(text)
    return text


# --- refused operations


async def _unreachable() -> None:
    raise AssertionError


REFUSED: dict[str, Callable[[asyncio.AbstractEventLoop], Any]] = {
    "run_in_executor": lambda loop: asyncio.to_thread(print),
    "create_connection": lambda loop: asyncio.open_connection("localhost", 1),
    "create_server": lambda loop: asyncio.start_server(lambda reader, writer: None, "localhost", 1),
    "create_unix_connection": lambda loop: asyncio.open_unix_connection("/nowhere"),
    "subprocess_exec": lambda loop: asyncio.create_subprocess_exec("true"),
    "subprocess_shell": lambda loop: asyncio.create_subprocess_shell("true"),
    "getaddrinfo": lambda loop: loop.getaddrinfo("localhost", 1),
    "getnameinfo": lambda loop: loop.getnameinfo(("localhost", 1)),
    "call_soon_threadsafe": lambda loop: loop.call_soon_threadsafe(print),
    "add_signal_handler": lambda loop: loop.add_signal_handler(signal.SIGTERM, print),
    "add_reader": lambda loop: loop.add_reader(0, print),
    "sock_recv": lambda loop: loop.sock_recv(None, 1),  # type: ignore[arg-type]
    "create_datagram_endpoint": lambda loop: loop.create_datagram_endpoint(asyncio.DatagramProtocol),
    "connect_read_pipe": lambda loop: loop.connect_read_pipe(asyncio.Protocol, None),
    "set_task_factory": lambda loop: loop.set_task_factory(None),
    "set_exception_handler": lambda loop: loop.set_exception_handler(None),
    "set_default_executor": lambda loop: loop.set_default_executor(None),  # type: ignore[arg-type]
    "stop": lambda loop: loop.stop(),
    "close": lambda loop: loop.close(),
    "run_until_complete": lambda loop: loop.run_until_complete(_unreachable()),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_loop_refuses_what_belongs_into_an_activity(name: str, drive: Drive) -> None:
    async def body(run: Run) -> None:
        awaitable = REFUSED[name](asyncio.get_running_loop())
        if awaitable is not None:
            await awaitable

    driver = drive(body)
    assert driver.start() == []
    assert isinstance(driver.failure, WorkflowIOError)
    assert f"loop.{name}()" in str(driver.failure)
    assert "order-1 (checkout)" in str(driver.failure)
    assert "activity" in str(driver.failure)


def test_a_body_can_catch_the_refusal_and_go_on(drive: Drive) -> None:
    async def body(run: Run) -> str:
        try:
            await asyncio.to_thread(print)
        except WorkflowIOError:
            return str(await act(run))
        return "not reached"

    driver = drive(body)
    driver.start()
    driver.ok("a:1", "instead")
    assert driver.result == "instead"


def test_no_method_of_a_loop_says_only_not_implemented() -> None:
    inherited = [name for name in dir(asyncio.AbstractEventLoop) if not name.startswith("__") and name not in vars(Run)]
    assert inherited == []


# --- bodies that cannot continue


def test_a_body_that_spins_fails_and_names_its_tasks(drive: Drive) -> None:
    async def body(run: Run) -> None:
        act(run, "left")
        while True:
            await asyncio.sleep(0)

    driver = drive(body)
    assert driver.start() == ["left:1", "-left:1"]
    assert isinstance(driver.failure, WorkflowStuckError)
    assert "without waiting for anything" in str(driver.failure)
    assert f"main at {__file__}:" in str(driver.failure)


def test_a_body_that_spins_while_it_is_being_ended_fails_too(drive: Drive) -> None:
    async def stubborn() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)

    async def body(run: Run) -> None:
        task = asyncio.create_task(stubborn(), name="stubborn")
        del task

    driver = drive(body)
    driver.start()
    assert "stubborn at" in str(driver.failure)


def test_a_deadlock_fails_at_once_and_names_tasks_and_lines(drive: Drive) -> None:
    async def never(event: asyncio.Event) -> None:
        await event.wait()

    async def body(run: Run) -> None:
        await act(run)
        await asyncio.gather(
            asyncio.create_task(never(asyncio.Event()), name="left"),
            asyncio.create_task(never(asyncio.Event()), name="right"),
        )

    driver = drive(body)
    driver.start()
    assert driver.run.body_outcome is None
    driver.ok("a:1")
    message = str(driver.failure)
    assert isinstance(driver.failure, WorkflowStuckError)
    assert "can never continue" in message
    first = never.__code__.co_firstlineno
    assert f"left at {__file__}:{first + 1}" in message
    assert f"right at {__file__}:{first + 1}" in message
    assert "main at" in message


def test_waiting_for_ever_for_something_that_can_happen_is_no_deadlock(drive: Drive) -> None:
    async def body(run: Run) -> None:
        act(run, "other")
        await asyncio.Event().wait()

    driver = drive(body)
    driver.start()
    assert driver.run.body_outcome is None


# --- the end of a body


def test_the_result_is_the_verdict(drive: Drive) -> None:
    async def body(run: Run) -> int:
        return 7

    driver = drive(body)
    assert driver.start() == []
    assert driver.result == 7


def test_an_error_is_the_verdict(drive: Drive) -> None:
    async def body(run: Run) -> None:
        await act(run)

    driver = drive(body)
    driver.start()
    driver.error("a:1", "declined")
    assert isinstance(driver.failure, ValueError)
    assert str(driver.failure) == "declined"


@pytest.mark.parametrize("in_child", [False, True])
def test_system_exit_in_a_body_is_the_failure_of_this_run_only(in_child: bool, drive: Drive) -> None:
    async def leaves() -> None:
        sys.exit(3)

    async def body(run: Run) -> None:
        await (asyncio.create_task(leaves()) if in_child else leaves())

    driver = drive(body)
    driver.start()
    assert isinstance(driver.failure, SystemExit)
    assert driver.failure.code == 3


def test_a_keyboard_interrupt_leaves_the_run_and_gives_the_host_its_loop_back(drive: Drive) -> None:
    async def body(run: Run) -> None:
        raise KeyboardInterrupt

    async def host() -> None:
        loop, current, hooks = asyncio.get_running_loop(), asyncio.current_task(), sys.get_asyncgen_hooks()
        with pytest.raises(KeyboardInterrupt):
            drive(body).start()
        assert asyncio.get_running_loop() is loop
        assert asyncio.current_task() is current
        assert sys.get_asyncgen_hooks() == hooks
        await asyncio.sleep(0)

    asyncio.run(host())


def test_a_body_cancelled_by_itself_has_failed(drive: Drive) -> None:
    async def body(run: Run) -> None:
        task = asyncio.create_task(call(run))
        await asyncio.sleep(0)
        task.cancel()
        await task

    driver = drive(body)
    assert driver.start() == ["a:1", "-a:1"]
    assert isinstance(driver.failure, asyncio.CancelledError)


def test_cancelled_from_outside_after_cleaning_up(drive: Drive) -> None:
    async def body(run: Run) -> None:
        try:
            await act(run)
        finally:
            await act(run, "clean")

    driver = drive(body)
    driver.start()
    assert driver.cancel("by hand") == ["-a:1", "clean:1"]
    assert driver.run.stopped
    assert driver.run.body_outcome is None
    driver.ok("clean:1")
    assert driver.run.body_outcome == Cancelled("by hand")


def test_a_swallowed_cancellation_still_ends_as_cancelled(drive: Drive) -> None:
    async def body(run: Run) -> str:
        try:
            await act(run)
        except asyncio.CancelledError:
            return "swallowed"
        return "not reached"

    driver = drive(body)
    driver.start()
    driver.cancel()
    assert driver.run.body_outcome == Cancelled(None)


def test_an_error_while_being_cancelled_still_ends_as_cancelled(drive: Drive) -> None:
    async def body(run: Run) -> None:
        try:
            await act(run)
        finally:
            raise ValueError("own")

    driver = drive(body)
    driver.start()
    driver.cancel("enough")
    assert driver.run.body_outcome == Cancelled("enough")


def test_a_body_that_recurs_cleans_up_and_says_with_what(drive: Drive) -> None:
    async def body(run: Run) -> None:
        try:
            run.recur(b"next")
        finally:
            await act(run, "tidy")

    driver = drive(body)
    assert driver.start() == ["tidy:1"]
    assert driver.run.body_outcome is None
    driver.ok("tidy:1")
    assert driver.run.body_outcome == Recur(b"next")


def test_the_last_request_to_recur_counts(drive: Drive) -> None:
    async def body(run: Run) -> None:
        try:
            run.recur(b"one")
        finally:
            run.recur(b"two")

    driver = drive(body)
    driver.start()
    assert driver.run.body_outcome == Recur(b"two")


def test_recurring_outside_the_main_line_is_refused(drive: Drive) -> None:
    async def beside(run: Run) -> None:
        run.recur(b"next")

    async def body(run: Run) -> str:
        await asyncio.gather(beside(run))
        return "unreachable"

    driver = drive(body)
    driver.start()
    assert isinstance(driver.failure, InvalidWorkflowStateError)
    with pytest.raises(InvalidWorkflowStateError, match="outside the body"):
        driver.run.recur(b"next")


def test_an_evicted_body_does_not_recur(drive: Drive) -> None:
    async def body(run: Run) -> None:
        try:
            await act(run)
        finally:
            run.recur(b"next")

    driver = drive(body)
    driver.start()
    assert driver.run.evict() == []
    assert driver.run.body_outcome is None


def test_a_run_that_takes_too_long_fails_after_cleaning_up(drive: Drive) -> None:
    async def body(run: Run) -> None:
        try:
            await act(run)
        finally:
            await act(run, "clean")

    driver = drive(body)
    driver.start()
    driver.time_out()
    driver.ok("clean:1")
    assert isinstance(driver.failure, WorkflowTimeoutError)
    assert "order-1 (checkout)" in str(driver.failure)


# --- tasks that are left running


def test_background_tasks_are_cancelled_at_the_end_and_may_clean_up(drive: Drive) -> None:
    seen: list[str] = []

    async def background(run: Run, name: str) -> None:
        try:
            await act(run, name)
        except asyncio.CancelledError:
            seen.append(f"{name} cancelled")
            raise
        finally:
            seen.append(str(await act(run, "clean")))

    async def body(run: Run) -> str:
        tasks = [asyncio.create_task(background(run, name)) for name in "xy"]
        await act(run)
        return f"left {len(tasks)}"

    driver = drive(body)
    assert driver.start() == ["a:1", "x:1", "y:1"]
    assert driver.ok("a:1") == ["-x:1", "-y:1", "clean:1", "clean:2"]
    assert driver.run.body_outcome is None
    assert driver.ok("clean:2", "second") == []
    assert driver.run.body_outcome is None
    assert driver.ok("clean:1", "first") == []
    assert driver.result == "left 2"
    assert seen == ["x cancelled", "y cancelled", "second", "first"]
    assert driver.run.problems == []


def test_a_failed_body_waits_for_its_background_tasks_too(drive: Drive) -> None:
    async def background(run: Run) -> None:
        try:
            await act(run, "x")
        finally:
            await act(run, "clean")

    async def body(run: Run) -> None:
        task = asyncio.create_task(background(run))
        await act(run)
        await task

    driver = drive(body)
    driver.start()
    assert driver.error("a:1", "no") == ["-x:1", "clean:1"]
    driver.ok("clean:1")
    assert str(driver.failure) == "no"


def test_a_generator_left_half_way_is_closed_at_the_end_of_the_run(drive: Drive) -> None:
    seen: list[str] = []

    async def body(run: Run) -> str:
        async def generate() -> AsyncIterator[int]:
            try:
                yield 1
                yield 2
            finally:
                loop = asyncio.get_running_loop()
                seen.append(type(loop).__name__)
                seen.append(str(await act(run, "clean")))

        async for _ in generate():
            break
        return str(await act(run))

    async def host() -> None:
        driver = drive(body)
        assert driver.start() == ["a:1"]
        assert driver.ok("a:1", "done") == ["clean:1"]
        assert driver.run.body_outcome is None
        driver.ok("clean:1", "cleaned")
        assert driver.result == "done"

    asyncio.run(host())
    assert seen == ["Run", "cleaned"]


def test_a_generator_that_will_not_be_closed_does_not_keep_the_run(drive: Drive) -> None:
    forever = [True]

    async def body(run: Run) -> str:
        async def generate() -> AsyncIterator[int]:
            while True:
                try:
                    yield 1
                except GeneratorExit:
                    if not forever:
                        raise

        async for _ in generate():
            break
        return "done"

    driver = drive(body)
    driver.start()
    assert driver.result == "done"
    forever.clear()  # it is kept until the interpreter ends, so release it here


def test_generators_that_have_ended_are_not_kept(drive: Drive) -> None:
    async def body(run: Run) -> None:
        async def generate() -> AsyncIterator[int]:
            yield 1

        for _ in range(1_000):
            async for _ in generate():
                pass
        await act(run)

    driver = drive(body)
    driver.start()
    assert len(driver.run._generators) < 100


def test_tasks_that_have_ended_are_not_kept(drive: Drive) -> None:
    async def body(run: Run) -> None:
        for _ in range(1_000):
            await asyncio.create_task(asyncio.sleep(0))
        await act(run)

    driver = drive(body)
    driver.start()
    assert len(driver.run._tasks) < 100


def test_operations_that_are_not_awaited_are_reported(drive: Drive) -> None:
    async def body(run: Run) -> None:
        act(run, "forgotten")
        task = asyncio.create_task(call(run, "b"))
        await act(run)
        task.cancel()

    driver = drive(body)
    driver.start()
    driver.ok("a:1")
    [problem] = driver.run.problems
    assert problem.startswith("forgotten:1 was started at tests.unit.test_loop:")
    assert problem.endswith("but never awaited")


def test_exceptions_that_are_not_retrieved_are_reported(drive: Drive) -> None:
    async def fails() -> None:
        raise ValueError("unseen")

    async def body(run: Run) -> None:
        _ = asyncio.create_task(fails())  # noqa: RUF006
        await asyncio.sleep(0)
        await act(run)

    driver = drive(body)
    driver.start()
    driver.ok("a:1")
    assert any("unseen" in problem for problem in driver.run.problems)


def test_an_exception_that_is_not_retrieved_is_reported_as_soon_as_its_task_is_gone(drive: Drive) -> None:
    """Its step is the last of an advance: no local variable of the loop may keep the task alive."""

    async def fails(run: Run) -> None:
        await act(run, "a")
        raise ValueError("unseen")

    async def body(run: Run) -> None:
        forgotten = asyncio.create_task(fails(run))
        del forgotten
        await act(run, "b")

    driver = drive(body)
    assert driver.start() == ["b:1", "a:1"]
    driver.ok("a:1")
    assert [problem for problem in driver.run.problems if "unseen" in problem]


def test_a_task_made_by_hand_is_a_task_of_the_run(drive: Drive) -> None:
    async def cleans_up(run: Run) -> None:
        try:
            await act(run, "a")
        finally:
            await act(run, "tidy")

    async def body(run: Run) -> list[str]:
        by_hand = asyncio.Task(cleans_up(run))
        await act(run, "b")
        return [task.get_name() for task in asyncio.all_tasks() if task in (by_hand, asyncio.current_task())]

    driver = drive(body)
    assert driver.start() == ["b:1", "a:1"]
    assert driver.ok("b:1") == ["-a:1", "tidy:1"]
    driver.ok("tidy:1")
    assert sorted(driver.result) == ["main", "task-1"]


def test_a_task_made_by_hand_is_evicted(drive: Drive) -> None:
    seen: list[str] = []
    variable = contextvars.ContextVar[str]("variable", default="unset")

    async def waits(run: Run) -> None:
        token = variable.set("set")
        try:
            await act(run)
        finally:
            variable.reset(token)  # raises in any other context
            seen.append(variable.get())

    async def body(run: Run) -> None:
        await asyncio.Task(waits(run))

    driver = drive(body)
    driver.start()
    assert driver.run.evict() == []
    assert seen == ["unset"]


def test_a_task_made_by_hand_with_an_empty_context_is_evicted(drive: Drive) -> None:
    seen: list[str] = []

    async def waits(run: Run) -> None:
        try:
            await act(run)
        finally:
            seen.append("ended")

    async def body(run: Run) -> None:
        await asyncio.Task(waits(run), context=contextvars.Context())

    driver = drive(body)
    driver.start()
    assert driver.run.evict() == []
    assert seen == ["ended"]


# --- ids


def test_ids_are_numbered_by_name_in_order_of_call(drive: Drive) -> None:
    async def body(run: Run) -> None:
        await asyncio.gather(act(run, "a"), act(run, "b"), asyncio.sleep(1), act(run, "a"), asyncio.sleep(2))

    assert drive(body).start() == ["a:1", "b:1", "a:2", "timer:1", "timer:2"]


def test_a_manual_id_is_taken_as_it_is_and_does_not_count(drive: Drive) -> None:
    async def body(run: Run) -> None:
        await act(run, "a")
        ids = ["a:eu", "a:007", "a:0", "0", ":0", "x:0", "a:²", f"a:{'1' * 5000}"]
        await asyncio.gather(*[act(run, "a", one) for one in ids], act(run, "a"), act(run, "b", "b:9"))

    driver = drive(body)
    assert driver.start() == ["a:1"]
    assert driver.ok("a:1") == ["a:eu", "a:007", "a:0", "0", ":0", "x:0", "a:²", f"a:{'1' * 5000}", "a:2", "b:9"]


@pytest.mark.parametrize(
    "ids", [("x", "x"), ("a:1", None), (None, "a:1"), ("a:2", None, None), (None, None, "a:1")], ids=str
)
def test_an_id_used_twice_is_a_conflict(ids: tuple[str | None, ...], drive: Drive) -> None:
    async def body(run: Run) -> None:
        for op_id in ids:
            act(run, "a", op_id)

    driver = drive(body)
    driver.start()
    assert isinstance(driver.failure, ActivityIDConflictError)
    assert "used twice in order-1 (checkout)" in str(driver.failure)


# --- time


def test_time_is_that_of_what_happened_last(drive: Drive) -> None:
    seen: list[float] = []

    async def body(run: Run) -> None:
        loop = asyncio.get_running_loop()
        seen.append(loop.time())
        await act(run)
        seen.append(loop.time())
        await asyncio.sleep(2.5)
        seen.append(loop.time())

    driver = drive(body)
    driver.start(at=10 * SECOND)
    driver.at = 13 * SECOND
    driver.ok("a:1")
    assert driver.run.pending["timer:1"].issue.due == 15_500_000
    driver.fire("timer:1")
    assert seen == [10.0, 13.0, 15.5]


def test_time_never_goes_back(drive: Drive) -> None:
    async def body(run: Run) -> float:
        await act(run)
        return asyncio.get_running_loop().time()

    driver = drive(body)
    driver.start(at=10 * SECOND)
    driver.at = 9 * SECOND
    driver.ok("a:1")
    assert driver.result == 10.0


@pytest.mark.parametrize("begin", [1_700_000_000_000_000 + 999_983 * n for n in range(0, 400, 7)])
def test_after_a_timer_its_time_has_come(begin: int, drive: Drive) -> None:
    async def body(run: Run) -> int:
        loop = asyncio.get_running_loop()
        deadline, timers = loop.time() + 1.1, 0
        while loop.time() < deadline:
            await asyncio.sleep(deadline - loop.time())
            timers += 1
        return timers

    driver = drive(body)
    driver.start(at=begin)
    assert driver.run.pending["timer:1"].issue.due == begin + 1_100_000
    driver.fire("timer:1")
    assert driver.result == 1


def test_what_is_due_already_runs_in_this_advance(drive: Drive) -> None:
    async def body(run: Run) -> list[str]:
        loop, seen = asyncio.get_running_loop(), list[str]()
        loop.call_later(0, seen.append, "zero")
        loop.call_later(-5, seen.append, "negative")
        loop.call_at(loop.time(), seen.append, "now")
        loop.call_later(0, seen.append, "not run").cancel()
        await asyncio.sleep(0)
        return seen

    driver = drive(body)
    assert driver.start(at=SECOND) == []
    assert driver.result == ["zero", "negative", "now"]


def test_a_timer_can_be_withdrawn_once(drive: Drive) -> None:
    async def body(run: Run) -> None:
        handle = asyncio.get_running_loop().call_later(5, print)
        assert handle.when() == 5.0
        handle.cancel()
        handle.cancel()
        assert handle.cancelled()
        await act(run)

    assert drive(body).start() == ["timer:1", "-timer:1", "a:1"]


def test_an_endless_sleep_is_a_timer_far_away(drive: Drive) -> None:
    async def body(run: Run) -> None:
        await asyncio.gather(asyncio.sleep(math.inf), anyio.sleep_forever())

    driver = drive(body)
    assert driver.start() == ["timer:1", "timer:2"]
    due = driver.run.pending["timer:1"].issue.due
    assert due is not None
    assert 10**17 < due < 2**63


# --- the host

host_variable: contextvars.ContextVar[str] = contextvars.ContextVar("host_variable", default="unset")


def test_a_body_does_not_see_the_hosts_context(drive: Drive) -> None:
    async def body(run: Run) -> list[str]:
        before = host_variable.get()
        host_variable.set("body")
        return [before, str(await asyncio.create_task(inner()))]

    async def inner() -> str:
        return host_variable.get()

    host_variable.set("host")
    driver = drive(body)
    driver.start()
    assert driver.result == ["unset", "body"]
    assert host_variable.get() == "host"


def test_no_loop_is_left_running_without_a_host(drive: Drive) -> None:
    async def body(run: Run) -> None:
        assert asyncio.get_running_loop() is run
        await act(run)

    driver = drive(body)
    for _ in range(2):
        driver.ok("a:1") if driver.run.pending else driver.start()
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()


async def test_the_host_and_its_task_are_restored(drive: Drive) -> None:
    host, current, hooks = asyncio.get_running_loop(), asyncio.current_task(), sys.get_asyncgen_hooks()

    async def body(run: Run) -> None:
        task = asyncio.current_task()
        assert task is not None
        assert task.get_name() == "main"
        assert asyncio.all_tasks() == {task}
        assert current not in asyncio.all_tasks()
        await act(run)

    driver = drive(body)
    driver.start()
    assert asyncio.get_running_loop() is host
    assert asyncio.current_task() is current
    assert sys.get_asyncgen_hooks() == hooks
    assert current in asyncio.all_tasks()
    driver.ok("a:1")
    assert driver.result is None
    await asyncio.sleep(0)


async def test_the_host_is_restored_when_the_code_does_not_fit(drive: Drive) -> None:
    host, current = asyncio.get_running_loop(), asyncio.current_task()
    driver = drive(call)
    driver.start()
    with pytest.raises(DeterminismViolationError, match="b:1 is not awaited by the code"):
        driver.ok("b:1")
    assert asyncio.get_running_loop() is host
    assert asyncio.current_task() is current


def test_operations_belong_inside_the_body(drive: Drive) -> None:
    driver = drive(call)
    with pytest.raises(InvalidWorkflowStateError, match="outside the body"):
        act(driver.run)
    driver.start()
    with pytest.raises(InvalidWorkflowStateError, match="outside the body"):
        _ = driver.run.emit_effect(Kind.REGISTRATION, "note")


def test_asyncio_run_inside_a_body_is_refused_by_asyncio(drive: Drive) -> None:
    async def body(run: Run) -> None:
        coroutine = _unreachable()
        try:
            asyncio.run(coroutine)
        finally:
            coroutine.close()

    driver = drive(body)
    driver.start()
    assert isinstance(driver.failure, RuntimeError)


# --- tasks


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with 3.12")
def test_eager_tasks(drive: Drive) -> None:
    async def child(run: Run) -> str:
        operation = act(run, "eager")
        return str(await operation)

    async def body(run: Run) -> list[str]:
        loop: Any = asyncio.get_running_loop()
        quick = loop.create_task(asyncio.sleep(0, "quick"), eager_start=True)
        task = loop.create_task(child(run), eager_start=True)
        act(run, "after").cancel()
        return [await quick, await task]

    driver = drive(body)
    assert driver.start() == ["eager:1", "after:1", "-after:1"]
    driver.ok("eager:1", "done")
    assert driver.result == ["quick", "done"]


def test_operations_are_taken_where_coroutines_are(drive: Drive) -> None:
    async def body(run: Run) -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(act(run, name)) for name in "ab"]
        return [task.result() for task in tasks]

    driver = drive(body)
    assert driver.start() == ["a:1", "b:1"]
    driver.ok("b:1", "B")
    driver.ok("a:1", "A")
    assert driver.result == ["A", "B"]


def test_what_wait_returns_can_be_used_like_any_set(drive: Drive) -> None:
    async def body(run: Run) -> list[str]:
        seen: list[str] = []
        pending = {asyncio.create_task(call(run, name), name=name) for name in "abc"}
        for more in ("d", "e", None, None, None):
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            seen += [task.result() for task in done]
            if more is not None:
                pending |= {asyncio.create_task(call(run, more), name=more)}
            assert len(list(pending)) == len(pending)
            assert pending | done == {*pending, *done}
            assert copy.copy(pending) == pending.copy() == pending
            assert list(copy.copy(pending)) == list(pending)
            assert not pending & done
        assert not pending
        return seen

    driver = drive(body)
    driver.start()
    for name in "cdbea":
        driver.ok(f"{name}:1", name)
    assert driver.result == list("cdbea")


def test_a_set_from_wait_survives_all_its_methods(drive: Drive) -> None:
    async def body(run: Run) -> None:
        futures = [asyncio.Future[None]() for _ in range(6)]
        for future in futures:
            future.set_result(None)
        done, _ = await asyncio.wait(futures[:4])
        assert list(done) == futures[:4]
        done -= {futures[0], futures[1]}
        done |= {futures[4]}
        assert list(done) == [futures[2], futures[3], futures[4]]
        done.update([futures[1]])
        done.discard(futures[3])
        done.add(futures[5])
        assert set(done) == {futures[1], futures[2], futures[4], futures[5]}
        assert len(list(done)) == 4
        while done:
            assert done.pop() in futures
        with pytest.raises(KeyError):
            _ = done.pop()

    driver = drive(body)
    driver.start()
    assert driver.result is None


# --- anyio


def test_anyio_task_groups(drive: Drive) -> None:
    async def body(run: Run) -> list[str]:
        seen: list[str] = []

        async def child(name: str) -> None:
            seen.append(str(await act(run, name)))

        async with anyio.create_task_group() as group:
            group.start_soon(child, "a")
            group.start_soon(child, "b")
        return seen

    driver = drive(body)
    assert driver.start() == ["a:1", "b:1"]
    driver.ok("b:1", "B")
    driver.ok("a:1", "A")
    assert driver.result == ["B", "A"]


def test_anyio_task_group_with_a_failure(drive: Drive) -> None:
    async def body(run: Run) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(call, run, "a")
            group.start_soon(call, run, "b")

    driver = drive(body)
    driver.start()
    assert driver.error("a:1", "no") == ["-b:1"]
    assert isinstance(driver.failure, ExceptionGroup)


def test_anyio_move_on_after(drive: Drive) -> None:
    async def body(run: Run) -> str:
        with anyio.move_on_after(5) as scope:
            await act(run)
        return "moved on" if scope.cancelled_caught else "in time"

    late, early = drive(body), drive(body)
    assert late.start() == early.start() == ["timer:1", "a:1"]
    late.fire("timer:1")
    assert early.ok("a:1") == ["-timer:1"]
    assert (late.result, early.result) == ("moved on", "in time")


def test_anyio_scope_around_a_task_group_that_cleans_up(drive: Drive) -> None:
    """A cancelled scope cancels again in every iteration of the loop, which must not count as progress."""

    async def child(run: Run) -> None:
        try:
            await act(run, "a")
        finally:
            await act(run, "tidy")
            await act(run, "sweep")

    async def body(run: Run) -> bool:
        with anyio.move_on_after(5) as scope:
            async with asyncio.TaskGroup() as group:
                group.create_task(child(run))
        return scope.cancelled_caught

    driver = drive(body)
    driver.start()
    assert driver.fire("timer:1") == ["-a:1", "tidy:1"]
    assert driver.ok("tidy:1") == ["sweep:1"]
    driver.ok("sweep:1")
    assert driver.result is True


def test_anyio_scope_that_cancels_what_can_never_go_on(drive: Drive) -> None:
    async def body(run: Run) -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            while True:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()

    driver = drive(body)
    driver.start()
    assert isinstance(driver.failure, WorkflowStuckError)


def test_anyio_fail_after(drive: Drive) -> None:
    async def body(run: Run) -> None:
        with anyio.fail_after(5):
            await act(run)

    driver = drive(body)
    driver.start()
    assert driver.fire("timer:1") == ["-a:1"]
    assert isinstance(driver.failure, TimeoutError)


# --- effects


def test_an_effect_is_done_by_being_asked_for(drive: Drive) -> None:
    async def body(run: Run) -> None:
        await run.emit_effect(Kind.REGISTRATION, "note")
        await run.emit_effect(Kind.REGISTRATION, "note")
        await act(run)

    assert drive(body).start() == ["effect note:1", "effect note:2", "a:1"]

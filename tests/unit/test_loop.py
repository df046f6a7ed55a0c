"""The private loop: what it refuses, how a body ends, and that the host does not notice."""

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


class Player:
    """One run in a test, evicted at its end."""

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
def play() -> Iterator[Callable[[Body], Player]]:
    players: list[Player] = []

    def make(body: Body) -> Player:
        players.append(Player(body))
        return players[-1]

    yield make
    for player in players:
        assert player.run.evict() == []


Play = Callable[[Body], Player]


def act(run: Run, name: str = "a", op_id: str | None = None) -> Any:
    return run.issue_operation(Kind.ACTIVITY, name, decode, op_id=op_id)


async def call(run: Run, name: str = "a") -> Any:
    return await act(run, name)


def decode(resolution: Resolution) -> str:
    text = (resolution.value or b"").decode()
    if resolution.outcome is Outcome.ERROR:
        raise ValueError(text)
    return text


# --- what is refused


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
def test_the_loop_refuses_what_belongs_into_an_activity(name: str, play: Play) -> None:
    async def body(run: Run) -> None:
        awaitable = REFUSED[name](asyncio.get_running_loop())
        if awaitable is not None:
            await awaitable

    player = play(body)
    assert player.start() == []
    assert isinstance(player.failure, WorkflowIOError)
    assert f"loop.{name}()" in str(player.failure)
    assert "order-1 (checkout)" in str(player.failure)
    assert "activity" in str(player.failure)


def test_a_body_can_catch_the_refusal_and_go_on(play: Play) -> None:
    async def body(run: Run) -> str:
        try:
            await asyncio.to_thread(print)
        except WorkflowIOError:
            return str(await act(run))
        return "not reached"

    player = play(body)
    player.start()
    player.ok("a:1", "instead")
    assert player.result == "instead"


def test_no_method_of_a_loop_says_only_not_implemented() -> None:
    inherited = [name for name in dir(asyncio.AbstractEventLoop) if not name.startswith("__") and name not in vars(Run)]
    assert inherited == []


# --- bodies that can never go on


def test_a_body_that_spins_fails_and_names_its_tasks(play: Play) -> None:
    async def body(run: Run) -> None:
        act(run, "left")
        while True:
            await asyncio.sleep(0)

    player = play(body)
    assert player.start() == ["left:1", "-left:1"]
    assert isinstance(player.failure, WorkflowStuckError)
    assert "without waiting for anything" in str(player.failure)
    assert f"main at {__file__}:" in str(player.failure)


def test_a_body_that_spins_while_it_is_being_ended_fails_too(play: Play) -> None:
    async def stubborn() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)

    async def body(run: Run) -> None:
        task = asyncio.create_task(stubborn(), name="stubborn")
        del task

    player = play(body)
    player.start()
    assert "stubborn at" in str(player.failure)


def test_a_deadlock_fails_at_once_and_names_tasks_and_lines(play: Play) -> None:
    async def never(event: asyncio.Event) -> None:
        await event.wait()

    async def body(run: Run) -> None:
        await act(run)
        await asyncio.gather(
            asyncio.create_task(never(asyncio.Event()), name="left"),
            asyncio.create_task(never(asyncio.Event()), name="right"),
        )

    player = play(body)
    player.start()
    assert player.run.body_outcome is None
    player.ok("a:1")
    message = str(player.failure)
    assert isinstance(player.failure, WorkflowStuckError)
    assert "can never continue" in message
    first = never.__code__.co_firstlineno
    assert f"left at {__file__}:{first + 1}" in message
    assert f"right at {__file__}:{first + 1}" in message
    assert "main at" in message


def test_waiting_for_ever_for_something_that_can_happen_is_no_deadlock(play: Play) -> None:
    async def body(run: Run) -> None:
        act(run, "other")
        await asyncio.Event().wait()

    player = play(body)
    player.start()
    assert player.run.body_outcome is None


# --- how a body ends


def test_the_result_is_the_verdict(play: Play) -> None:
    async def body(run: Run) -> int:
        return 7

    player = play(body)
    assert player.start() == []
    assert player.result == 7


def test_an_error_is_the_verdict(play: Play) -> None:
    async def body(run: Run) -> None:
        await act(run)

    player = play(body)
    player.start()
    player.error("a:1", "declined")
    assert isinstance(player.failure, ValueError)
    assert str(player.failure) == "declined"


@pytest.mark.parametrize("in_child", [False, True])
def test_system_exit_in_a_body_is_its_failure_and_nobody_elses(in_child: bool, play: Play) -> None:
    async def leaves() -> None:
        sys.exit(3)

    async def body(run: Run) -> None:
        await (asyncio.create_task(leaves()) if in_child else leaves())

    player = play(body)
    player.start()
    assert isinstance(player.failure, SystemExit)
    assert player.failure.code == 3


def test_a_keyboard_interrupt_leaves_the_run_and_gives_the_host_its_loop_back(play: Play) -> None:
    async def body(run: Run) -> None:
        raise KeyboardInterrupt

    async def host() -> None:
        loop, current, hooks = asyncio.get_running_loop(), asyncio.current_task(), sys.get_asyncgen_hooks()
        with pytest.raises(KeyboardInterrupt):
            play(body).start()
        assert asyncio.get_running_loop() is loop
        assert asyncio.current_task() is current
        assert sys.get_asyncgen_hooks() == hooks
        await asyncio.sleep(0)

    asyncio.run(host())


def test_a_body_cancelled_by_itself_has_failed(play: Play) -> None:
    async def body(run: Run) -> None:
        task = asyncio.create_task(call(run))
        await asyncio.sleep(0)
        task.cancel()
        await task

    player = play(body)
    assert player.start() == ["a:1", "-a:1"]
    assert isinstance(player.failure, asyncio.CancelledError)


def test_cancelled_from_outside_after_cleaning_up(play: Play) -> None:
    async def body(run: Run) -> None:
        try:
            await act(run)
        finally:
            await act(run, "clean")

    player = play(body)
    player.start()
    assert player.cancel("by hand") == ["-a:1", "clean:1"]
    assert player.run.stopped
    assert player.run.body_outcome is None
    player.ok("clean:1")
    assert player.run.body_outcome == Cancelled("by hand")


def test_a_swallowed_cancellation_still_ends_as_cancelled(play: Play) -> None:
    async def body(run: Run) -> str:
        try:
            await act(run)
        except asyncio.CancelledError:
            return "swallowed"
        return "not reached"

    player = play(body)
    player.start()
    player.cancel()
    assert player.run.body_outcome == Cancelled(None)


def test_an_error_while_being_cancelled_still_ends_as_cancelled(play: Play) -> None:
    async def body(run: Run) -> None:
        try:
            await act(run)
        finally:
            raise ValueError("own")

    player = play(body)
    player.start()
    player.cancel("enough")
    assert player.run.body_outcome == Cancelled("enough")


def test_a_body_that_recurs_cleans_up_and_says_with_what(play: Play) -> None:
    async def body(run: Run) -> None:
        try:
            run.recur(b"next")
        finally:
            await act(run, "tidy")

    player = play(body)
    assert player.start() == ["tidy:1"]
    assert player.run.body_outcome is None
    player.ok("tidy:1")
    assert player.run.body_outcome == Recur(b"next")


def test_the_last_request_to_recur_counts(play: Play) -> None:
    async def body(run: Run) -> None:
        try:
            run.recur(b"one")
        finally:
            run.recur(b"two")

    player = play(body)
    player.start()
    assert player.run.body_outcome == Recur(b"two")


def test_recurring_outside_the_main_line_is_refused(play: Play) -> None:
    async def beside(run: Run) -> None:
        run.recur(b"next")

    async def body(run: Run) -> str:
        await asyncio.gather(beside(run))
        return "unreachable"

    player = play(body)
    player.start()
    assert isinstance(player.failure, InvalidWorkflowStateError)
    with pytest.raises(InvalidWorkflowStateError, match="outside the body"):
        player.run.recur(b"next")


def test_an_evicted_body_does_not_recur(play: Play) -> None:
    async def body(run: Run) -> None:
        try:
            await act(run)
        finally:
            run.recur(b"next")

    player = play(body)
    player.start()
    assert player.run.evict() == []
    assert player.run.body_outcome is None


def test_a_run_that_takes_too_long_fails_after_cleaning_up(play: Play) -> None:
    async def body(run: Run) -> None:
        try:
            await act(run)
        finally:
            await act(run, "clean")

    player = play(body)
    player.start()
    player.time_out()
    player.ok("clean:1")
    assert isinstance(player.failure, WorkflowTimeoutError)
    assert "order-1 (checkout)" in str(player.failure)


# --- what a body leaves running


def test_background_tasks_are_cancelled_at_the_end_and_may_clean_up(play: Play) -> None:
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

    player = play(body)
    assert player.start() == ["a:1", "x:1", "y:1"]
    assert player.ok("a:1") == ["-x:1", "-y:1", "clean:1", "clean:2"]
    assert player.run.body_outcome is None
    assert player.ok("clean:2", "second") == []
    assert player.run.body_outcome is None
    assert player.ok("clean:1", "first") == []
    assert player.result == "left 2"
    assert seen == ["x cancelled", "y cancelled", "second", "first"]
    assert player.run.problems == []


def test_a_failed_body_waits_for_its_background_tasks_too(play: Play) -> None:
    async def background(run: Run) -> None:
        try:
            await act(run, "x")
        finally:
            await act(run, "clean")

    async def body(run: Run) -> None:
        task = asyncio.create_task(background(run))
        await act(run)
        await task

    player = play(body)
    player.start()
    assert player.error("a:1", "no") == ["-x:1", "clean:1"]
    player.ok("clean:1")
    assert str(player.failure) == "no"


def test_a_generator_left_half_way_is_closed_at_the_end_of_the_run(play: Play) -> None:
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
        player = play(body)
        assert player.start() == ["a:1"]
        assert player.ok("a:1", "done") == ["clean:1"]
        assert player.run.body_outcome is None
        player.ok("clean:1", "cleaned")
        assert player.result == "done"

    asyncio.run(host())
    assert seen == ["Run", "cleaned"]


def test_a_generator_that_will_not_be_closed_does_not_keep_the_run(play: Play) -> None:
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

    player = play(body)
    player.start()
    assert player.result == "done"
    forever.clear()  # it is kept until the interpreter ends: then it may


def test_generators_that_have_ended_are_not_kept(play: Play) -> None:
    async def body(run: Run) -> None:
        async def generate() -> AsyncIterator[int]:
            yield 1

        for _ in range(1_000):
            async for _ in generate():
                pass
        await act(run)

    player = play(body)
    player.start()
    assert len(player.run._generators) < 100


def test_tasks_that_have_ended_are_not_kept(play: Play) -> None:
    async def body(run: Run) -> None:
        for _ in range(1_000):
            await asyncio.create_task(asyncio.sleep(0))
        await act(run)

    player = play(body)
    player.start()
    assert len(player.run._tasks) < 100


def test_operations_nobody_awaited_are_reported(play: Play) -> None:
    async def body(run: Run) -> None:
        act(run, "forgotten")
        task = asyncio.create_task(call(run, "b"))
        await act(run)
        task.cancel()

    player = play(body)
    player.start()
    player.ok("a:1")
    [problem] = player.run.problems
    assert problem.startswith("forgotten:1 was started at tests.unit.test_loop:")
    assert problem.endswith("but never awaited")


def test_exceptions_nobody_retrieved_are_reported(play: Play) -> None:
    async def fails() -> None:
        raise ValueError("unseen")

    async def body(run: Run) -> None:
        _ = asyncio.create_task(fails())  # noqa: RUF006
        await asyncio.sleep(0)
        await act(run)

    player = play(body)
    player.start()
    player.ok("a:1")
    assert any("unseen" in problem for problem in player.run.problems)


def test_an_exception_nobody_retrieves_is_reported_as_soon_as_its_task_has_gone(play: Play) -> None:
    """Its step is the last of an advance: nothing of the drain may keep the task."""

    async def fails(run: Run) -> None:
        await act(run, "a")
        raise ValueError("unseen")

    async def body(run: Run) -> None:
        forgotten = asyncio.create_task(fails(run))
        del forgotten
        await act(run, "b")

    player = play(body)
    assert player.start() == ["b:1", "a:1"]
    player.ok("a:1")
    assert [problem for problem in player.run.problems if "unseen" in problem]


def test_a_task_made_by_hand_is_a_task_of_the_run(play: Play) -> None:
    async def cleans_up(run: Run) -> None:
        try:
            await act(run, "a")
        finally:
            await act(run, "tidy")

    async def body(run: Run) -> list[str]:
        by_hand = asyncio.Task(cleans_up(run))
        await act(run, "b")
        return [task.get_name() for task in asyncio.all_tasks() if task in (by_hand, asyncio.current_task())]

    player = play(body)
    assert player.start() == ["b:1", "a:1"]
    assert player.ok("b:1") == ["-a:1", "tidy:1"]
    player.ok("tidy:1")
    assert sorted(player.result) == ["main", "task-1"]


def test_a_task_made_by_hand_is_evicted(play: Play) -> None:
    seen: list[str] = []
    variable = contextvars.ContextVar[str]("variable", default="unset")

    async def waits(run: Run) -> None:
        token = variable.set("set")
        try:
            await act(run)
        finally:
            variable.reset(token)  # raises in any context but its own
            seen.append(variable.get())

    async def body(run: Run) -> None:
        await asyncio.Task(waits(run))

    player = play(body)
    player.start()
    assert player.run.evict() == []
    assert seen == ["unset"]


def test_a_task_made_by_hand_with_an_empty_context_is_evicted(play: Play) -> None:
    seen: list[str] = []

    async def waits(run: Run) -> None:
        try:
            await act(run)
        finally:
            seen.append("ended")

    async def body(run: Run) -> None:
        await asyncio.Task(waits(run), context=contextvars.Context())

    player = play(body)
    player.start()
    assert player.run.evict() == []
    assert seen == ["ended"]


# --- ids


def test_ids_are_numbered_by_name_in_order_of_call(play: Play) -> None:
    async def body(run: Run) -> None:
        await asyncio.gather(act(run, "a"), act(run, "b"), asyncio.sleep(1), act(run, "a"), asyncio.sleep(2))

    assert play(body).start() == ["a:1", "b:1", "a:2", "timer:1", "timer:2"]


def test_a_manual_id_is_taken_as_it_is_and_does_not_count(play: Play) -> None:
    async def body(run: Run) -> None:
        await act(run, "a")
        ids = ["a:eu", "a:007", "a:0", "0", ":0", "x:0", "a:²", f"a:{'1' * 5000}"]
        await asyncio.gather(*[act(run, "a", one) for one in ids], act(run, "a"), act(run, "b", "b:9"))

    player = play(body)
    assert player.start() == ["a:1"]
    assert player.ok("a:1") == ["a:eu", "a:007", "a:0", "0", ":0", "x:0", "a:²", f"a:{'1' * 5000}", "a:2", "b:9"]


@pytest.mark.parametrize(
    "ids", [("x", "x"), ("a:1", None), (None, "a:1"), ("a:2", None, None), (None, None, "a:1")], ids=str
)
def test_an_id_used_twice_is_a_conflict(ids: tuple[str | None, ...], play: Play) -> None:
    async def body(run: Run) -> None:
        for op_id in ids:
            act(run, "a", op_id)

    player = play(body)
    player.start()
    assert isinstance(player.failure, ActivityIDConflictError)
    assert "used twice in order-1 (checkout)" in str(player.failure)


# --- time


def test_time_is_that_of_what_happened_last(play: Play) -> None:
    seen: list[float] = []

    async def body(run: Run) -> None:
        loop = asyncio.get_running_loop()
        seen.append(loop.time())
        await act(run)
        seen.append(loop.time())
        await asyncio.sleep(2.5)
        seen.append(loop.time())

    player = play(body)
    player.start(at=10 * SECOND)
    player.at = 13 * SECOND
    player.ok("a:1")
    assert player.run.pending["timer:1"].issue.due == 15_500_000
    player.fire("timer:1")
    assert seen == [10.0, 13.0, 15.5]


def test_time_never_goes_back(play: Play) -> None:
    async def body(run: Run) -> float:
        await act(run)
        return asyncio.get_running_loop().time()

    player = play(body)
    player.start(at=10 * SECOND)
    player.at = 9 * SECOND
    player.ok("a:1")
    assert player.result == 10.0


@pytest.mark.parametrize("begin", [1_700_000_000_000_000 + 999_983 * n for n in range(0, 400, 7)])
def test_after_a_timer_its_time_has_come(begin: int, play: Play) -> None:
    async def body(run: Run) -> int:
        loop = asyncio.get_running_loop()
        deadline, timers = loop.time() + 1.1, 0
        while loop.time() < deadline:
            await asyncio.sleep(deadline - loop.time())
            timers += 1
        return timers

    player = play(body)
    player.start(at=begin)
    assert player.run.pending["timer:1"].issue.due == begin + 1_100_000
    player.fire("timer:1")
    assert player.result == 1


def test_what_is_due_already_runs_in_this_advance(play: Play) -> None:
    async def body(run: Run) -> list[str]:
        loop, seen = asyncio.get_running_loop(), list[str]()
        loop.call_later(0, seen.append, "zero")
        loop.call_later(-5, seen.append, "negative")
        loop.call_at(loop.time(), seen.append, "now")
        loop.call_later(0, seen.append, "not run").cancel()
        await asyncio.sleep(0)
        return seen

    player = play(body)
    assert player.start(at=SECOND) == []
    assert player.result == ["zero", "negative", "now"]


def test_a_timer_can_be_withdrawn_once(play: Play) -> None:
    async def body(run: Run) -> None:
        handle = asyncio.get_running_loop().call_later(5, print)
        assert handle.when() == 5.0
        handle.cancel()
        handle.cancel()
        assert handle.cancelled()
        await act(run)

    assert play(body).start() == ["timer:1", "-timer:1", "a:1"]


def test_an_endless_sleep_is_a_timer_far_away(play: Play) -> None:
    async def body(run: Run) -> None:
        await asyncio.gather(asyncio.sleep(math.inf), anyio.sleep_forever())

    player = play(body)
    assert player.start() == ["timer:1", "timer:2"]
    due = player.run.pending["timer:1"].issue.due
    assert due is not None
    assert 10**17 < due < 2**63


# --- the host

host_variable: contextvars.ContextVar[str] = contextvars.ContextVar("host_variable", default="unset")


def test_a_body_does_not_see_the_hosts_context(play: Play) -> None:
    async def body(run: Run) -> list[str]:
        before = host_variable.get()
        host_variable.set("body")
        return [before, str(await asyncio.create_task(inner()))]

    async def inner() -> str:
        return host_variable.get()

    host_variable.set("host")
    player = play(body)
    player.start()
    assert player.result == ["unset", "body"]
    assert host_variable.get() == "host"


def test_no_loop_is_left_running_without_a_host(play: Play) -> None:
    async def body(run: Run) -> None:
        assert asyncio.get_running_loop() is run
        await act(run)

    player = play(body)
    for _ in range(2):
        player.ok("a:1") if player.run.pending else player.start()
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()


async def test_the_host_and_its_task_are_restored(play: Play) -> None:
    host, current, hooks = asyncio.get_running_loop(), asyncio.current_task(), sys.get_asyncgen_hooks()

    async def body(run: Run) -> None:
        task = asyncio.current_task()
        assert task is not None
        assert task.get_name() == "main"
        assert asyncio.all_tasks() == {task}
        assert current not in asyncio.all_tasks()
        await act(run)

    player = play(body)
    player.start()
    assert asyncio.get_running_loop() is host
    assert asyncio.current_task() is current
    assert sys.get_asyncgen_hooks() == hooks
    assert current in asyncio.all_tasks()
    player.ok("a:1")
    assert player.result is None
    await asyncio.sleep(0)


async def test_the_host_is_restored_when_the_code_does_not_fit(play: Play) -> None:
    host, current = asyncio.get_running_loop(), asyncio.current_task()
    player = play(call)
    player.start()
    with pytest.raises(DeterminismViolationError, match="b:1 is not awaited by the code"):
        player.ok("b:1")
    assert asyncio.get_running_loop() is host
    assert asyncio.current_task() is current


def test_operations_belong_inside_the_body(play: Play) -> None:
    player = play(call)
    with pytest.raises(InvalidWorkflowStateError, match="outside the body"):
        act(player.run)
    player.start()
    with pytest.raises(InvalidWorkflowStateError, match="outside the body"):
        _ = player.run.emit_effect(Kind.REGISTRATION, "note")


def test_asyncio_run_inside_a_body_is_refused_by_asyncio(play: Play) -> None:
    async def body(run: Run) -> None:
        coroutine = _unreachable()
        try:
            asyncio.run(coroutine)
        finally:
            coroutine.close()

    player = play(body)
    player.start()
    assert isinstance(player.failure, RuntimeError)


# --- tasks


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with 3.12")
def test_eager_tasks(play: Play) -> None:
    async def child(run: Run) -> str:
        operation = act(run, "eager")
        return str(await operation)

    async def body(run: Run) -> list[str]:
        loop: Any = asyncio.get_running_loop()
        quick = loop.create_task(asyncio.sleep(0, "quick"), eager_start=True)
        task = loop.create_task(child(run), eager_start=True)
        act(run, "after").cancel()
        return [await quick, await task]

    player = play(body)
    assert player.start() == ["eager:1", "after:1", "-after:1"]
    player.ok("eager:1", "done")
    assert player.result == ["quick", "done"]


def test_operations_are_taken_where_coroutines_are(play: Play) -> None:
    async def body(run: Run) -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(act(run, name)) for name in "ab"]
        return [task.result() for task in tasks]

    player = play(body)
    assert player.start() == ["a:1", "b:1"]
    player.ok("b:1", "B")
    player.ok("a:1", "A")
    assert player.result == ["A", "B"]


def test_what_wait_returns_can_be_used_like_any_set(play: Play) -> None:
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

    player = play(body)
    player.start()
    for name in "cdbea":
        player.ok(f"{name}:1", name)
    assert player.result == list("cdbea")


def test_a_set_from_wait_survives_all_its_methods(play: Play) -> None:
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

    player = play(body)
    player.start()
    assert player.result is None


# --- anyio


def test_anyio_task_groups(play: Play) -> None:
    async def body(run: Run) -> list[str]:
        seen: list[str] = []

        async def child(name: str) -> None:
            seen.append(str(await act(run, name)))

        async with anyio.create_task_group() as group:
            group.start_soon(child, "a")
            group.start_soon(child, "b")
        return seen

    player = play(body)
    assert player.start() == ["a:1", "b:1"]
    player.ok("b:1", "B")
    player.ok("a:1", "A")
    assert player.result == ["B", "A"]


def test_anyio_task_group_with_a_failure(play: Play) -> None:
    async def body(run: Run) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(call, run, "a")
            group.start_soon(call, run, "b")

    player = play(body)
    player.start()
    assert player.error("a:1", "no") == ["-b:1"]
    assert isinstance(player.failure, ExceptionGroup)


def test_anyio_move_on_after(play: Play) -> None:
    async def body(run: Run) -> str:
        with anyio.move_on_after(5) as scope:
            await act(run)
        return "moved on" if scope.cancelled_caught else "in time"

    late, early = play(body), play(body)
    assert late.start() == early.start() == ["timer:1", "a:1"]
    late.fire("timer:1")
    assert early.ok("a:1") == ["-timer:1"]
    assert (late.result, early.result) == ("moved on", "in time")


def test_anyio_scope_around_a_task_group_that_cleans_up(play: Play) -> None:
    """A cancelled scope cancels anew in every turn of the loop: it must not take that for work."""

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

    player = play(body)
    player.start()
    assert player.fire("timer:1") == ["-a:1", "tidy:1"]
    assert player.ok("tidy:1") == ["sweep:1"]
    player.ok("sweep:1")
    assert player.result is True


def test_anyio_scope_that_cancels_what_can_never_go_on(play: Play) -> None:
    async def body(run: Run) -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            while True:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()

    player = play(body)
    player.start()
    assert isinstance(player.failure, WorkflowStuckError)


def test_anyio_fail_after(play: Play) -> None:
    async def body(run: Run) -> None:
        with anyio.fail_after(5):
            await act(run)

    player = play(body)
    player.start()
    assert player.fire("timer:1") == ["-a:1"]
    assert isinstance(player.failure, TimeoutError)


# --- effects


def test_an_effect_is_done_by_being_asked_for(play: Play) -> None:
    async def body(run: Run) -> None:
        await run.emit_effect(Kind.REGISTRATION, "note")
        await run.emit_effect(Kind.REGISTRATION, "note")
        await act(run)

    assert play(body).start() == ["effect note:1", "effect note:2", "a:1"]

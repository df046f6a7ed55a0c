"""The patches of asyncio and anyio: one order in every replay and on every Python version; no effect outside of runs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from asyncio import all_tasks, as_completed, gather, wait_for
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import anyio.to_thread
import pytest

from romancy.core import asyncio_patches
from romancy.core.commands import Finish, Issue, Resolution, Withdraw
from romancy.core.loop import Run
from romancy.errors import WorkflowIOError
from romancy.model.history import Kind, Outcome

Body = Callable[[Run], Coroutine[Any, Any, Any]]


@pytest.fixture(autouse=True)
def _told() -> None:
    asyncio_patches.install()


def act(run: Run, name: str) -> Any:
    return run.issue_operation(Kind.ACTIVITY, name, lambda resolution: name)


def run_body(body: Body, *feeds: str) -> tuple[list[str], Any]:
    """The operations that the body issued while these operations ended, and its result."""
    run = Run(lambda: body(run), "order-1 (checkout)")
    asked: list[str] = []
    for kind, op in [(Kind.START, ""), *((Kind.ACTIVITY, op) for op in feeds)]:
        for command in run.advance(Resolution(kind, op, 0, Outcome.OK)):
            if isinstance(command, Issue):
                asked.append(command.op)
            elif isinstance(command, Withdraw):
                asked.append(f"-{command.op}")
    run.evict()
    if run.body_outcome is not None and not isinstance(run.body_outcome, Finish):
        raise AssertionError(run.body_outcome)
    return asked, run.body_outcome.value if run.body_outcome is not None else None


# --- anyio


@pytest.mark.parametrize("through", ["scopes", "tasks"])
def test_anyio_cancels_siblings_in_the_order_they_were_started(through: str) -> None:
    async def child(run: Run, name: str) -> None:
        try:
            with anyio.CancelScope():
                await act(run, name)
        finally:
            with anyio.CancelScope(shield=True):
                await act(run, f"undo-{name}")

    async def alone(run: Run, name: str) -> None:
        try:
            await act(run, name)
        finally:
            with anyio.CancelScope(shield=True):
                await act(run, f"undo-{name}")

    async def body(run: Run) -> None:
        async with anyio.create_task_group() as group:
            for name in "abcdefgh":
                group.start_soon(child if through == "scopes" else alone, run, name)
            await act(run, "go")
            group.cancel_scope.cancel()

    begun = ["go:1", *(f"{name}:1" for name in "abcdefgh")]
    ended = [one for name in "abcdefgh" for one in (f"-{name}:1", f"undo-{name}:1")]
    moved: list[object] = []
    for _ in range(20):
        asked, _result = run_body(body, "go:1")
        assert asked[: len(begun)] == begun
        assert [one for one in asked[len(begun) :] if one.startswith("undo")] == ended[1::2]
        moved.append([bytearray(100 + len(moved)) for _ in range(50)])  # the next objects get other addresses


def test_anyio_is_told_when_it_is_imported_in_a_run() -> None:
    program = """
import asyncio, sys
from romancy.core import asyncio_patches
from romancy.core.commands import Resolution
from romancy.core.loop import Run
from romancy.model.history import Kind
asyncio_patches.install()
assert "anyio" not in sys.modules
async def body():
    import anyio
    async with anyio.create_task_group() as group:
        return type(group._tasks).__name__, type(group.cancel_scope._child_scopes).__name__
async def outside():
    import anyio
    async with anyio.create_task_group() as group:
        return type(group._tasks).__name__
run = Run(body, "a run")
run.advance(Resolution(Kind.START, "", 0))
print(*run.body_outcome.value, asyncio.run(outside()), any("romancy" in type(one).__module__ for one in sys.meta_path))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["OrderedSet", "OrderedSet", "set", "False"], done.stderr


def test_anyio_threads_are_refused_by_name() -> None:
    async def body(run: Run) -> str:
        with pytest.raises(WorkflowIOError) as caught:
            await anyio.to_thread.run_sync(print)
        return str(caught.value)

    _, message = run_body(body)
    assert message.startswith("anyio.to_thread.run_sync() was called in order-1 (checkout).")
    assert asyncio.run(anyio.to_thread.run_sync(lambda: "outside")) == "outside"


# --- asyncio


def test_gather_of_ended_futures_takes_no_iteration() -> None:
    """As from Python 3.12 on, also with an earlier import of the function."""

    async def body(run: Run) -> list[str]:
        seen: list[str] = []
        done = run.create_future()
        done.set_result(1)
        run.call_soon(seen.append, "an iteration")
        assert [*await gather(done, return_exceptions=True)] == [1]
        seen.append("gathered")
        failed = run.create_future()
        failed.set_exception(ValueError("no"))
        run.call_soon(seen.append, "another round")
        with pytest.raises(ValueError, match="no"):
            await gather(done, failed, act(run, "never"))
        return seen

    assert run_body(body) == (["never:1", "-never:1"], ["gathered", "an iteration", "another round"])


def test_as_completed_begins_when_it_is_called() -> None:
    """As from Python 3.13 on, and with `async for`, on every version."""

    async def work(run: Run, name: str) -> str:
        return str(await act(run, name))

    async def body(run: Run) -> list[Any]:
        running: Any = as_completed([work(run, "a"), work(run, "b"), act(run, "c")], timeout=9)
        await asyncio.sleep(0)
        await act(run, "first")
        ended: list[Any] = [await next(running)]
        ended += [await one async for one in running]
        left = act(run, "left")
        late: Any = as_completed([left], timeout=-1)
        with pytest.raises(TimeoutError):
            await next(late)
        assert list(late) == []
        return ended

    asked, result = run_body(body, "b:1", "first:1", "c:1", "a:1")
    assert asked == ["c:1", "timer:1", "a:1", "b:1", "first:1", "-timer:1", "left:1", "-left:1"]
    assert result == ["b", "c", "a"]


def test_what_has_ended_is_completed_in_the_order_of_the_caller() -> None:
    async def body(run: Run) -> list[int]:
        for _ in range(27):  # puts the next futures into the last and the first slot of a set with eight slots
            run.next_seq()
        futures = [run.create_future() for _ in range(6)]
        for number, future in enumerate(futures):
            future.set_result(number)
        return [await one for one in as_completed(reversed(futures))]

    assert run_body(body)[1] == [5, 4, 3, 2, 1, 0]


def test_outside_a_run_asyncio_is_as_it_was() -> None:
    async def main() -> None:
        assert all_tasks() == {asyncio.current_task()}
        assert [*await gather(asyncio.sleep(0, 1), asyncio.sleep(0, 2))] == [1, 2]
        assert sorted([await one for one in as_completed([asyncio.sleep(0, 1), asyncio.sleep(0, 2)])]) == [1, 2]
        assert await wait_for(asyncio.sleep(0, 3), 5) == 3
        wrong: Any = asyncio.get_running_loop().create_future()
        with pytest.raises(TypeError):
            list(as_completed(wrong))
        done, pending = await asyncio.wait([asyncio.ensure_future(asyncio.sleep(0))])
        assert type(done) is set
        assert type(pending) is set

    asyncio.run(main())


def test_asyncio_gets_its_own_back() -> None:
    asyncio_patches.uninstall()
    try:
        assert asyncio.all_tasks.__code__.co_filename == asyncio.tasks.__file__
        asyncio.run(asyncio.wait_for(asyncio.sleep(0), 1))
    finally:
        asyncio_patches.install()
        asyncio_patches.install()
    assert asyncio.run(wait_for(asyncio.sleep(0, "again"), 1)) == "again"


def test_an_ordered_set_forgets_what_left_it() -> None:
    some = asyncio_patches.OrderedSet([1, 2, 3])
    some.discard(1)
    some.discard(9)
    some.remove(2)
    some.add(1)
    some.update({7})
    assert list(some) == [3, 1, 7]
    assert some._order == {3: None, 1: None}
    with pytest.raises(KeyError):
        some.remove(2)
    assert [some.pop(), some.pop(), some.pop()] == [3, 1, 7]
    with pytest.raises(KeyError):
        some.pop()

"""Eviction ends every coroutine of a run: without effects, without warnings, and without a trace in other runs."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import sys
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import anyio
import pytest

from romancy.core.commands import Resolution
from romancy.core.loop import Run
from romancy.model.history import Kind

Log = list[str]
Shape = Callable[[Run, Log], Coroutine[Any, Any, Any]]
SHAPES: dict[str, tuple[Shape, Log]] = {}
token_variable: contextvars.ContextVar[int] = contextvars.ContextVar("token_variable")


@pytest.fixture
def warnings_and_errors() -> Iterator[list[str]]:
    """The warnings, and the errors that no code can catch."""
    errors: list[str] = []
    hook = sys.unraisablehook
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        sys.unraisablehook = lambda unraisable: errors.append(repr(unraisable.exc_value))
        yield errors
        gc.collect()
        sys.unraisablehook = hook
    assert errors == []
    assert [str(warning.message) for warning in warned] == []


def op(run: Run, name: str = "a") -> Any:
    return run.issue_operation(Kind.ACTIVITY, name, lambda resolution: None)


async def call(run: Run, name: str = "a") -> Any:
    return await op(run, name)


def started(evicted: Shape, log: Log) -> Run:
    run: Run = Run(lambda: evicted(run, log), "evicted")
    run.advance(Resolution(Kind.START, "", 1))
    return run


def evicted(*expected: str) -> Callable[[Shape], Shape]:
    """A body that is evicted at its first wait, and the log that it must leave."""

    def register(fn: Shape) -> Shape:
        SHAPES[fn.__name__] = (fn, list(expected))
        return fn

    return register


@evicted("finally")
async def finally_with_an_operation(run: Run, log: Log) -> None:
    try:
        await op(run)
    finally:
        log.append("finally")
        await op(run, "clean")
        log.append("not reached")


@evicted()
async def finally_with_a_turn_of_the_loop(run: Run, log: Log) -> None:
    try:
        await op(run)
    finally:
        await asyncio.sleep(0)
        log.append("not reached")


@evicted()
async def finally_with_a_timer(run: Run, log: Log) -> None:
    try:
        await op(run)
    finally:
        await asyncio.sleep(5)
        log.append("not reached")


@evicted()
async def except_exception(run: Run, log: Log) -> None:
    while True:
        try:
            await op(run)
        except Exception:
            log.append("not reached")


@evicted()
async def except_cancelled(run: Run, log: Log) -> None:
    try:
        await op(run)
    except asyncio.CancelledError:
        log.append("not reached")
        raise


@evicted("x", "y")
async def task_group_in_a_timeout(run: Run, log: Log) -> None:
    async def child(name: str) -> None:
        try:
            await op(run, name)
        finally:
            log.append(name)

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(child("y"))
        group.create_task(child("x"))


@evicted()
async def gather_shield_and_wait_for(run: Run, log: Log) -> None:
    await asyncio.gather(asyncio.shield(call(run)), asyncio.wait_for(call(run), 5))


@evicted()
async def a_condition_that_takes_its_lock_again(run: Run, log: Log) -> None:
    condition = asyncio.Condition()
    async with asyncio.timeout(5), condition:
        await condition.wait()


@evicted()
async def two_waiters_of_a_condition(run: Run, log: Log) -> None:
    condition = asyncio.Condition()

    async def waits() -> None:
        async with condition:
            await condition.wait()

    task = asyncio.create_task(waits())
    await asyncio.sleep(0)
    async with condition:
        await op(run)
    await task


@evicted("reset")
async def token_of_a_context_variable(run: Run, log: Log) -> None:
    token = token_variable.set(1)
    try:
        await op(run)
    finally:
        token_variable.reset(token)
        log.append("reset")


@evicted("reset")
async def token_in_a_child(run: Run, log: Log) -> None:
    await asyncio.create_task(token_of_a_context_variable(run, log))


@evicted("generator")
async def generator_that_waits(run: Run, log: Log) -> None:
    async def generate() -> AsyncIterator[int]:
        try:
            yield 1
            await op(run)
            yield 2
        finally:
            log.append("generator")
            await op(run, "clean")
            log.append("not reached")

    async for _ in generate():
        pass


@evicted("generator")
async def generator_left_half_way(run: Run, log: Log) -> None:
    async def generate() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            log.append("generator")
            await op(run, "clean")
            log.append("not reached")

    async for _ in generate():
        break
    await op(run)


@evicted("generator", "generator")
async def generator_that_takes_a_turn_of_the_loop(run: Run, log: Log) -> None:
    async def generate() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            log.append("generator")
            try:
                await asyncio.sleep(0)
            finally:
                log.append("generator")

    async for _ in generate():
        break
    await op(run)


@evicted()
async def generator_that_will_not_end(run: Run, log: Log) -> None:
    async def generate() -> AsyncIterator[int]:
        while True:
            with contextlib.suppress(BaseException):
                yield 1

    async for _ in generate():
        await op(run)


@evicted("finally")
async def new_task_in_finally(run: Run, log: Log) -> None:
    try:
        await op(run)
    finally:
        log.append("finally")
        await asyncio.create_task(call(run, "clean"), name="clean")
        log.append("not reached")


@evicted("finally")
async def gather_in_finally(run: Run, log: Log) -> None:
    try:
        await op(run)
    finally:
        log.append("finally")
        await asyncio.gather(call(run, "c"), op(run, "d"), call(run, "e"))
        log.append("not reached")


@evicted("finally")
async def task_group_in_finally(run: Run, log: Log) -> None:
    try:
        await op(run)
    finally:
        log.append("finally")
        async with asyncio.TaskGroup() as group:
            group.create_task(call(run, "c"), name="c")
            group.create_task(call(run, "d"))
        log.append("not reached")


@evicted("finally")
async def timeout_and_wait_in_finally(run: Run, log: Log) -> None:
    try:
        await op(run)
    finally:
        log.append("finally")
        async with asyncio.timeout(5):
            await asyncio.wait([op(run, "c"), asyncio.create_task(call(run, "d"))])
        log.append("not reached")


@evicted("exit")
async def context_manager(run: Run, log: Log) -> None:
    @contextlib.asynccontextmanager
    async def hold() -> AsyncGenerator[None]:
        try:
            yield
        finally:
            log.append("exit")
            await op(run, "release")
            log.append("not reached")

    async with hold():
        await op(run)


@evicted()
async def anyio_scope(run: Run, log: Log) -> None:
    with anyio.move_on_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(call, run, "x")
            await op(run)


@evicted()
async def raises_in_finally(run: Run, log: Log) -> None:
    try:
        await op(run)
    finally:
        raise ValueError("its own")


@evicted("finally")
async def effect_in_finally(run: Run, log: Log) -> None:
    try:
        await op(run)
    finally:
        log.append("finally")
        await run.emit_effect(Kind.REGISTRATION, "note")
        log.append("not reached")


@evicted("child", "parent")
async def parent_and_child(run: Run, log: Log) -> None:
    async def child() -> None:
        try:
            await op(run)
        finally:
            log.append("child")

    try:
        await asyncio.create_task(child())
    finally:
        log.append("parent")


@pytest.mark.parametrize("name", SHAPES)
def test_nothing_is_issued_and_nothing_is_said(name: str, warnings_and_errors: list[str]) -> None:
    body, expected = SHAPES[name]
    log: Log = []
    run = started(body, log)
    assert run.pending
    tasks = list(run.live_tasks())
    before = list(run._commands)
    assert run.evict() == []
    assert log == expected
    assert run._commands == before
    assert not run.pending
    assert not run.live_tasks()
    assert all(task.get_coro().cr_frame is None for task in tasks)  # type: ignore[union-attr]
    assert run.problems == []


@pytest.mark.parametrize("name", SHAPES)
def test_another_run_that_is_advancing_is_not_disturbed(name: str, warnings_and_errors: list[str]) -> None:
    async def other(run: Run, log: Log) -> None:
        started(SHAPES[name][0], []).evict()
        gc.collect()
        log.append(type(asyncio.get_running_loop()).__name__)
        current = asyncio.current_task()
        assert current is not None
        log.append(current.get_name())
        await op(run, "own")

    log: Log = []
    run = started(other, log)
    assert list(run.pending) == ["own:1"]
    assert log == ["Run", "main"]
    assert run.problems == []
    run.evict()


@pytest.mark.parametrize("waits", ["operation", "timer", "task", "future"])
def test_code_that_swallows_everything_for_ever_is_given_up_and_told(waits: str, warnings_and_errors: list[str]) -> None:
    forever = [True]

    async def stubborn(run: Run, log: Log) -> None:
        while forever:
            with contextlib.suppress(BaseException):
                match waits:
                    case "operation":
                        await op(run)
                    case "timer":
                        await asyncio.sleep(3)
                    case "task":
                        await asyncio.create_task(call(run))
                    case _:
                        await asyncio.get_running_loop().create_future()

    async def body(run: Run, log: Log) -> None:
        _ = asyncio.create_task(stubborn(run, log), name="stubborn")  # noqa: RUF006
        await op(run, "main")

    run = started(body, [])
    assert run.evict() == ["stubborn of evicted cannot be ended: it swallows BaseException"]
    del run
    gc.collect()
    forever.clear()  # it is kept until the interpreter ends, so release it here


def test_a_finished_run_with_tasks_left_over_is_evicted_too(warnings_and_errors: list[str]) -> None:
    async def body(run: Run, log: Log) -> None:
        async def background() -> None:
            try:
                await op(run, "left")
            finally:
                log.append("cancelled")
                try:
                    await op(run, "clean")
                finally:
                    log.append("evicted")
                    await op(run, "not reached")

        task = asyncio.create_task(background())
        await asyncio.sleep(0)
        del task

    log: Log = []
    run = started(body, log)
    assert log == ["cancelled"]
    assert list(run.pending) == ["clean:1"]
    assert run.evict() == []
    assert log == ["cancelled", "evicted"]


def test_evicting_twice_does_nothing_more(warnings_and_errors: list[str]) -> None:
    log: Log = []
    run = started(finally_with_an_operation, log)
    assert run.evict() == run.evict() == []
    assert log == ["finally"]


def test_a_run_that_never_started_can_be_evicted(warnings_and_errors: list[str]) -> None:
    run: Run = Run(lambda: call(run), "new")
    assert run.evict() == []


async def test_the_host_keeps_its_task_and_its_loop(warnings_and_errors: list[str]) -> None:
    host, current = asyncio.get_running_loop(), asyncio.current_task()
    for body, _ in SHAPES.values():
        started(body, []).evict()
        assert asyncio.get_running_loop() is host
        assert asyncio.current_task() is current
    await asyncio.sleep(0)

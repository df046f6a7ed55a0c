"""A part of Python's own asyncio tests as workflow bodies (`make asyncio` runs all of them), and typical anyio programs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import anyio
import pytest
from tests.stdlib_asyncio.__main__ import SKIPPED
from tests.stdlib_asyncio.bodies import Body, BodyRun, check_replays

MODULES = ("test_locks.*", "test_queues.*", "test_taskgroups.*", "test_timeouts.*", "test_waitfor.*", "test_futures2.*")


def test_pythons_own_tests_of_asyncio_pass_in_workflows_and_in_their_replays() -> None:
    command = [sys.executable, "-m", "tests.stdlib_asyncio", *MODULES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.stdout.startswith(SKIPPED):
        pytest.skip(SKIPPED)
    assert done.returncode == 0, done.stdout + done.stderr


# --- anyio


async def _works(name: str, seconds: float, seen: list[str]) -> None:
    try:
        await anyio.sleep(seconds)
        seen.append(f"{name} worked")
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(1)
            seen.append(f"{name} cleaned up")


async def siblings(run: BodyRun) -> list[str]:
    """One of many tasks fails, and the others take time to clean up."""
    seen: list[str] = []

    async def fails() -> None:
        await anyio.sleep(5)
        raise ValueError("no")

    try:
        async with anyio.create_task_group() as group:
            for number in range(12):
                group.start_soon(_works, f"w{number}", 1 + number, seen)
            group.start_soon(fails)
    except* ValueError:
        seen.append("failed")
    return seen


async def scopes(run: BodyRun) -> list[Any]:
    """Nested scopes with deadlines, shielded and not."""
    seen: list[str] = []
    inner = anyio.CancelScope()
    with anyio.move_on_after(10) as outer:
        inner.deadline = anyio.current_time() + 3
        with inner:
            await _works("a", 5, seen)
        async with anyio.create_task_group() as group:
            for name in "bcdefg":
                group.start_soon(_works, name, 50, seen)
    try:
        with anyio.fail_after(2):
            await _works("h", 5, seen)
    except TimeoutError:
        seen.append("too late")
    return [seen, outer.cancelled_caught, inner.cancelled_caught, run.time()]


async def streams(run: BodyRun) -> list[str]:
    """A producer, three consumers, and a full stream."""
    seen: list[str] = []
    send, receive = anyio.create_memory_object_stream[int](2)

    async def consume(name: str, stream: Any) -> None:
        async with stream:
            async for item in stream:
                await anyio.sleep(item % 3)
                seen.append(f"{name} {item}")

    async with anyio.create_task_group() as group:
        async with receive:
            for name in "abc":
                group.start_soon(consume, name, receive.clone())
        async with send:
            for item in range(9):
                await send.send(item)
    return seen


async def locks(run: BodyRun) -> list[str]:
    """Locks, semaphores, limiters, events and conditions, with waiters that time out."""
    seen: list[str] = []
    lock, semaphore, limiter = anyio.Lock(), anyio.Semaphore(2), anyio.CapacityLimiter(2)
    event, condition = anyio.Event(), anyio.Condition()

    async def work(number: int) -> None:
        with anyio.move_on_after(2 + number):
            async with semaphore, limiter, lock:
                await anyio.sleep(2)
                seen.append(f"locked {number}")
        await event.wait()
        async with condition:
            await condition.wait()
            seen.append(f"notified {number}")

    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(work, number)
        await anyio.sleep(20)
        event.set()
        for _ in range(6):
            await anyio.sleep(1)
            async with condition:
                condition.notify(1)
    return seen


async def started(run: BodyRun) -> list[str]:
    """`start()` with a value, a child that outlives its starter, and a group that is cancelled from inside."""
    seen: list[str] = []

    async def serve(*, task_status: Any = anyio.TASK_STATUS_IGNORED) -> None:
        await anyio.sleep(1)
        task_status.started("ready")
        await _works("server", 100, seen)

    async with anyio.create_task_group() as group:
        seen.append(await group.start(serve))
        await anyio.sleep(3)
        group.cancel_scope.cancel()
    return seen


async def together(run: BodyRun) -> list[str]:
    """anyio's scopes around asyncio's groups and timeouts, and the other way round."""
    seen: list[str] = []
    with anyio.move_on_after(4):
        async with asyncio.TaskGroup() as group:
            for number in range(5):
                _ = group.create_task(_works(f"t{number}", 3 + number, seen))
    try:
        async with asyncio.timeout(3):
            async with anyio.create_task_group() as scoped:
                for number in range(5):
                    scoped.start_soon(_works, f"s{number}", 9, seen)
    except TimeoutError:
        seen.append("timed out")
    return seen


PROGRAMS: list[Body] = [siblings, scopes, streams, locks, started, together]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: str(program.__name__))
def test_anyio_is_the_same_live_and_replayed(program: Body) -> None:
    def counted(outcome: str) -> str:
        assert not outcome.startswith(("another order", "replay", "did not", "Workflow", "Assertion")), outcome
        return outcome

    outcomes = {counted(check_replays(program)[0]) for _ in range(3)}
    assert len(outcomes) == 1


def test_a_nondeterministic_program_is_found() -> None:
    """Shows that the tests above can fail."""
    times = [0]

    async def wobbles(run: BodyRun) -> None:
        await anyio.sleep(1)
        times[0] += 1
        run.call_soon(str if times[0] % 2 else int)
        await anyio.sleep(1)

    assert check_replays(wobbles)[0].startswith("another order of callbacks")

"""Lets synchronous functions wait for an asyncio driver, by greenlets.

The functions that decide writes are synchronous. On SQLite they run in the writer's thread. On a server they run on the
event loop: when one needs the database, `wait` passes the awaitable to the surrounding `run`, and the loop runs other tasks
meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from greenlet import getcurrent, greenlet

T = TypeVar("T")


async def run(work: Callable[[], T]) -> T:
    """Run a synchronous function that may call `wait`."""
    worker = greenlet(work)
    step: Any = worker.switch()
    while not worker.dead:
        try:
            value = await step
        except BaseException as error:  # cancellations too: the function that called `wait` must clean up
            step = worker.throw(error)
        else:
            step = worker.switch(value)
    return cast(T, step)


def wait(awaitable: Awaitable[T]) -> T:
    """Wait for an awaitable, in a function called by `run`."""
    parent = getcurrent().parent
    if parent is None:
        raise AssertionError("wait() outside of run()")
    return cast(T, parent.switch(awaitable))

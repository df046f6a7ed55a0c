"""Plain functions that wait for a driver of asyncio.

The deciding code is plain functions: on SQLite they run in the writer's thread. Here they run on the event loop: where one
needs the database, `wait` hands the awaitable to the `run` around it, and the loop goes on with other things meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from greenlet import getcurrent, greenlet

T = TypeVar("T")


async def run(work: Callable[[], T]) -> T:
    """Do plain work that may `wait`."""
    worker = greenlet(work)
    step: Any = worker.switch()
    while not worker.dead:
        try:
            value = await step
        except BaseException as error:  # a cancellation too: it is for whoever waits
            step = worker.throw(error)
        else:
            step = worker.switch(value)
    return cast(T, step)


def wait(awaitable: Awaitable[T]) -> T:
    """Wait for something in work that `run` does."""
    parent = getcurrent().parent
    if parent is None:
        raise AssertionError("wait() outside of run()")
    return cast(T, parent.switch(awaitable))

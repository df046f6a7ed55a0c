"""Executors run the jobs of a connection, one after the other: in a thread with a queue, or inline.

`ThreadExecutor` keeps the event loop free while the disk is slow. `InlineExecutor` runs each job in the caller's thread, so
that a test controls every interleaving.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from romancy.clock import monotonic

_log = logging.getLogger("romancy.store")
T = TypeVar("T")
Idle = Callable[[], None]


class Executor(Protocol):
    """Runs jobs in order."""

    async def run(self, job: Callable[[], T]) -> T:
        """Run a job; return its result, or raise its error."""
        ...

    def set_idle_callback(self, idle: Idle | None, every: float) -> None:
        """Call `idle` about every `every` seconds, between jobs; None: stop calling."""
        ...

    async def close(self) -> None:
        """Finish the queued jobs. Safe to call twice."""
        ...


class InlineExecutor:
    """Runs each job at once, in the caller's thread."""

    async def run(self, job: Callable[[], T]) -> T:
        """Run a job now."""
        return job()

    def set_idle_callback(self, idle: Idle | None, every: float) -> None:
        """Do nothing: there is no thread that could call it."""

    async def close(self) -> None:
        """Do nothing: jobs are never queued."""


class ThreadExecutor:
    """Runs jobs in a thread, from a queue."""

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._idle: tuple[Idle, float] | None = None
        self._next_idle = 0.0
        self._closed = False
        self._thread = threading.Thread(target=self._run_jobs, name=name, daemon=True)
        self._thread.start()

    async def run(self, job: Callable[[], T]) -> T:
        """Queue a job and wait for its result. A caller that is cancelled meanwhile does not cancel the job."""
        if self._closed:
            raise RuntimeError("This executor is closed.")
        return await self._submit(job)

    def set_idle_callback(self, idle: Idle | None, every: float) -> None:
        """Call `idle` in the thread about every `every` seconds, between jobs; None: stop calling."""
        self._idle = None if idle is None else (idle, every)
        self._queue.put(_no_op)  # The thread may be waiting without a timeout: a job makes it read the new one.

    async def close(self) -> None:
        """Finish the queued jobs and end the thread. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        last = self._submit(_no_op)
        self._queue.put(None)
        await last
        self._thread.join()  # It has finished its last job, so this returns at once.

    def _submit(self, job: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.put(lambda: run_job(job, future))
        return future

    def _run_jobs(self) -> None:
        while True:
            job = self._next_job()
            if job is None:
                return
            job()
            # Or the result, which the job refers to, would live until the next job comes.
            del job
            self._run_idle_callback()

    def _next_job(self) -> Callable[[], None] | None:
        try:
            return self._queue.get(timeout=None if self._idle is None else self._idle[1])
        except Empty:
            return _no_op

    def _run_idle_callback(self) -> None:
        idle = self._idle
        if idle is not None and (now := monotonic()) >= self._next_idle:
            self._next_idle = now + idle[1] / 2
            try:
                idle[0]()
            except Exception:  # the thread has to survive: it runs the jobs
                _log.exception("checking for commits of other processes failed, will try again")


def _no_op() -> None:
    pass


def run_job(job: Callable[[], T], future: asyncio.Future[T] | None) -> None:
    """Run a job; set its result or error on the future, if there is one."""
    try:
        result = job()
    except BaseException as error:  # also what a crash point raises: the caller gets it
        if future is not None:
            call_on_loop(future.get_loop(), _set_exception, future, error)
    else:
        if future is not None:
            call_on_loop(future.get_loop(), _set_result, future, result)


def call_on_loop(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: Any) -> None:
    """Call on the event loop from any thread; do nothing if the loop is closed."""
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:
        return


def _set_result(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _set_exception(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)

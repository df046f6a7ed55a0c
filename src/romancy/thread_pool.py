"""A thread pool that never makes a call that it has refused."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from typing import ParamSpec, TypeAlias, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class ThreadPool(Executor):
    """A thread pool that reserves a thread before it accepts a call.

    The pool of the standard library puts the call into its queue first. If the system then cannot start a thread, the caller
    gets an error, but the next idle thread makes the call all the same.

    As in the standard library, the process does not exit while a call runs; idle threads do not keep it alive.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._idle_count = 0
        """The number of idle threads; if negative, the number of calls that wait for a thread."""
        self._prepared = 0
        self._closed = False
        _OPEN.add(self)

    def prepare(self) -> None:
        """Reserve a thread for one more call. Raises `RuntimeError` if the system cannot start a thread."""
        with self._lock:
            self._prepare()

    def _prepare(self) -> None:
        if self._closed:
            raise RuntimeError(f"the thread pool {self._name} is closed")
        if self._idle_count <= 0 and len(self._threads) < self._most:
            name = f"{self._name}_{len(self._threads)}"
            thread = threading.Thread(target=_work, args=(self._calls,), name=name, daemon=True)
            thread.start()
            self._threads.append(thread)
            _ALIVE.add(thread)
            self._idle_count += 1
        self._idle_count -= 1
        self._prepared += 1

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submit a call for the thread that `prepare` reserved, or for one that is reserved now."""
        future: Future[T] = Future()

        def call(*, cancel: bool = False) -> None:
            if cancel:
                future.cancel()
            if not future.set_running_or_notify_cancel():
                self._release_thread()
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                self._release_thread()  # before the outcome is set: the caller that receives it may submit its next call
                future.set_exception(error)
            else:
                self._release_thread()
                future.set_result(result)

        with self._lock:
            if not self._prepared or self._closed:
                self._prepare()
            self._prepared -= 1
            self._calls.put(call)
        return future

    def _release_thread(self) -> None:
        with self._lock:
            self._idle_count += 1

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls, and end the threads when the accepted calls are made or cancelled."""
        with self._lock:
            first, self._closed = not self._closed, True
        if cancel_futures:
            for call in _drain(self._calls):
                call(cancel=True)
        if first or cancel_futures:
            for _ in self._threads:
                self._calls.put(None)
        _OPEN.discard(self)
        for thread in self._threads if wait else ():
            thread.join()


_Call: TypeAlias = Callable[..., None]
_OPEN: set[ThreadPool] = set()
_ALIVE: set[threading.Thread] = set()


def _work(calls: SimpleQueue[_Call | None]) -> None:
    while (call := calls.get()) is not None:
        call()
        del call  # otherwise its arguments and result stay alive until the next call arrives
    _ALIVE.discard(threading.current_thread())


def _drain(calls: SimpleQueue[_Call | None]) -> list[_Call]:
    """Empty a queue, and return the calls that were in it."""
    taken: list[_Call] = []
    while True:
        try:
            call = calls.get_nowait()
        except Empty:
            return taken
        if call is not None:
            taken.append(call)


@atexit.register
def _join_at_exit() -> None:
    for threads in list(_OPEN):
        threads.shutdown(wait=False)
    for thread in list(_ALIVE):
        thread.join()

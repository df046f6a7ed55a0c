"""A pool of threads in which a call that could not be begun is never made."""

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
    """Sees to a thread before it takes a call.

    The pool of the standard library puts the call into its queue first. If the system then has no thread to give, the caller
    gets an error, and the call is made all the same, by the next thread that has nothing to do.

    As there, a call that runs holds up the end of the process, and a thread that has nothing to do does not.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._idle_count = 0
        """How many threads have nothing to do; less than nothing: how many calls wait for one of them."""
        self._prepared = 0
        self._closed = False
        _OPEN.add(self)

    def prepare(self) -> None:
        """See to a thread for one more call. Raises `RuntimeError` if the system has none to give."""
        with self._lock:
            self._prepare()

    def _prepare(self) -> None:
        if self._closed:
            raise RuntimeError(f"the threads {self._name} are closed")
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
        """Make a call in the thread that was prepared for it, or in one that is seen to now."""
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
                self._release_thread()  # first: whoever gets the outcome may have the next call
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
        """Take no more calls, and end the threads when those that were taken are made, or cancelled."""
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
        del call  # what it holds must not live until the next comes
    _ALIVE.discard(threading.current_thread())


def _drain(calls: SimpleQueue[_Call | None]) -> list[_Call]:
    """What is in a queue, which is empty afterwards."""
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

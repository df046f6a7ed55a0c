"""Futures, tasks and timers of a run.

Each hashes by the order of its creation, never by its address, so that the sets of asyncio and of users are iterated in the
same order in every replay. The run's number is in the high bits, so that the weak sets that asyncio and anyio share between
all loops do not fill up with equal hashes (creation would cost O(live runs)).
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, TypeVar

from romancy.core.commands import Issue, Resolution

if TYPE_CHECKING:
    from romancy.core.loop import Run

R_co = TypeVar("R_co", covariant=True)


class Evicted(BaseException):
    """Raised by every durable operation while its run is being evicted. Not an `Exception`: user code lets it pass."""


class Recurring(BaseException):
    """Ends a body that recurs, its `finally` blocks included. Not an `Exception`: user code lets it pass."""


class RunFuture(asyncio.Future[Any]):
    """The future that `create_future` makes in a run."""

    __slots__ = ("_seq",)

    def __init__(self, loop: Run) -> None:
        super().__init__(loop=loop)
        self._seq = loop.next_seq()

    def __hash__(self) -> int:
        return self._seq


class EvictedFuture(asyncio.Future[Any]):
    """Stands in for every future, task and operation while the run is being evicted: awaiting it raises at once.

    Creating it does not raise: in `gather(tidy(), charge(ctx))`, the coroutine of `tidy()` would then be neither awaited nor
    closed. With `blocks`, awaiting it never returns, so that code that swallows every refusal yields to the loop.
    """

    def __init__(self, loop: Run, *, blocks: bool) -> None:
        super().__init__(loop=loop)
        self.blocks = blocks

    def __await__(self) -> Generator[Any, None, Any]:
        if self.blocks:
            return super().__await__()
        raise Evicted

    __iter__ = __await__

    def set_name(self, name: object) -> None:
        """Ignored; code may take it for a task."""

    def get_name(self) -> str:
        """A name, since code may take it for a task."""
        return "evicted"


if TYPE_CHECKING:
    # For a type checker an operation is both: a future (asyncio.wait, cancel, callbacks) and a coroutine (create_task,
    # TaskGroup). At run time it is a future only: asyncio.wait refuses coroutines, and the run's create_task takes
    # both.
    class Operation(asyncio.Future[R_co], Coroutine[Any, Any, R_co]):  # type: ignore[type-var]
        """A durable operation: issued when called, withdrawn by `cancel()`."""

        issue: Issue
        decode: Callable[[Resolution], Any]

        def __init__(self, loop: Run, issue: Issue, decode: Callable[[Resolution], Any]) -> None: ...
        def __await__(self) -> Generator[Any, None, R_co]: ...
        def send(self, value: Any, /) -> Any: ...
        def throw(self, *args: Any) -> Any: ...
        def close(self) -> None: ...

    class WaitOperation(Operation[R_co]):
        """A wait or a timer: once a body has awaited it, it may leave it pending without a warning."""

        awaited: bool

else:

    class Operation(RunFuture):
        """A durable operation: issued when called, withdrawn by `cancel()`."""

        __slots__ = ("decode", "issue")

        def __init__(self, loop, issue, decode):
            asyncio.Future.__init__(self, loop=loop)
            self._seq = loop.next_seq()
            self.issue = issue
            self.decode = decode

        def __class_getitem__(cls, item):
            return cls

        def cancel(self, msg=None):
            if not super().cancel(msg):
                return False
            self.get_loop().withdraw(self.issue.op)
            return True

    class WaitOperation(Operation):
        """A wait or a timer: once a body has awaited it, it may leave it pending without a warning."""

        __slots__ = ("awaited",)

        def __init__(self, loop, issue, decode):
            super().__init__(loop, issue, decode)
            self.awaited = False

        def add_done_callback(self, fn, *, context=None):
            self.awaited = True
            super().add_done_callback(fn, context=context)


class RunTask(asyncio.Task[Any]):
    """The task that `create_task` makes in a run."""

    __slots__ = ("_seq", "context")

    def __init__(
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        loop: Run,
        name: str | None,
        context: contextvars.Context,
        **options: Any,
    ) -> None:
        self._seq = loop.next_seq()
        self.context = context
        # CPython's default names count tasks of the whole process: they would differ in every replay.
        super().__init__(coro, loop=loop, name=name or loop.next_task_name(), context=context, **options)

    def __hash__(self) -> int:
        return self._seq


class ReadyHandle:
    """A callback that is ready to run; slimmer than `asyncio.Handle`."""

    __slots__ = ("args", "callback", "context")

    def __init__(self, callback: Callable[..., object] | None, args: tuple[Any, ...], context: contextvars.Context) -> None:
        self.callback = callback
        self.args = args
        self.context = context

    def cancel(self) -> None:
        """Prevent the call."""
        self.callback = None

    def cancelled(self) -> bool:
        """Whether the call was cancelled."""
        return self.callback is None


class Timer:
    """A durable timer; stands in for `asyncio.TimerHandle`."""

    __slots__ = ("_cancelled", "_loop", "_when", "handle", "issue")

    def __init__(self, loop: Run, when: float, issue: Issue, handle: ReadyHandle) -> None:
        self._loop = loop
        self._when = when
        self._cancelled = False
        self.issue = issue
        self.handle = handle

    def cancel(self) -> None:
        """Withdraw the timer."""
        if not self._cancelled:
            self._cancelled = True
            self.handle.cancel()
            self._loop.withdraw(self.issue.op)

    def cancelled(self) -> bool:
        """Whether the timer was withdrawn."""
        return self._cancelled

    def when(self) -> float:
        """The loop's time at which it is due."""
        return self._when

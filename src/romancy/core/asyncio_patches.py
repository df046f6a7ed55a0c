"""What asyncio and anyio must be told, so that inside a run they are deterministic, on every version of Python alike.

Outside a run each of them does what it always did.

- `set`, in `asyncio.tasks`: `asyncio.wait` keeps what it waits for in a set. Coroutines and bare futures hash by address, so
  the set's order differs from replay to replay. Inside a run it keeps the order of the caller. Replacing the name in the
  module reaches those who said `from asyncio import wait` too.
- `set`, in anyio's asyncio backend: a scope that is cancelled goes through sets of its tasks and of the scopes in it, which
  hash by address too. anyio is told when it is imported.
- `hash(gather(...))`: for users who put gathers into sets of their own. It follows the order of the run, as for all
  futures that the run makes.
- Functions that differ from version to version, or look at all loops, are led elsewhere by their code, which reaches those
  who had imported them before: `all_tasks` asks the run, and `as_completed` begins when it is called, in the order of the
  caller, as from 3.13. On 3.11 `wait_for` makes no task of its own, and `gather` is done at once when everything is that it
  is given, as from 3.12.
"""

from __future__ import annotations

import asyncio
import builtins
import importlib.util
import sys
from asyncio import events, tasks
from collections.abc import Callable, Iterable, Iterator
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from itertools import islice
from types import FunctionType, ModuleType
from typing import Any

from romancy.core.loop import Run

_ANYIO = "anyio._backends._asyncio"
_original: dict[str, Any] = {}
_romancy_stand_in: Any = None
"""Stands in the code below for a name that each function of asyncio finds in its own module."""


class OrderedSet(set[Any]):
    """A set that is iterated in the order it was filled. Users get it from `asyncio.wait` and may do anything to it."""

    __slots__ = ("_order",)

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self._order: dict[Any, None] = dict.fromkeys(items)
        super().__init__(self._order)

    def add(self, item: Any) -> None:
        """Add at the end, or leave where it is."""
        super().add(item)
        self._order[item] = None

    def discard(self, item: Any) -> None:
        """Take out, and forget where it was."""
        super().discard(item)
        self._order.pop(item, None)

    def remove(self, item: Any) -> None:
        """As `discard`, of what is there."""
        super().remove(item)
        self._order.pop(item, None)

    def __iter__(self) -> Iterator[Any]:
        found = [item for item in self._order if item in self]
        if len(found) < len(self):  # the others came by `|=` or `update`
            found += [item for item in super().__iter__() if item not in self._order]
        return iter(found)

    def pop(self) -> Any:
        """Take the first."""
        for item in self:
            self.remove(item)
            return item
        raise KeyError("pop from an empty set")


def install() -> None:
    """Tell them. Once for a process; a second call does nothing."""
    if "all_tasks" in _original:
        return
    tasks.set = _set  # type: ignore[attr-defined]
    tasks._GatheringFuture.__hash__ = _hash_gather  # type: ignore[attr-defined]
    _redirect("all_tasks", _all_tasks)
    _redirect("as_completed", _as_completed)
    if sys.version_info < (3, 12):
        _redirect("gather", _gather)
        _redirect("wait_for", _wait_for)
    backend = sys.modules.get(_ANYIO)
    if backend is not None:
        _patch_anyio(backend)
    elif not any(isinstance(one, _AnyioImportHook) for one in sys.meta_path):
        sys.meta_path.insert(0, _AnyioImportHook())


def uninstall() -> None:
    """Give asyncio its own names back (for tests that show what they cure)."""
    if "all_tasks" not in _original:
        return
    del tasks.set  # type: ignore[attr-defined]
    del tasks._GatheringFuture.__hash__  # type: ignore[attr-defined]
    for name, original in _original.items():
        getattr(tasks, name).__code__ = original.__code__
    _original.clear()


def _redirect(name: str, stand_in: Callable[..., Any]) -> None:
    """Lead every call of a function of `asyncio.tasks` to a stand-in, whoever has the function by whatever name."""
    function: Any = getattr(tasks, name)
    names: dict[str, Any] = function.__globals__
    original = FunctionType(function.__code__, names, name, function.__defaults__)
    original.__kwdefaults__ = function.__kwdefaults__
    _original[name] = original
    names[f"_romancy_{name}"] = stand_in
    led = _redirected_coroutine if asyncio.iscoroutinefunction(function) else _redirected
    function.__code__ = led.__code__.replace(co_names=(f"_romancy_{name}",), co_name=name, co_qualname=name)


def _redirected(*args: Any, **kwargs: Any) -> Any:
    return _romancy_stand_in(*args, **kwargs)


async def _redirected_coroutine(*args: Any, **kwargs: Any) -> Any:
    return await _romancy_stand_in(*args, **kwargs)


def _in_run() -> bool:
    return isinstance(events._get_running_loop(), Run)


# --- sets


def _set(*args: Any) -> Any:
    if not _in_run():
        return builtins.set[Any](*args)
    return dict.fromkeys(*args) if args else OrderedSet()


def _ordered_set(*args: Any) -> Any:
    return OrderedSet(*args) if _in_run() else builtins.set[Any](*args)


def _hash_gather(gathering: Any) -> int:
    loop = gathering._loop
    if not isinstance(loop, Run):
        return object.__hash__(gathering)
    if not hasattr(gathering, "_seq"):
        gathering._seq = loop.next_seq()
    seq: int = gathering._seq
    return seq


# --- functions


def _all_tasks(loop: Any = None) -> set[Any]:
    asked_loop = loop if loop is not None else events.get_running_loop()
    if isinstance(asked_loop, Run):
        return builtins.set[Any](asked_loop.live_tasks())
    found: set[Any] = _original["all_tasks"](loop)
    return found


def _as_completed(fs: Any, *, timeout: float | None = None) -> Any:
    run = events._get_running_loop()
    if not isinstance(run, Run) or asyncio.isfuture(fs) or asyncio.iscoroutine(fs):
        return _original["as_completed"](fs, timeout=timeout)
    return _AsCompleted(run, fs, timeout)


class _AsCompleted:
    """What has ended, in the order of its end: itself in `async for`, what it came to (awaited) in `for`."""

    def __init__(self, run: Run, awaitables: Iterable[Any], timeout: float | None) -> None:
        self._ended: asyncio.Queue[Any] = asyncio.Queue()
        self._open = dict.fromkeys([asyncio.ensure_future(one, loop=run) for one in dict.fromkeys(awaitables)])
        for future in self._open:
            future.add_done_callback(self._take)
        self._left = len(self._open)
        self._timer = run.call_later(timeout, self._time_out) if self._open and timeout is not None else None

    def __iter__(self) -> _AsCompleted:
        return self

    __aiter__ = __iter__

    def __next__(self) -> Any:
        if not self._left:
            raise StopIteration
        self._left -= 1
        return self._outcome()

    async def __anext__(self) -> Any:
        if not self._left:
            raise StopAsyncIteration
        self._left -= 1
        return await self._next()

    async def _outcome(self) -> Any:
        return (await self._next()).result()

    async def _next(self) -> Any:
        future = await self._ended.get()
        if future is None:
            raise TimeoutError
        return future

    def _take(self, future: Any) -> None:
        if future not in self._open:
            return
        del self._open[future]
        self._ended.put_nowait(future)
        if not self._open and self._timer is not None:
            self._timer.cancel()

    def _time_out(self) -> None:
        for future in self._open:
            future.remove_done_callback(self._take)
            self._ended.put_nowait(None)
        self._open.clear()


def _gather(*awaitables: Any, return_exceptions: bool = False) -> Any:
    run = events._get_running_loop()
    before = len(run._ready) if isinstance(run, Run) else 0
    gathering = _original["gather"](*awaitables, return_exceptions=return_exceptions)
    if isinstance(run, Run):
        # For each future that was done already, 3.11 puts off to the next round what 3.12 does now.
        for handle in list(islice(run._ready, before, None)):
            done = handle.callback
            if done is not None and getattr(done, "__qualname__", "") == "gather.<locals>._done_callback":
                handle.cancel()
                done(*handle.args)
    return gathering


async def _wait_for(fut: Any, timeout: float | None) -> Any:
    if not _in_run():
        return await _original["wait_for"](fut, timeout)
    if timeout is None or timeout > 0:
        async with asyncio.timeout(timeout):
            return await fut
    future = asyncio.ensure_future(fut)
    if not future.done():
        await tasks._cancel_and_wait(future, loop=events.get_running_loop())  # type: ignore[attr-defined]
    try:
        return future.result()
    except asyncio.CancelledError as error:
        raise TimeoutError from error


# --- anyio


class _AnyioImportHook(MetaPathFinder):
    """Sees to it that anyio's backend is told as soon as somebody imports it; nobody may ever do."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Of the backend: as it is found without this finder."""
        if fullname != _ANYIO:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            load = loader.exec_module

            def load_and_tell(module: ModuleType) -> None:
                load(module)
                _patch_anyio(module)

            loader.exec_module = load_and_tell
        return spec


def _patch_anyio(backend: Any) -> None:
    backend.set = _ordered_set
    in_thread = backend.AsyncIOBackend.run_sync_in_worker_thread

    def refuse_in_run(cls: Any, *args: Any, **kwargs: Any) -> Any:
        run = events._get_running_loop()
        if isinstance(run, Run):
            run.refuse("anyio.to_thread.run_sync")
        return in_thread(*args, **kwargs)

    backend.AsyncIOBackend.run_sync_in_worker_thread = classmethod(refuse_in_run)

"""Patches asyncio and anyio so that they are deterministic inside a run, and behave alike in all versions of Python.

Outside a run, the patched functions behave as before.

- `set`, in `asyncio.tasks`: `asyncio.wait` keeps its futures in a set. Coroutines and bare futures hash by address, so the
  order of the set differs from replay to replay. Inside a run it keeps the order of the caller. Replacing the name in the
  module also works for modules that have imported `wait` already.
- `set`, in anyio's asyncio backend: a cancelled scope iterates over sets of its tasks and inner scopes, which hash by
  address too. The backend is patched when it is imported.
- `hash(gather(...))`: for users who put the futures of `gather` into sets. It follows the order of creation, as for all
  futures that the run makes.
- Functions that differ between versions, or use all loops, get other code, which also works for modules that have imported
  them already. `all_tasks` returns the tasks of the run. `as_completed` starts when it is called, in the order of the
  caller, as since 3.13. On 3.11, `wait_for` makes no task of its own, and `gather` is done at once if all its futures are,
  as since 3.12.
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
"""A placeholder in `_redirected` and `_redirected_coroutine`; `_redirect` replaces it by a name of asyncio's module."""


class OrderedSet(set[Any]):
    """A set that is iterated in insertion order. Users get it from `asyncio.wait` and may call any method."""

    __slots__ = ("_order",)

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self._order: dict[Any, None] = dict.fromkeys(items)
        super().__init__(self._order)

    def add(self, item: Any) -> None:
        """Add an item at the end, unless it is in the set."""
        super().add(item)
        self._order[item] = None

    def discard(self, item: Any) -> None:
        """Remove an item, if it is in the set."""
        super().discard(item)
        self._order.pop(item, None)

    def remove(self, item: Any) -> None:
        """Remove an item. Raises KeyError if it is not in the set."""
        super().remove(item)
        self._order.pop(item, None)

    def __iter__(self) -> Iterator[Any]:
        found = [item for item in self._order if item in self]
        if len(found) < len(self):  # the rest was added by `|=` or `update`
            found += [item for item in super().__iter__() if item not in self._order]
        return iter(found)

    def pop(self) -> Any:
        """Remove and return the first item."""
        for item in self:
            self.remove(item)
            return item
        raise KeyError("pop from an empty set")


def install() -> None:
    """Install the patches, once for the process; a second call does nothing."""
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
    """Remove the patches from asyncio (for tests that show what they are needed for)."""
    if "all_tasks" not in _original:
        return
    del tasks.set  # type: ignore[attr-defined]
    del tasks._GatheringFuture.__hash__  # type: ignore[attr-defined]
    for name, original in _original.items():
        getattr(tasks, name).__code__ = original.__code__
    _original.clear()


def _redirect(name: str, stand_in: Callable[..., Any]) -> None:
    """Redirect every call of a function of `asyncio.tasks` to a stand-in, also by modules that have imported it already."""
    function: Any = getattr(tasks, name)
    names: dict[str, Any] = function.__globals__
    original = FunctionType(function.__code__, names, name, function.__defaults__)
    original.__kwdefaults__ = function.__kwdefaults__
    _original[name] = original
    names[f"_romancy_{name}"] = stand_in
    redirected = _redirected_coroutine if asyncio.iscoroutinefunction(function) else _redirected
    function.__code__ = redirected.__code__.replace(co_names=(f"_romancy_{name}",), co_name=name, co_qualname=name)


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


def _hash_gather(future: Any) -> int:
    loop = future._loop
    if not isinstance(loop, Run):
        return object.__hash__(future)
    if not hasattr(future, "_seq"):
        future._seq = loop.next_seq()
    seq: int = future._seq
    return seq


# --- functions


def _all_tasks(loop: Any = None) -> set[Any]:
    given_loop = loop if loop is not None else events.get_running_loop()
    if isinstance(given_loop, Run):
        return builtins.set[Any](given_loop.live_tasks())
    found: set[Any] = _original["all_tasks"](loop)
    return found


def _as_completed(fs: Any, *, timeout: float | None = None) -> Any:
    run = events._get_running_loop()
    if not isinstance(run, Run) or asyncio.isfuture(fs) or asyncio.iscoroutine(fs):
        return _original["as_completed"](fs, timeout=timeout)
    return _AsCompleted(run, fs, timeout)


class _AsCompleted:
    """Iterates over futures in the order in which they end: `async for` gives the futures, `for` awaitables of results."""

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
    future = _original["gather"](*awaitables, return_exceptions=return_exceptions)
    if isinstance(run, Run):
        # For each future that is done already, 3.11 schedules a callback where 3.12 calls it at once.
        for handle in list(islice(run._ready, before, None)):
            done = handle.callback
            if done is not None and getattr(done, "__qualname__", "") == "gather.<locals>._done_callback":
                handle.cancel()
                done(*handle.args)
    return future


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
    """Patches anyio's asyncio backend when it is imported, without importing it here."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find the backend as without this hook, and patch it after its import."""
        if fullname != _ANYIO:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            load = loader.exec_module

            def load_and_patch(module: ModuleType) -> None:
                load(module)
                _patch_anyio(module)

            loader.exec_module = load_and_patch
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

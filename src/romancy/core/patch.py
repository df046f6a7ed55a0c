"""What asyncio itself must be told, so that plain asyncio is deterministic inside a run.

Three names of `asyncio.tasks` are replaced and one method; outside a run each does what it always did.

- `set`: `asyncio.wait` and `as_completed` keep what they wait for in a set. Coroutines and bare futures hash by
  address, so the set's order differs from replay to replay. Inside a run it keeps the order of the caller. Replacing
  the name in the module reaches those who said `from asyncio import wait` too.
- `hash(gather(...))`: for users who put gathers into sets of their own. It follows the order of the run, as for all
  futures that the run makes.
- `all_tasks`: the registry is one weak set for all loops. Inside a run the run is asked.
- `wait_for`, on Python 3.11 only: 3.11 makes a task of what it waits for, later versions do not. With the later way a
  history made on 3.11 replays on 3.12 and newer.
"""

from __future__ import annotations

import asyncio
import builtins
import sys
from asyncio import events, tasks
from collections.abc import Iterable, Iterator
from typing import Any

from romancy.core.loop import Run

_original: dict[str, Any] = {}


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
    """Tell asyncio. Once for a process; a second call does nothing."""
    if _original:
        return
    _original["all_tasks"] = tasks.all_tasks
    tasks.set = _set  # type: ignore[attr-defined]
    tasks._GatheringFuture.__hash__ = _hash_gather  # type: ignore[attr-defined]
    asyncio.all_tasks = tasks.all_tasks = _all_tasks
    if sys.version_info < (3, 12):
        _original["wait_for"] = tasks.wait_for
        asyncio.wait_for = tasks.wait_for = _wait_for


def uninstall() -> None:
    """Give asyncio its own names back (for tests that show what they cure)."""
    if not _original:
        return
    del tasks.set  # type: ignore[attr-defined]
    del tasks._GatheringFuture.__hash__  # type: ignore[attr-defined]
    asyncio.all_tasks = tasks.all_tasks = _original.pop("all_tasks")
    if "wait_for" in _original:
        asyncio.wait_for = tasks.wait_for = _original.pop("wait_for")


def _in_run() -> bool:
    return isinstance(events._get_running_loop(), Run)


def _set(*args: Any) -> Any:
    if not _in_run():
        return builtins.set[Any](*args)
    return dict.fromkeys(*args) if args else OrderedSet()


def _hash_gather(gathering: Any) -> int:
    loop = gathering._loop
    if not isinstance(loop, Run):
        return object.__hash__(gathering)
    if not hasattr(gathering, "_seq"):
        gathering._seq = loop.next_seq()
    seq: int = gathering._seq
    return seq


def _all_tasks(loop: Any = None) -> set[Any]:
    asked = loop if loop is not None else events.get_running_loop()
    if isinstance(asked, Run):
        return builtins.set[Any](asked.live_tasks())
    found: set[Any] = _original["all_tasks"](loop)
    return found


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

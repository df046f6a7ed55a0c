"""Calls hooks outside the engine: a queue for each `Hooks` object, and a task that makes the queued calls in order.

    push ──► waiting ──► hook(info), awaited ──► next
               └─ full: dropped and logged

The engine only appends to a queue, so a hook that raises, is slow or never returns does not affect it.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from romancy.hooks import Hooks

_log = logging.getLogger("romancy.hooks")
MAX_QUEUED_CALLS = 100_000
"""How many calls may wait for a slow hook; calls beyond that are dropped."""
_YIELD_EVERY = 100
"""After so many calls the task yields to the event loop, in case no hook has awaited anything."""


class HookQueue:
    """Makes the calls of one `Hooks` object, one after another."""

    def __init__(self, hooks: Hooks) -> None:
        self._name = type(hooks).__qualname__
        self._waiting: deque[tuple[Callable[[Any], Any], Any]] = deque()
        self._dropped = 0
        self._has_calls = asyncio.Event()
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._task = asyncio.create_task(self._run(), name=f"romancy-hooks-{self._name}")

    def push(self, hook: Callable[[Any], Any], info: Any) -> None:
        """Queue a call."""
        if len(self._waiting) >= MAX_QUEUED_CALLS:
            self._drop()
            return
        self._waiting.append((hook, info))
        self._has_calls.set()
        self._is_empty.clear()

    def _drop(self) -> None:
        if not self._dropped:
            _log.warning("%s is too slow: %d calls are queued, and new ones are dropped", self._name, MAX_QUEUED_CALLS)
        self._dropped += 1

    async def _run(self) -> None:
        while True:
            await self._has_calls.wait()
            await self._drain()
            self._has_calls.clear()
            self._is_empty.set()
            if self._dropped:
                _log.warning("%s has caught up; %d calls were dropped", self._name, self._dropped)
                self._dropped = 0

    async def _drain(self) -> None:
        called = 0
        while self._waiting:
            hook, info = self._waiting.popleft()
            await self._call(hook, info)
            called += 1
            if called % _YIELD_EVERY == 0:
                await asyncio.sleep(0)

    async def _call(self, hook: Callable[[Any], Any], info: Any) -> None:
        try:
            result = hook(info)
            if inspect.isawaitable(result):
                await result
        except asyncio.CancelledError:
            if self._task.cancelling():
                raise
            self._log_failure(hook, info)  # this task was not cancelled: the error comes from inside the hook
        except KeyboardInterrupt:
            raise
        except BaseException:  # SystemExit too: a hook must not end its process
            self._log_failure(hook, info)

    def _log_failure(self, hook: Callable[[Any], Any], info: Any) -> None:
        name = getattr(hook, "__name__", "a hook")
        _log.exception("%s.%s failed for %r; nothing else is affected", self._name, name, info.instance_id)

    async def close(self, timeout: float) -> None:
        """Make the queued calls within `timeout` seconds; drop the rest."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(timeout, 0)):
                await self._is_empty.wait()
        if not self._is_empty.is_set():
            _log.warning("%s did not end in time: calls dropped: %d", self._name, len(self._waiting) + 1)
        await self.abandon()

    async def abandon(self) -> None:
        """Drop the queued calls and stop."""
        self._waiting.clear()
        self._task.cancel()
        await asyncio.wait({self._task}, timeout=1)

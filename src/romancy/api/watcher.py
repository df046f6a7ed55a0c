"""Polls the database once for all clients that watch instances.

    local commits ───────────────┐                            ┌──► watch of one instance: notified if it has changed
                                 ├─► notify ─► one query for ─┤
    notifications of commits     │             all watches    └──► watch of all instances: notified at each poll
    by other processes ──────────┘             (at most two per second)

Some databases do not notify a process of commits by other processes. The watcher therefore also polls without a
notification, but less often.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from romancy.errors import StoreError
from romancy.http.problems import UnavailableError
from romancy.model.instance import InstanceProgress

_LOG = logging.getLogger("romancy.http")

ReadProgress = Callable[[Sequence[str]], Awaitable[Mapping[str, InstanceProgress]]]


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """The intervals and limits of a watcher and its streams."""

    min_interval: float = 0.5
    """The minimum time between two polls, in seconds."""
    poll_interval: float = 2.0
    """The time in seconds after which the watcher polls even without a notification."""
    max_watches: int = 200
    """The maximum number of open watches."""
    ping_interval: float = 15.0
    """The time in seconds after which a silent stream sends a comment: proxies close silent connections."""
    max_duration: float = 60.0
    """The time in seconds after which a stream ends. Its client reconnects, perhaps to another process."""
    reconnect_ms: int = 1000
    """The time in milliseconds after which browsers reconnect."""


class Watch:
    """The watch of one client. It keeps only the latest progress, so several changes may become one."""

    def __init__(self, instance_id: str | None, progress: InstanceProgress | None) -> None:
        self.instance_id = instance_id
        self.progress = progress
        self.is_over = False
        self._change_event = asyncio.Event()

    def notify(self, progress: InstanceProgress | None) -> None:
        """Set the new progress; None in a watch of all instances."""
        self.progress = progress
        self._change_event.set()

    def end(self) -> None:
        """End the watch: no change will follow."""
        self.is_over = True
        self._change_event.set()

    async def wait_for_change(self) -> None:
        """Wait for the next change, or for the end."""
        await self._change_event.wait()
        self._change_event.clear()


class Watcher:
    """Polls the database while there are watches, and notifies those whose instance has changed."""

    def __init__(self, read_progress: ReadProgress, settings: WatchSettings | None = None) -> None:
        self._read_progress = read_progress
        self.settings = settings or WatchSettings()
        self._watches: set[Watch] = set()
        self._change_event: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def watch_count(self) -> int:
        """The number of open watches."""
        return len(self._watches)

    @property
    def is_running(self) -> bool:
        """Whether the watcher polls."""
        return self._task is not None

    def notify(self) -> None:
        """Poll soon: this process or another one has committed."""
        if self._change_event is not None:
            self._change_event.set()

    async def open(self, instance_id: str | None) -> Watch | None:
        """Open a watch of one instance, or of all; return None if there is no such instance.

        Raises `UnavailableError` if too many watches are open.
        """
        self._check_limit()
        progress = None
        if instance_id is not None:
            progress = (await self._read_progress([instance_id])).get(instance_id)
            if progress is None:
                return None
            self._check_limit()
        watch = Watch(instance_id, progress)
        self._watches.add(watch)
        if self._task is None or self._task.done():
            self._change_event = asyncio.Event()
            self._task = asyncio.create_task(self._run(self._change_event), name="romancy-watcher")
        return watch

    def close(self, watch: Watch) -> None:
        """Close a watch."""
        self._watches.discard(watch)
        if not self._watches:
            self._stop_polling()

    def end(self) -> None:
        """End all watches. New ones can be opened afterwards."""
        for watch in self._watches:
            watch.end()
        self._watches = set()
        self._stop_polling()

    def _stop_polling(self) -> None:
        task, self._task, self._change_event = self._task, None, None
        if task is not None:
            task.cancel()

    def _check_limit(self) -> None:
        if len(self._watches) >= self.settings.max_watches:
            raise UnavailableError(f"All {self.settings.max_watches} event streams are in use: poll instead.")

    async def _run(self, change_event: asyncio.Event) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.settings.poll_interval):
                    await change_event.wait()
            change_event.clear()
            try:
                await self._poll_once()
            except StoreError as error:
                _LOG.debug("the watched instances could not be read, will try again: %s", error)
            except Exception:  # without polls the clients would wait in vain
                _LOG.exception("reading the watched instances failed, will try again")
            await asyncio.sleep(self.settings.min_interval)

    async def _poll_once(self) -> None:
        ids = sorted({watch.instance_id for watch in self._watches if watch.instance_id is not None})
        found = await self._read_progress(ids) if ids else {}
        for watch in list(self._watches):
            if watch.instance_id is None:
                watch.notify(None)
            elif watch.instance_id not in found:
                watch.end()  # the instance was deleted
            elif (progress := found[watch.instance_id]) != watch.progress:
                watch.notify(progress)

"""Who watches, and one look at the database for all of them.

    commits here ──┐                        ┌──► a watch of one instance: told when it stands elsewhere
                   ├─► hear ─► round ─► look┤
    commits of     │   (at most two         └──► a watch of all: told that something has changed
    others, hints ─┘    each second)

A round asks the database once, for all instances that are watched. Nothing is heard of what other processes do on some
databases: so there are rounds without a hint, too, but fewer.
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
    """How often, and how many."""

    min_interval: float = 0.5
    """Seconds between two rounds, at least."""
    poll_interval: float = 2.0
    """Seconds after which there is a round even if nothing was heard."""
    max_watches: int = 200
    """How many may watch at a time."""
    ping_interval: float = 15.0
    """Seconds of silence after which a stream says that it is there: proxies close what is silent."""
    max_duration: float = 60.0
    """Seconds until a stream ends; whoever still wants it comes again, perhaps to another process."""
    reconnect_ms: int = 1000
    """Milliseconds after which browsers come again."""


class Watch:
    """What one watcher is told: only the last word counts."""

    def __init__(self, instance_id: str | None, progress: InstanceProgress | None) -> None:
        self.instance_id = instance_id
        self.progress = progress
        self.is_over = False
        self._change_event = asyncio.Event()

    def notify(self, progress: InstanceProgress | None) -> None:
        """It stands elsewhere now; of all: something has changed."""
        self.progress = progress
        self._change_event.set()

    def end(self) -> None:
        """There will be nothing more."""
        self.is_over = True
        self._change_event.set()

    async def wait_for_change(self) -> None:
        """Wait until something is told."""
        await self._change_event.wait()
        self._change_event.clear()


class Watcher:
    """Tells all who watch. It works while there are some."""

    def __init__(self, read_progress: ReadProgress, settings: WatchSettings | None = None) -> None:
        self._read_progress = read_progress
        self.settings = settings or WatchSettings()
        self._watches: set[Watch] = set()
        self._change_event: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def watch_count(self) -> int:
        """How many watch."""
        return len(self._watches)

    @property
    def is_running(self) -> bool:
        """It looks now and then."""
        return self._task is not None

    def notify(self) -> None:
        """Something was written, here or elsewhere."""
        if self._change_event is not None:
            self._change_event.set()

    async def open(self, instance_id: str | None) -> Watch | None:
        """Watch one instance, or all; None if there is no such instance. Raises `UnavailableError` if too many do."""
        self._check_limit()
        standing = None
        if instance_id is not None:
            standing = (await self._read_progress([instance_id])).get(instance_id)
            if standing is None:
                return None
            self._check_limit()
        watch = Watch(instance_id, standing)
        self._watches.add(watch)
        if self._task is None or self._task.done():
            self._change_event = asyncio.Event()
            self._task = asyncio.create_task(self._run(self._change_event), name="romancy-watcher")
        return watch

    def close(self, watch: Watch) -> None:
        """Watch no longer."""
        self._watches.discard(watch)
        if not self._watches:
            self._stop_polling()

    def end(self) -> None:
        """End all watches. Others may begin afterwards."""
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
            except Exception:  # who watches would wait in vain
                _LOG.exception("reading the watched instances failed, will try again")
            await asyncio.sleep(self.settings.min_interval)

    async def _poll_once(self) -> None:
        ids = sorted({one.instance_id for one in self._watches if one.instance_id is not None})
        found = await self._read_progress(ids) if ids else {}
        for watch in list(self._watches):
            if watch.instance_id is None:
                watch.notify(None)
            elif watch.instance_id not in found:
                watch.end()  # it was pruned
            elif (standing := found[watch.instance_id]) != watch.progress:
                watch.notify(standing)

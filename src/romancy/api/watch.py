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
from romancy.ingress.problems import UnavailableError
from romancy.model.instance import Standing

_LOG = logging.getLogger("romancy.http")

Look = Callable[[Sequence[str]], Awaitable[Mapping[str, Standing]]]


@dataclass(frozen=True, slots=True)
class Pace:
    """How often, and how many."""

    gap: float = 0.5
    """Seconds between two rounds, at least."""
    quiet: float = 2.0
    """Seconds after which there is a round even if nothing was heard."""
    most: int = 200
    """How many may watch at a time."""
    ping: float = 15.0
    """Seconds of silence after which a stream says that it is there: proxies close what is silent."""
    life: float = 60.0
    """Seconds until a stream ends; whoever still wants it comes again, perhaps to another process."""
    again: int = 1000
    """Milliseconds after which browsers come again."""


class Watch:
    """What one watcher is told: only the last word counts."""

    def __init__(self, instance_id: str | None, standing: Standing | None) -> None:
        self.instance_id = instance_id
        self.standing = standing
        self.over = False
        self._news = asyncio.Event()

    def tell(self, standing: Standing | None) -> None:
        """It stands elsewhere now; of all: something has changed."""
        self.standing = standing
        self._news.set()

    def end(self) -> None:
        """There will be nothing more."""
        self.over = True
        self._news.set()

    async def news(self) -> None:
        """Wait until something is told."""
        await self._news.wait()
        self._news.clear()


class Watcher:
    """Tells all who watch. It works while there are some."""

    def __init__(self, look: Look, pace: Pace | None = None) -> None:
        self._look = look
        self.pace = pace or Pace()
        self._watches: set[Watch] = set()
        self._heard: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def watches(self) -> int:
        """How many watch."""
        return len(self._watches)

    @property
    def works(self) -> bool:
        """It looks now and then."""
        return self._task is not None

    def hear(self) -> None:
        """Something was written, here or elsewhere."""
        if self._heard is not None:
            self._heard.set()

    async def open(self, instance_id: str | None) -> Watch | None:
        """Watch one instance, or all; None if there is no such instance. Raises `UnavailableError` if too many do."""
        self._check_room()
        standing = None
        if instance_id is not None:
            standing = (await self._look([instance_id])).get(instance_id)
            if standing is None:
                return None
            self._check_room()
        watch = Watch(instance_id, standing)
        self._watches.add(watch)
        if self._task is None or self._task.done():
            self._heard = asyncio.Event()
            self._task = asyncio.create_task(self._run(self._heard), name="romancy-watcher")
        return watch

    def close(self, watch: Watch) -> None:
        """Watch no longer."""
        self._watches.discard(watch)
        if not self._watches:
            self._rest()

    def end(self) -> None:
        """End all watches. Others may begin afterwards."""
        for watch in self._watches:
            watch.end()
        self._watches = set()
        self._rest()

    def _rest(self) -> None:
        task, self._task, self._heard = self._task, None, None
        if task is not None:
            task.cancel()

    def _check_room(self) -> None:
        if len(self._watches) >= self.pace.most:
            raise UnavailableError(f"{self.pace.most} watch already: ask again now and then instead.")

    async def _run(self, heard: asyncio.Event) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.pace.quiet):
                    await heard.wait()
            heard.clear()
            try:
                await self._round()
            except StoreError as error:
                _LOG.debug("could not look at what is watched, will try again: %s", error)
            except Exception:  # who watches would wait in vain
                _LOG.exception("looking at what is watched failed, will try again")
            await asyncio.sleep(self.pace.gap)

    async def _round(self) -> None:
        ids = sorted({one.instance_id for one in self._watches if one.instance_id is not None})
        found = await self._look(ids) if ids else {}
        for watch in list(self._watches):
            if watch.instance_id is None:
                watch.tell(None)
            elif watch.instance_id not in found:
                watch.end()  # it was pruned
            elif (standing := found[watch.instance_id]) != watch.standing:
                watch.tell(standing)

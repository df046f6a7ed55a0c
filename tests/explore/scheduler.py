"""Scheduler that decides which process continues next.

Every write, read and notification of a process stops at a gate until the scheduler releases it. Between two decisions all
processes run as far as they can. An order of decisions is therefore an order of events, and the same decisions give the same
order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias, cast

NotifyMode: TypeAlias = Literal["late", "at once", "never"]
"""When processes are notified of arrivals for their instances and of commits by other processes."""

_MAX_TURNS = 2_000


class LivelockError(AssertionError):
    """The tasks keep running without reaching a gate."""


class Gate(NamedTuple):
    """A call that waits to be released."""

    process: str
    what: str
    released: asyncio.Future[None]


@dataclass
class Scheduler:
    """Holds calls at gates and notifications in a queue; if `open`, nothing is held."""

    open: bool = True
    gates_batches: bool = False
    """The committer waits at a gate before it takes a batch, so that writes accumulate."""
    extra_gates: bool = False
    """Answers of reads and writes wait at gates, too."""
    notify_mode: NotifyMode = "late"
    split: bool = False
    """Each write is committed in its own transaction."""
    gates: list[Gate] = field(default_factory=list[Gate])
    notifications: dict[tuple[str, str], Callable[[], None]] = field(
        default_factory=dict[tuple[str, str], Callable[[], None]]
    )
    """Notifications that are not delivered yet, by process and subject."""

    async def gate(self, process: str, what: str) -> None:
        """Wait at a gate until released."""
        if self.open:
            return
        gate = Gate(process, what, asyncio.get_running_loop().create_future())
        self.gates.append(gate)
        try:
            await gate.released
        finally:
            if gate in self.gates:
                self.gates.remove(gate)

    async def extra_gate(self, process: str, what: str) -> None:
        """Like `gate`, if `extra_gates` is set."""
        if self.extra_gates:
            await self.gate(process, what)

    def notify(self, process: str, what: str, call: Callable[[], None]) -> None:
        """Deliver a notification now, later or never, according to `notify_mode`."""
        if self.open or self.notify_mode == "at once":
            call()
        elif self.notify_mode == "late":
            self.notifications.setdefault((process, what), call)

    def release(self, gate: Gate) -> None:
        """Release a gate."""
        self.gates.remove(gate)
        gate.released.set_result(None)


async def settle() -> None:
    """Run all tasks until they wait at gates. (Nothing here runs in threads or waits for real time.)"""
    ready = cast(Any, asyncio.get_running_loop())._ready
    await asyncio.sleep(0)
    for _ in range(_MAX_TURNS):
        if not ready:
            return
        await asyncio.sleep(0)
    raise LivelockError(f"after {_MAX_TURNS} turns of the event loop some tasks are still running")

"""The hand that decides who goes next.

Whatever a process writes, reads or is told stops at a gate until the hand lets it pass. Between two decisions everybody goes
on as far as they can. So an order of decisions is an order of events, and the same decisions give the same order again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias, cast

Tells: TypeAlias = Literal["late", "at once", "never"]
"""When processes are told that something has come for an instance of theirs, or that somebody else has written."""

_RESTLESS = 2_000


class Restless(AssertionError):
    """Something goes round in circles."""


class Gate(NamedTuple):
    """Somebody waits here for leave."""

    process: str
    what: str
    leave: asyncio.Future[None]


@dataclass
class Hand:
    """What everybody waits for. `open`: nothing stops anybody."""

    open: bool = True
    gathers: bool = False
    """A batch gathers as long as it is not let."""
    reads: bool = False
    """What was read is told late, too, and what was written is acknowledged late."""
    tells: Tells = "late"
    split: bool = False
    """Every write is a transaction of its own."""
    gates: list[Gate] = field(default_factory=list[Gate])
    calls: dict[tuple[str, str], Callable[[], None]] = field(default_factory=dict[tuple[str, str], Callable[[], None]])
    """What processes are to be told."""

    async def gate(self, process: str, what: str) -> None:
        """Wait for leave."""
        if self.open:
            return
        gate = Gate(process, what, asyncio.get_running_loop().create_future())
        self.gates.append(gate)
        try:
            await gate.leave
        finally:
            if gate in self.gates:
                self.gates.remove(gate)

    async def late(self, process: str, what: str) -> None:
        """As `gate`, where what was read or answered may be told late."""
        if self.reads:
            await self.gate(process, what)

    def pass_on(self, process: str, what: str, call: Callable[[], None]) -> None:
        """Have a process told something, some time."""
        if self.open or self.tells == "at once":
            call()
        elif self.tells == "late":
            self.calls.setdefault((process, what), call)

    def let(self, gate: Gate) -> None:
        """Give leave."""
        self.gates.remove(gate)
        gate.leave.set_result(None)


async def settle() -> None:
    """Let everybody go on as far as they can. (Nothing here runs in threads or waits for real time.)"""
    ready = cast(Any, asyncio.get_running_loop())._ready
    await asyncio.sleep(0)
    for _ in range(_RESTLESS):
        if not ready:
            return
        await asyncio.sleep(0)
    raise Restless(f"after {_RESTLESS} turns of the event loop everybody is still busy")

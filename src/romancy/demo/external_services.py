"""What is outside: a bank, a warehouse, a carrier, a mailbox. What they did stands in a ledger, one line of JSON each.

They honour idempotency keys: a request whose key they know changes nothing and gets the first answer again. The ledger
is a file, so it outlives every process; a lock on it makes "look for the key, then write" one step.

The bank has two odd sources of payment, as a payment provider's test cards are:

    slow card       the first answer never arrives, though the money was taken
    empty card      declined
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
from hashlib import blake2b
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel

from romancy import ActivityContext
from romancy.clock import SystemClock

LEDGER = "SHOP_LEDGER"
"""The environment variable that says where the ledger is."""
FORGETFUL = "SHOP_FORGETFUL"
"""The environment variable that makes the outside world ignore idempotency keys."""

SLOW_CARD = "slow card"
EMPTY_CARD = "empty card"
FOREVER = 300.0
"""Seconds of silence of the slow card: longer than anything here lasts."""

LedgerOutcome = Literal["applied", "repeated", "declined"]


class LedgerLine(BaseModel):
    """One request that reached the outside world, and what it did about it."""

    at: int
    order: str
    activity_id: str
    worker: str
    action: str
    what: str
    key: str
    outcome: LedgerOutcome

    @property
    def number(self) -> str:
        """The number of a receipt, reservation or parcel: the same for the same key."""
        return blake2b(self.key.encode(), digest_size=3).hexdigest().upper()


class WorkerReport(BaseModel):
    """What a worker process says to whoever started it, for the narration: one line on its standard output."""

    kind: Literal["ready", "ledger", "remark", "silence"]
    worker: str
    action: str = ""
    text: str = ""
    line: LedgerLine | None = None

    def send(self) -> None:
        """Say it."""
        sys.stdout.write(self.model_dump_json() + "\n")
        sys.stdout.flush()


class World:
    """The outside world, as one process sees it."""

    def __init__(self, ledger: Path, *, forgetful: bool = False) -> None:
        self._ledger = ledger
        self._forgetful = forgetful

    @classmethod
    def here(cls) -> Self:
        """The world this process was started in."""
        return cls(Path(os.environ[LEDGER]), forgetful=bool(os.environ.get(FORGETFUL)))

    def request(self, ctx: ActivityContext, action: str, what: str) -> LedgerLine:
        """Ask for something. It is done at once, and once for each idempotency key."""
        with self._ledger.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed, also by the death of the process
            file.seek(0)
            known = {line.key for line in _lines(file.read()) if line.outcome == "applied"}
            line = LedgerLine(
                at=SystemClock().now(),
                order=ctx.instance_id,
                activity_id=ctx.activity_id,
                worker=ctx.worker_id,
                action=action,
                what=what,
                key=ctx.idempotency_key,
                outcome=self._outcome(ctx.idempotency_key, what, known),
            )
            file.write(line.model_dump_json().encode() + b"\n")
        WorkerReport(kind="ledger", worker=ctx.worker_id, action=action, text=what, line=line).send()
        return line

    def _outcome(self, key: str, what: str, known: set[str]) -> LedgerOutcome:
        if EMPTY_CARD in what:
            return "declined"
        return "repeated" if key in known and not self._forgetful else "applied"

    async def answer(self, ctx: ActivityContext, line: LedgerLine, latency: float) -> None:
        """Wait for the bank's answer. Through the slow card the first one never comes."""
        if SLOW_CARD in line.what and not self._is_repeated(line):
            text = "the bank has taken the money; its answer does not come"
            WorkerReport(kind="silence", worker=ctx.worker_id, action=line.action, text=text).send()
            latency = FOREVER
        await asyncio.sleep(latency)

    def _is_repeated(self, line: LedgerLine) -> bool:
        return sum(other.key == line.key for other in read_ledger(self._ledger)) > 1

    def remark(self, ctx: ActivityContext, action: str, text: str) -> None:
        """Say something about an attempt that never reached the outside world."""
        WorkerReport(kind="remark", worker=ctx.worker_id, action=action, text=text).send()


def read_ledger(path: Path) -> list[LedgerLine]:
    """What the outside world did, in order."""
    return _lines(path.read_bytes()) if path.exists() else []


def _lines(raw: bytes) -> list[LedgerLine]:
    return [LedgerLine.model_validate_json(line) for line in raw.splitlines()]

"""The external services: a bank, a warehouse, a carrier, a mailbox. A log has one line of JSON for each request to them.

They honour idempotency keys: a request with a known key changes nothing and gets the first response again. The log is a
file, so it outlives every process; a lock on it makes "check for the key, then write" atomic.

The bank has two special sources of payment, like the test cards of a payment provider:

    slow card       the first response never arrives, although the money was taken
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

REQUEST_LOG = "SHOP_REQUEST_LOG"
"""The environment variable with the path of the request log."""
FORGETFUL = "SHOP_FORGETFUL"
"""The environment variable that makes the services ignore idempotency keys."""

SLOW_CARD = "slow card"
EMPTY_CARD = "empty card"
FOREVER = 300.0
"""Seconds without a response of the slow card: longer than the demonstration."""

RequestOutcome = Literal["applied", "repeated", "declined"]


class ServiceRequest(BaseModel):
    """One request that reached a service, with its outcome."""

    at: int
    order: str
    activity_id: str
    worker: str
    action: str
    what: str
    key: str
    outcome: RequestOutcome

    @property
    def number(self) -> str:
        """The number of a receipt, reservation or parcel: the same for the same key."""
        return blake2b(self.key.encode(), digest_size=3).hexdigest().upper()


class WorkerReport(BaseModel):
    """A report of a worker process to the driver, for the narration: one line on its standard output."""

    kind: Literal["ready", "request", "remark", "silence"]
    worker: str
    action: str = ""
    text: str = ""
    line: ServiceRequest | None = None

    def send(self) -> None:
        """Write the report."""
        sys.stdout.write(self.model_dump_json() + "\n")
        sys.stdout.flush()


class ExternalServices:
    """The client of the external services in one process."""

    def __init__(self, request_log: Path, *, forgetful: bool = False) -> None:
        self._request_log = request_log
        self._forgetful = forgetful

    @classmethod
    def here(cls) -> Self:
        """Return the services that the environment of this process configures."""
        return cls(Path(os.environ[REQUEST_LOG]), forgetful=bool(os.environ.get(FORGETFUL)))

    def request(self, ctx: ActivityContext, action: str, what: str) -> ServiceRequest:
        """Send a request. It takes effect at once, and once for each idempotency key."""
        with self._request_log.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed, even if the process dies
            file.seek(0)
            known = {line.key for line in _lines(file.read()) if line.outcome == "applied"}
            line = ServiceRequest(
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
        WorkerReport(kind="request", worker=ctx.worker_id, action=action, text=what, line=line).send()
        return line

    def _outcome(self, key: str, what: str, known: set[str]) -> RequestOutcome:
        if EMPTY_CARD in what:
            return "declined"
        return "repeated" if key in known and not self._forgetful else "applied"

    async def answer(self, ctx: ActivityContext, line: ServiceRequest, latency: float) -> None:
        """Wait for the bank's response. With the slow card the first one never arrives."""
        if SLOW_CARD in line.what and not self._is_repeated(line):
            text = "the bank has taken the money, but does not respond"
            WorkerReport(kind="silence", worker=ctx.worker_id, action=line.action, text=text).send()
            latency = FOREVER
        await asyncio.sleep(latency)

    def _is_repeated(self, line: ServiceRequest) -> bool:
        return sum(other.key == line.key for other in read_requests(self._request_log)) > 1

    def remark(self, ctx: ActivityContext, action: str, text: str) -> None:
        """Report an attempt that never reached a service."""
        WorkerReport(kind="remark", worker=ctx.worker_id, action=action, text=text).send()


def read_requests(path: Path) -> list[ServiceRequest]:
    """Return all requests, in order."""
    return _lines(path.read_bytes()) if path.exists() else []


def _lines(raw: bytes) -> list[ServiceRequest]:
    return [ServiceRequest.model_validate_json(line) for line in raw.splitlines()]

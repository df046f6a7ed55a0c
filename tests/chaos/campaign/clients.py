"""HTTP clients of the campaign, which log every request and answer (see `client_log`).

A client repeats a request of unknown outcome under the same id until it knows the outcome. A message has no id, so each
attempt contains its number and counts as a message of its own.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from tests.chaos.campaign import campaign_workflows
from tests.chaos.campaign.client_log import CallKind, ClientLog, State

TIMEOUT = 3.0
"""Seconds after which a client stops waiting for an answer."""
SOURCE = "client"
"""The source of events that clients send."""
_PAUSE = 0.1
_WORDS = ("one", "two", campaign_workflows.BYE)
_EVENT = {"content-type": "application/cloudevents+json"}
Open = Callable[[int], httpx.AsyncClient]
"""Opens a connection to the server with this number."""


@dataclass(frozen=True)
class _Request:
    kind: CallKind
    path: str
    content: dict[str, Any]
    about: str = ""


@dataclass(frozen=True)
class _Outcome:
    state: State
    why: str = ""
    status: int = 0

    @property
    def is_final(self) -> bool:
        """Whether a repetition would not change the outcome."""
        return self.state is State.DONE or (self.state is State.REFUSED and self.status < 500)


class Client:
    """One client, which serves several orders at a time."""

    def __init__(self, name: str, servers: int, open: Open, folder: Path, seed: int = 1, timeout: float = TIMEOUT) -> None:
        self.name = name
        self._connections = [open(number) for number in range(servers)]
        self._log = ClientLog(folder / f"{name}.calls")
        self._seed = f"{seed} {name}"
        self._rng = random.Random(self._seed)
        self._timeout = timeout
        self._number = 0
        self.served = 0
        """The number of orders served."""

    async def close(self) -> None:
        """Close the connections and the log."""
        for connection in self._connections:
            await connection.aclose()
        self._log.close()

    # --- load

    async def live(self, over: asyncio.Event, *, at_once: int) -> None:
        """Serve orders until the event is set, and finish those that were begun."""
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(self._serve_orders(over))
            group.create_task(self._publish_news(over))

    async def _serve_orders(self, over: asyncio.Event) -> None:
        while not over.is_set():
            await self._serve_one()
            await asyncio.sleep(self._rng.random() * 0.2)

    async def _serve_one(self) -> None:
        self._number += 1
        number = self._number
        instance = f"order-{self.name}-{number}"
        # Seeded for each order: concurrent orders that share a generator would differ from run to run.
        rng = random.Random(f"{self._seed} {number}")
        fate = rng.choices([campaign_workflows.OK, campaign_workflows.FAILS, campaign_workflows.CANCELLED], [8, 1, 1])[0]
        await self.start(campaign_workflows.order.name, instance, about=fate, number=number, fate=fate)
        calls = [self._pay(instance, number), self._send_words(instance, fate)]
        if rng.random() < 0.5:
            calls.reverse()
        for kind in calls:
            await kind
        if fate == campaign_workflows.CANCELLED or rng.random() < 0.1:
            await self.cancel(instance)
        if rng.random() < 0.3:
            await self._send_parcel(number, rng)
        self.served += 1

    async def _pay(self, instance: str, number: int) -> None:
        await self.event(f"paid-{instance}", campaign_workflows.PAID, {"amount": number}, subject=instance)

    async def _send_words(self, instance: str, fate: str) -> None:
        for word in _WORDS:
            if fate == campaign_workflows.CANCELLED and word == campaign_workflows.BYE:
                return
            await self.message(campaign_workflows.DESK, f"{instance}.{word}", to=instance)

    async def _send_parcel(self, number: int, rng: random.Random) -> None:
        whole = f"parcel-{self.name}-{number}"
        if rng.random() < 0.2:
            await self.wrong_event(f"{whole}-wrong")
        await self.event(whole, campaign_workflows.PARCEL, {"number": whole})

    async def _publish_news(self, over: asyncio.Event) -> None:
        number = 0
        while not over.is_set():
            number += 1
            channel = self._rng.choice([campaign_workflows.NEWS, campaign_workflows.LETTERS])
            await self.message(channel, f"{channel}-{self.name}.{number}")
            await asyncio.sleep(self._rng.random() * 0.3)

    # --- requests

    async def start(self, workflow: str, instance: str, *, about: str = "", **arguments: Any) -> None:
        """Start an instance; return when the outcome is known."""
        content = {"workflow": workflow, "instance_id": instance, "input": arguments}
        await self._retry_until_known(_Request(CallKind.START, "/api/v1/workflows/start", content, about), instance)

    async def event(self, id: str, type: str, data: Any, subject: str | None = None) -> None:
        """Send an event. After a refusal it may be sent under another id; the first event must then not be stored."""
        for attempt in range(1, 1000):
            whole = id if attempt == 1 else f"{id}#{attempt}"
            content = {"specversion": "1.0", "id": whole, "source": SOURCE, "type": type, "data": data}
            if subject is not None:
                content["subject"] = subject
            if await self._retry_until_known(_Request(CallKind.EVENT, "/", content, type), whole, giving_up=0.5):
                return

    async def wrong_event(self, id: str) -> None:
        """Send an invalid event."""
        content = {"specversion": "1.0", "id": id, "source": SOURCE, "type": campaign_workflows.PARCEL, "time": "yesterday"}
        request = _Request(CallKind.EVENT, "/", {**content, "data": {"number": id}}, "wrong")
        for _ in range(1000):
            if (await self._attempt(request, id)).is_final:
                return
            await asyncio.sleep(_PAUSE)

    async def message(self, channel: str, id: str, to: str | None = None) -> None:
        """Send a message until an attempt is acknowledged or the recipient has ended."""
        for attempt in range(1, 1000):
            tag = f"{id}#{attempt}"
            content = {"channel": channel, "data": tag, **({"to": to} if to else {})}
            outcome = await self._attempt(_Request(CallKind.MESSAGE, "/api/v1/messages", content, channel), tag)
            if outcome.is_final:
                return
            await asyncio.sleep(_PAUSE)

    async def cancel(self, instance: str) -> None:
        """Cancel an instance, unless it has ended."""
        await self._retry_until_known(_Request(CallKind.CANCEL, f"/cancel/{instance}", {}), instance)

    async def _retry_until_known(self, request: _Request, id: str, *, giving_up: float = 0.0) -> bool:
        """Repeat a request until the outcome is known; False if it was refused and the client gives up."""
        unknown = False
        while True:
            outcome = await self._attempt(request, id)
            unknown |= outcome.state is State.UNKNOWN
            if outcome.is_final:
                return True
            if outcome.state is State.REFUSED and not unknown and self._rng.random() < giving_up:
                return False
            await asyncio.sleep(_PAUSE * (1 + self._rng.random()))

    async def _attempt(self, request: _Request, id: str) -> _Outcome:
        self._log.write(request.kind, id, State.ASKED, request.about)
        outcome = await self._send(request)
        self._log.write(request.kind, id, outcome.state, request.about, outcome.why)
        return outcome

    async def _send(self, request: _Request) -> _Outcome:
        connection = self._rng.choice(self._connections)
        headers = _EVENT if request.kind is CallKind.EVENT else {"content-type": "application/json"}
        try:
            async with asyncio.timeout(self._timeout):
                answer = await connection.post(request.path, content=json.dumps(request.content), headers=headers)
        except (httpx.TransportError, TimeoutError) as error:
            return _Outcome(State.UNKNOWN, repr(error))
        return _outcome_of(answer)


def _outcome_of(answer: httpx.Response) -> _Outcome:
    """The outcome of a response. A 503 may follow a COMMIT of unknown outcome, unless the app was shutting down."""
    if answer.is_success:
        return _Outcome(State.DONE)
    why = f"{answer.status_code} {answer.text[:300]}"
    if answer.status_code < 500:
        return _Outcome(State.REFUSED, why, answer.status_code)
    return _Outcome(State.REFUSED if "is shutting down" in why else State.UNKNOWN, why, answer.status_code)


@asynccontextmanager
async def open_clients(
    names: list[str], servers: int, open: Open, folder: Path, seed: int, timeout: float = TIMEOUT
) -> AsyncIterator[list[Client]]:
    """Clients for the duration of the context."""
    clients = [Client(name, servers, open, folder, seed, timeout) for name in names]
    try:
        yield clients
    finally:
        for client in clients:
            await client.close()

"""Clients that know the town over HTTP alone, and keep books (see `ledger`).

What they hear nothing of they ask for again, under the same id, until they know. A message has no id of its own: it is sent
with the number of the try in it, so that each try is a message by itself.
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
from tests.chaos.campaign.client_log import CallKind, Ledger, State

TIMEOUT = 3.0
"""Seconds after which nobody waits for an answer any more."""
SOURCE = "client"
"""Of the events that clients send."""
_PAUSE = 0.1
_WORDS = ("one", "two", campaign_workflows.BYE)
_EVENT = {"content-type": "application/cloudevents+json"}
Open = Callable[[int], httpx.AsyncClient]
"""A connection to the server of that number."""


@dataclass(frozen=True)
class _Request:
    kind: CallKind
    path: str
    content: dict[str, Any]
    about: str = ""


@dataclass(frozen=True)
class _Heard:
    state: State
    why: str = ""
    status: int = 0

    @property
    def is_final(self) -> bool:
        """Asking again would not change it."""
        return self.state is State.DONE or (self.state is State.REFUSED and self.status < 500)


class Client:
    """One client, with several orders at a time."""

    def __init__(self, name: str, servers: int, open: Open, folder: Path, seed: int = 1, timeout: float = TIMEOUT) -> None:
        self.name = name
        self._lines = [open(number) for number in range(servers)]
        self._ledger = Ledger(folder / f"{name}.ledger")
        self._seed = f"{seed} {name}"
        self._chance = random.Random(self._seed)
        self._timeout = timeout
        self._number = 0
        self.served = 0
        """How many orders it has brought to their end."""

    async def close(self) -> None:
        """No more."""
        for line in self._lines:
            await line.aclose()
        self._ledger.close()

    # --- what it does

    async def live(self, over: asyncio.Event, *, at_once: int) -> None:
        """Until it is over; what was begun is brought to its end."""
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(self._serve_orders(over))
            group.create_task(self._tell_news(over))

    async def _serve_orders(self, over: asyncio.Event) -> None:
        while not over.is_set():
            await self._serve_one()
            await asyncio.sleep(self._chance.random() * 0.2)

    async def _serve_one(self) -> None:
        self._number += 1
        number = self._number
        instance = f"order-{self.name}-{number}"
        # Drawn for each order: orders served at the same time must not draw for each other, or every run has others.
        chance = random.Random(f"{self._seed} {number}")
        fate = chance.choices([campaign_workflows.OK, campaign_workflows.FAILS, campaign_workflows.CANCELLED], [8, 1, 1])[0]
        await self.start(campaign_workflows.order.name, instance, about=fate, number=number, fate=fate)
        calls = [self._pay(instance, number), self._say_words(instance, fate)]
        if chance.random() < 0.5:
            calls.reverse()
        for kind in calls:
            await kind
        if fate == campaign_workflows.CANCELLED or chance.random() < 0.1:
            await self.cancel(instance)
        if chance.random() < 0.3:
            await self._send_parcel(number, chance)
        self.served += 1

    async def _pay(self, instance: str, number: int) -> None:
        await self.event(f"paid-{instance}", campaign_workflows.PAID, {"amount": number}, subject=instance)

    async def _say_words(self, instance: str, fate: str) -> None:
        for word in _WORDS:
            if fate == campaign_workflows.CANCELLED and word == campaign_workflows.BYE:
                return
            await self.message(campaign_workflows.DESK, f"{instance}.{word}", to=instance)

    async def _send_parcel(self, number: int, chance: random.Random) -> None:
        whole = f"parcel-{self.name}-{number}"
        if chance.random() < 0.2:
            await self.wrong_event(f"{whole}-wrong")
        await self.event(whole, campaign_workflows.PARCEL, {"number": whole})

    async def _tell_news(self, over: asyncio.Event) -> None:
        number = 0
        while not over.is_set():
            number += 1
            channel = self._chance.choice([campaign_workflows.NEWS, campaign_workflows.LETTERS])
            await self.message(channel, f"{channel}-{self.name}.{number}")
            await asyncio.sleep(self._chance.random() * 0.3)

    # --- what it asks for

    async def start(self, workflow: str, instance: str, *, about: str = "", **arguments: Any) -> None:
        """Start an instance; return when that is known."""
        content = {"workflow": workflow, "instance_id": instance, "input": arguments}
        await self._insist(_Request(CallKind.START, "/api/v1/workflows/start", content, about), instance)

    async def event(self, id: str, type: str, data: Any, subject: str | None = None) -> None:
        """Send an event; one that a server has not taken gets another id now and then, and the first must not appear."""
        for attempt in range(1, 1000):
            whole = id if attempt == 1 else f"{id}#{attempt}"
            content = {"specversion": "1.0", "id": whole, "source": SOURCE, "type": type, "data": data}
            if subject is not None:
                content["subject"] = subject
            if await self._insist(_Request(CallKind.EVENT, "/", content, type), whole, giving_up=0.5):
                return

    async def wrong_event(self, id: str) -> None:
        """Send an event that cannot be taken."""
        content = {"specversion": "1.0", "id": id, "source": SOURCE, "type": campaign_workflows.PARCEL, "time": "yesterday"}
        request = _Request(CallKind.EVENT, "/", {**content, "data": {"number": id}}, "wrong")
        for _ in range(1000):
            if (await self._ask(request, id)).is_final:
                return
            await asyncio.sleep(_PAUSE)

    async def message(self, channel: str, id: str, to: str | None = None) -> None:
        """Send a message until one try of it is acknowledged, or its recipient is gone."""
        for attempt in range(1, 1000):
            tag = f"{id}#{attempt}"
            content = {"channel": channel, "data": tag, **({"to": to} if to else {})}
            heard = await self._ask(_Request(CallKind.MESSAGE, "/api/v1/messages", content, channel), tag)
            if heard.is_final:
                return
            await asyncio.sleep(_PAUSE)

    async def cancel(self, instance: str) -> None:
        """Cancel; that it has ended already is an answer too."""
        await self._insist(_Request(CallKind.CANCEL, f"/cancel/{instance}", {}), instance)

    async def _insist(self, request: _Request, id: str, *, giving_up: float = 0.0) -> bool:
        """Until the answer is known: whether to be content with it."""
        unknown = False
        while True:
            heard = await self._ask(request, id)
            unknown |= heard.state is State.UNKNOWN
            if heard.is_final:
                return True
            if heard.state is State.REFUSED and not unknown and self._chance.random() < giving_up:
                return False
            await asyncio.sleep(_PAUSE * (1 + self._chance.random()))

    async def _ask(self, request: _Request, id: str) -> _Heard:
        self._ledger.write(request.kind, id, State.ASKED, request.about)
        heard = await self._send(request)
        self._ledger.write(request.kind, id, heard.state, request.about, heard.why)
        return heard

    async def _send(self, request: _Request) -> _Heard:
        line = self._chance.choice(self._lines)
        headers = _EVENT if request.kind is CallKind.EVENT else {"content-type": "application/json"}
        try:
            async with asyncio.timeout(self._timeout):
                answer = await line.post(request.path, content=json.dumps(request.content), headers=headers)
        except (httpx.TransportError, TimeoutError) as error:
            return _Heard(State.UNKNOWN, repr(error))
        return _judged(answer)


def _judged(answer: httpx.Response) -> _Heard:
    """What an answer says. 503 may come after a COMMIT that nobody has heard of, unless the app was not there at all."""
    if answer.is_success:
        return _Heard(State.DONE)
    why = f"{answer.status_code} {answer.text[:300]}"
    if answer.status_code < 500:
        return _Heard(State.REFUSED, why, answer.status_code)
    return _Heard(State.REFUSED if "is shutting down" in why else State.UNKNOWN, why, answer.status_code)


@asynccontextmanager
async def some(
    names: list[str], servers: int, open: Open, folder: Path, seed: int, timeout: float = TIMEOUT
) -> AsyncIterator[list[Client]]:
    """Clients for a while."""
    clients = [Client(name, servers, open, folder, seed, timeout) for name in names]
    try:
        yield clients
    finally:
        for client in clients:
            await client.close()

"""A client that sends requests to an ASGI application, a fake app, and events to send."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from romancy.auth import read_auth
from romancy.clock import SystemClock
from romancy.errors import WorkflowNotCancellableError, WorkflowNotFoundError
from romancy.http.lazy_gateway import open_http
from romancy.http.types import ASGIApp, HTTPSettings, Message, Scope
from romancy.metrics.metrics import Metric, gauge
from romancy.model.messaging import AcceptedEvent, Event

STRUCTURED = {"content-type": "application/cloudevents+json"}
BATCH = {"content-type": "application/cloudevents-batch+json"}


def event(**changes: Any) -> dict[str, Any]:
    """A small event in JSON; a change to None removes the attribute."""
    whole = {"specversion": "1.0", "id": "1", "source": "shop", "type": "paid", "data": {"amount": 99.99}, **changes}
    return {name: value for name, value in whole.items() if value is not None}


def structured(**changes: Any) -> bytes:
    """A small event as the body of a request in structured mode."""
    return json.dumps(event(**changes)).encode()


def binary(**changes: str) -> dict[str, str]:
    """The headers of a request with a small event in binary mode."""
    attributes = {"specversion": "1.0", "id": "1", "source": "shop", "type": "paid", **changes}
    return {f"ce-{name}": value for name, value in attributes.items()}


@dataclass
class Recorder:
    """A fake app that records events and cancellations."""

    stored: list[Event] = field(default_factory=list[Event])
    cancelled: list[tuple[str, str | None]] = field(default_factory=list[tuple[str, str | None]])
    actors: list[str | None] = field(default_factory=list[str | None])
    error: Exception | None = None
    not_ready: str | None = None
    starts: int = 0
    stops: int = 0

    async def startup(self) -> None:
        await asyncio.sleep(0)
        self.starts += 1

    async def shutdown(self) -> None:
        self.stops += 1

    async def ready(self) -> str | None:
        return self.not_ready

    def metrics(self) -> list[Metric]:
        return [gauge("romancy_instances_running", "Instances that run in this process.", len(self.stored))]

    async def refresh_metrics(self) -> None:
        await asyncio.sleep(0)

    async def accept_events(self, events: Sequence[Event], /) -> list[AcceptedEvent]:
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        self.stored += events
        return [AcceptedEvent(one.id, one.source, False, ("a", "b")) for one in events]

    async def cancel_workflow(self, instance_id: str, reason: str | None = None, *, actor: str | None = None) -> None:
        self.actors.append(actor)
        if self.error is not None:
            raise self.error
        if instance_id == "missing":
            raise WorkflowNotFoundError("There is no instance 'missing' in this database.")
        if instance_id == "ended":
            raise WorkflowNotCancellableError("ended cannot be cancelled: it is completed.")
        self.cancelled.append((instance_id, reason))


def serve(service: Any, auth: Any = None, **settings: Any) -> ASGIApp:
    """The HTTP interface on top of a service."""
    return open_http(service, HTTPSettings(auth=read_auth(auth), **settings), SystemClock())


@dataclass(frozen=True)
class Answer:
    """The response to a request."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, decoded from JSON."""
        return json.loads(self.body)


def scope_of(
    path: str,
    method: str = "POST",
    headers: Sequence[tuple[str, str]] | Mapping[str, str] = (),
    client: tuple[str, int] | None = ("127.0.0.1", 5000),
    **more: Any,
) -> Scope:
    """The ASGI scope of a request."""
    pairs = list(headers.items()) if isinstance(headers, Mapping) else headers
    encoded = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in pairs]
    scope = {"type": "http", "http_version": "1.1", "method": method, "path": path, "query_string": b"", "root_path": ""}
    return {**scope, "headers": encoded, "client": client, **more}


async def call(app: ASGIApp, path: str, body: bytes | Iterable[Message] = b"", method: str = "POST", **more: Any) -> Answer:
    """Send a request. If the body has no last part, the app waits for it, as with a slow client."""
    incoming = asyncio.Queue[Message]()
    for message in [{"type": "http.request", "body": body}] if isinstance(body, bytes) else body:
        incoming.put_nowait(message)
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope_of(path, method, **more), incoming.get, send)
    return _answer(sent)


def _answer(sent: list[Message]) -> Answer:
    if not sent:
        return Answer(0, {}, b"")
    start, *rest = sent
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], headers, b"".join(part.get("body", b"") for part in rest))


async def lifespan(app: ASGIApp, between: Callable[[], Awaitable[object]] | None = None) -> list[Message]:
    """Run the lifespan protocol with a call in between; return the messages that the app sent."""
    incoming = asyncio.Queue[Message]()
    sent = asyncio.Queue[Message]()
    incoming.put_nowait({"type": "lifespan.startup"})

    async def live() -> None:
        await app({"type": "lifespan"}, incoming.get, sent.put)

    living = asyncio.create_task(live())
    messages = [await sent.get()]
    if between is not None:
        await between()
    if messages[0]["type"] == "lifespan.startup.complete":
        incoming.put_nowait({"type": "lifespan.shutdown"})
        messages.append(await sent.get())
    await living
    return messages

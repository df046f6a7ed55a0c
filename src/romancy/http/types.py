"""The types of ASGI, and the interface of an app that this package uses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from romancy.auth import Decide, OpenAccess, Tokens, Visitors
from romancy.metrics.metrics import Metric
from romancy.model.messaging import AcceptedEvent, Event

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


class Service(Protocol):
    """The part of an `App` that the HTTP interface uses."""

    async def startup(self) -> None:
        """Start the app. Safe to call repeatedly and concurrently."""
        ...

    async def shutdown(self) -> None:
        """Stop the app. Safe to call twice."""
        ...

    async def ready(self) -> str | None:
        """Return the reason why the app cannot work at the moment, or None."""
        ...

    def metrics(self) -> Sequence[Metric]:
        """Return the metrics of this process."""
        ...

    async def refresh_metrics(self) -> None:
        """Update the metrics that come from the database. It takes a bounded time and raises no error."""
        ...

    async def accept_events(self, events: Sequence[Event], /) -> list[AcceptedEvent]:
        """Store all of the events or none. They are durable when it returns."""
        ...

    async def cancel_workflow(self, instance_id: str, reason: str | None = None, *, actor: str | None = None) -> None:
        """Request the cancellation of an instance. The request is durable when it returns, and the audit records `actor`."""
        ...


@dataclass(frozen=True, slots=True)
class HTTPSettings:
    """The options of an app that concern HTTP."""

    max_body_size: int = 16 * 1024 * 1024
    request_timeout: float = 30.0
    auth: Tokens | Decide | OpenAccess | None = None
    visitors: Visitors = field(default_factory=Visitors)

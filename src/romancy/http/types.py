"""What ingress needs of the app behind it, and the words of ASGI."""

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
    """What stands behind the HTTP interface: an `App`."""

    async def startup(self) -> None:
        """Begin to work. Safe to call again, and at the same time."""
        ...

    async def shutdown(self) -> None:
        """Stop. Safe to call twice."""
        ...

    async def ready(self) -> str | None:
        """None, or why it cannot work at the moment."""
        ...

    def metrics(self) -> Sequence[Metric]:
        """What is counted in this process."""
        ...

    async def refresh_metrics(self) -> None:
        """Look at what is counted elsewhere. Does not fail, nor take long."""
        ...

    async def accept_events(self, events: Sequence[Event], /) -> list[AcceptedEvent]:
        """Store all of the events or none; durable when it returns."""
        ...

    async def cancel_workflow(self, instance_id: str, reason: str | None = None, *, actor: str | None = None) -> None:
        """Ask for cancellation; durable when it returns. `actor` is written down."""
        ...


@dataclass(frozen=True, slots=True)
class HTTPSettings:
    """The options of an app that concern HTTP."""

    max_body_size: int = 16 * 1024 * 1024
    request_timeout: float = 30.0
    auth: Tokens | Decide | OpenAccess | None = None
    visitors: Visitors = field(default_factory=Visitors)

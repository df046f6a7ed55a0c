"""`NATSBroker`: publishes events to NATS JetStream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from romancy.brokers.base import DEFAULT_RETRY
from romancy.brokers.formats import STRUCTURED, describe_error, positive, structured
from romancy.errors import BrokerError, ConfigurationError, EventRejectedError
from romancy.model.messaging import Event
from romancy.model.retry import RetryPolicy

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js.client import JetStreamContext

_log = logging.getLogger("romancy.outbox")
_EXTRA = "NATSBroker needs nats-py: pip install 'romancy[nats]'"


class NATSBroker:
    """Publishes each event to a subject of JetStream, and waits until the stream has stored it.

    `subject` is a string, or a function of the event that returns one. The header `Nats-Msg-Id` is made from the event's
    source and id: the server drops a repeated event within the stream's `duplicate_window`. `stream` is the stream that is
    expected to store the events. `options` are passed to `nats.connect`: credentials, TLS.

    >>> NATSBroker("nats://me:s3cret@localhost:4222", subject="shop.events")
    NATSBroker('shop.events', name='nats')
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        subject: str | Callable[[Event], str],
        stream: str | None = None,
        timeout: float = 5.0,
        name: str = "nats",
        retry: RetryPolicy = DEFAULT_RETRY,
        concurrency: int = 100,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        _require_nats()
        self.name = name
        self.retry = retry
        self.concurrency = positive("NATSBroker", "concurrency", concurrency, whole=True)
        self._servers = [servers] if isinstance(servers, str) else list(servers)
        self._subject = subject if callable(subject) else _check_subject(subject)
        self._stream = stream
        self._timeout = positive("NATSBroker", "timeout", timeout)
        self._options = dict(options or {})
        self._secrets = _collect_secrets(self._servers, self._options)
        self._client: Client | None = None
        self._stream_context: JetStreamContext | None = None

    def __repr__(self) -> str:
        subject = "..." if callable(self._subject) else self._subject
        return f"NATSBroker({subject!r}, name={self.name!r})"

    async def start(self) -> None:
        """Connect. The driver reconnects by itself."""
        import nats

        given: dict[str, Any] = {"max_reconnect_attempts": -1, "error_cb": self._log_driver_error, **self._options}
        try:
            async with asyncio.timeout(self._timeout):
                self._client = await nats.connect(servers=self._servers, **given)
        except Exception as error:
            raise BrokerError(f"no connection to NATS: {describe_error(error, self._secrets)}") from error
        self._stream_context = self._client.jetstream(timeout=self._timeout)

    async def close(self) -> None:
        """Disconnect."""
        client, self._client, self._stream_context = self._client, None, None
        if client is not None:
            await client.close()

    async def send(self, event: Event) -> None:
        """Publish an event; return when the stream has stored it. Raises `EventRejectedError` or `BrokerError`."""
        from nats import errors

        if self._stream_context is None:
            raise BrokerError(f"{self!r} is not started.")
        subject = self._subject(event) if callable(self._subject) else self._subject
        headers = {"Nats-Msg-Id": message_id(event), "content-type": STRUCTURED}
        try:
            await self._stream_context.publish(
                subject, structured(event), timeout=self._timeout, stream=self._stream, headers=headers
            )
        except (errors.MaxPayloadError, errors.BadSubjectError) as error:
            raise EventRejectedError(f"NATS: {describe_error(error, self._secrets)}") from error
        except Exception as error:
            raise BrokerError(f"NATS: {describe_error(error, self._secrets)}") from error

    async def _log_driver_error(self, error: Exception) -> None:
        _log.debug("broker %s: %s", self.name, describe_error(error, self._secrets))


def message_id(event: Event) -> str:
    """Return a text that identifies an event, for use in a header."""
    return f"{quote(event.source, safe='/:')} {quote(event.id, safe='/:')}"


def _check_subject(subject: Any) -> str:
    if not isinstance(subject, str) or not subject or any(character.isspace() or character in "*>" for character in subject):
        raise ConfigurationError(f"NATSBroker(subject={subject!r}): give a subject without spaces and wildcards.")
    return subject


def _collect_secrets(servers: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    found = [options.get("password"), options.get("token")]
    for server in servers:
        parts = urlsplit(server)
        found += [parts.password, parts.username if parts.password is None else None]  # a user without a password is a token
    texts = [value for value in found if isinstance(value, str) and value]
    return [*texts, *map(unquote, texts)]


def _require_nats() -> None:
    if find_spec("nats") is None:
        raise ConfigurationError(_EXTRA)

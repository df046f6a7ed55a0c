"""`HTTPBroker`: delivers CloudEvents over HTTP to one address.

It uses `http.client` in threads, with persistent connections. This needs no other package, uses Python's own TLS, and
distinguishes a POST that the server drops from one that it answers. A server that answers slowly cannot block an event for
longer than `timeout`: then the connection is cut.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from romancy.brokers.base import DEFAULT_CONCURRENCY, DEFAULT_RETRY
from romancy.brokers.formats import (
    STRUCTURED,
    Mode,
    attributes,
    check_mode,
    content_type,
    describe_error,
    positive,
    quoted,
    sanitize,
    structured,
)
from romancy.clock import SystemClock, to_datetime
from romancy.errors import BrokerError, ConfigurationError, EventRejectedError
from romancy.model.messaging import Event
from romancy.model.retry import RetryPolicy
from romancy.thread_pool import ThreadPool

_RETRYABLE_STATUSES = frozenset({401, 403, 404, 407, 408, 425, 429})
"""Statuses of the range 4xx whose cause need not be the event, so that a retry may succeed."""
_MAX_BODY = 64 * 1024
"""The bytes of a response body that are read; after a longer response, the connection is closed."""
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_TARGET = re.compile(r"[\x21-\x7e]*")


class _Response(NamedTuple):
    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class _Request:
    headers: dict[str, str]
    body: bytes


class HTTPBroker:
    """Sends each event with a POST to one address.

    2xx: delivered. 401, 403, 404, 407, 408, 425, 429, 5xx, redirects, no answer: retried, not before `Retry-After`, since
    the configuration may be at fault and be corrected. Any other 4xx: dead at once. Redirects are not followed. A user and
    password in the address are sent as basic authorization. They are never shown in messages, and neither are `headers`.

    >>> HTTPBroker("https://me:s3cret@events.example/in?key=1")
    HTTPBroker('https://events.example/in', name='http')
    """

    def __init__(
        self,
        url: str,
        mode: Mode = "structured",
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = 10.0,
        name: str = "http",
        retry: RetryPolicy = DEFAULT_RETRY,
        concurrency: int = DEFAULT_CONCURRENCY,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.name = name
        self.retry = retry
        self.concurrency = positive("HTTPBroker", "concurrency", concurrency, whole=True)
        self._timeout = positive("HTTPBroker", "timeout", timeout)
        self._mode = check_mode(mode, "HTTPBroker")
        self._address = _Address.of(url)
        self._headers = {**self._address.authorization, **_check_headers(headers)}
        self._secrets = _collect_secrets(self._address, self._headers)
        self._ssl = ssl_context
        self._threads: ThreadPool | None = None
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()

    def __repr__(self) -> str:
        return f"HTTPBroker({self._address.label!r}, name={self.name!r})"

    async def start(self) -> None:
        """Create the thread pool and the TLS context. Nothing is sent."""
        if self._address.secure and self._ssl is None:
            self._ssl = ssl.create_default_context()
        self._threads = ThreadPool(self.concurrency, f"romancy-broker-{self.name}")

    async def close(self) -> None:
        """Cut every connection."""
        threads, self._threads = self._threads, None
        idle, self._idle = self._idle, []
        for connection in (*idle, *self._busy):
            connection.cut()
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)

    async def send(self, event: Event) -> None:
        """Post an event. Raises `EventRejectedError` if a retry is useless, and `BrokerError` if it may succeed."""
        if self._threads is None:
            raise BrokerError(f"{self!r} is not started.")
        request = self._request(event)
        connection = self._idle.pop() if self._idle else _Connection(self._address, self._timeout, self._ssl)
        self._busy.add(connection)
        try:
            async with asyncio.timeout(self._timeout):
                answer = await asyncio.get_running_loop().run_in_executor(self._threads, connection.post, request)
        except TimeoutError as error:
            connection.cut()
            raise BrokerError(f"{self._address.label} did not answer within {self._timeout:g} s.") from error
        except (OSError, HTTPException) as error:
            connection.cut()
            raise BrokerError(f"{self._address.label}: {describe_error(error, self._secrets)}") from error
        except BaseException:
            connection.cut()
            raise
        finally:
            self._busy.discard(connection)
        self._recycle(connection)
        self._check_response(answer)

    def _recycle(self, connection: _Connection) -> None:
        if connection.usable and self._threads is not None:
            self._idle.append(connection)
        else:
            connection.cut()

    def _request(self, event: Event) -> _Request:
        if self._mode == "structured":
            return _Request({**self._headers, "Content-Type": STRUCTURED}, structured(event))
        named = {f"ce-{name}": quoted(value) for name, value in attributes(event).items()}
        kind = content_type(event)
        if kind is not None:
            named["Content-Type"] = kind if _VALUE.fullmatch(kind) else quoted(kind)
        return _Request({**self._headers, **named}, event.data or b"")

    def _check_response(self, answer: _Response) -> None:
        status = answer.status
        if 200 <= status < 300:
            return
        if 300 <= status < 400:
            where = self._sanitize(answer.headers.get("location", "nowhere"))
            raise BrokerError(f"{self._describe(answer)}: redirects are not followed. This one leads to {where}.")
        if 400 <= status < 500 and status not in _RETRYABLE_STATUSES:
            raise EventRejectedError(self._describe(answer, with_body=True))
        raise BrokerError(self._describe(answer, with_body=True), retry_after=_retry_after(answer.headers))

    def _describe(self, answer: _Response, *, with_body: bool = False) -> str:
        text = f"{self._address.label} answered {answer.status} {self._sanitize(answer.reason)}".rstrip()
        body = self._sanitize(answer.body.decode("utf-8", "replace")) if with_body else ""
        return f"{text}: {body}" if body else text

    def _sanitize(self, text: str) -> str:
        """Shorten a text from the server to one line, without secrets that it may repeat."""
        return sanitize(text, self._secrets)


class _Connection:
    """A persistent connection, for one request at a time. `post` runs in a thread, all other methods on the event loop."""

    def __init__(self, address: _Address, timeout: float, context: ssl.SSLContext | None) -> None:
        self._address = address
        self._timeout = timeout
        self._context = context
        self._http = self._new()
        self._posting = False
        self._cut = False
        self._used = False
        self.usable = True

    def _new(self) -> HTTPConnection:
        address = self._address
        if address.secure:
            return HTTPSConnection(address.host, address.port, timeout=self._timeout, context=self._context)
        return HTTPConnection(address.host, address.port, timeout=self._timeout)

    def post(self, request: _Request) -> _Response:
        """Send a request and read the response."""
        self._posting = True
        try:
            return self._post(request)
        finally:
            self._posting = False
            if self._cut:
                self._http.close()

    def _post(self, request: _Request) -> _Response:
        """Post; repeat it once on a new connection if the server had closed the idle one."""
        used, self._used = self._used, True
        try:
            return self._post_once(request)
        except (ConnectionError, ssl.SSLEOFError):  # http.client's RemoteDisconnected is one
            if not used or self._cut:
                raise
        self._http.close()
        self._http = self._new()
        return self._post_once(request)

    def _post_once(self, request: _Request) -> _Response:
        http = self._http
        if http.sock is None:
            http.connect()  # http.client sets TCP_NODELAY
        if self._cut:  # cut while it was connecting
            raise ConnectionAbortedError("the connection was closed before the response was complete")
        http.request("POST", self._address.target, request.body, request.headers)
        return self._read(http.getresponse())

    def _read(self, response: HTTPResponse) -> _Response:
        body = response.read(_MAX_BODY)
        self.usable = response.isclosed() and not response.will_close
        return _Response(response.status, response.reason, {k.lower(): v for k, v in response.getheaders()}, body)

    def cut(self) -> None:
        """Close the connection, even if a thread is using it."""
        self._cut = True
        self.usable = False
        sock: socket.socket | None = self._http.sock
        if sock is not None:
            with contextlib.suppress(OSError):  # shut down, not only closed: only that ends the wait of a thread
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
        if not self._posting:  # otherwise the thread closes it when its wait has ended
            self._http.close()


@dataclass(frozen=True, slots=True)
class _Address:
    """The parts of the address to post to."""

    secure: bool
    host: str
    port: int
    target: str
    label: str
    """The address as it is shown: without user, password and query."""
    authorization: dict[str, str]
    secrets: tuple[str, ...]

    @classmethod
    def of(cls, url: str) -> _Address:
        parts = _split(url)
        secure, host, path = parts.scheme == "https", parts.hostname or "", parts.path or "/"
        port = parts.port or (443 if secure else 80)
        shown = f"[{host}]" if ":" in host else host
        label = f"{parts.scheme}://{shown}{f':{parts.port}' if parts.port else ''}{path}"
        target = f"{path}?{parts.query}" if parts.query else path
        secrets = [secret for secret in (parts.password, parts.query) if secret]
        return cls(secure, host, port, target, label, _basic(parts), (*secrets, *map(unquote, secrets)))


def _split(url: Any) -> SplitResult:
    wrong = 'HTTPBroker: the address is wrong: give one such as "https://events.example/in".'
    try:
        parts: SplitResult = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except (ValueError, AttributeError, TypeError):
        raise ConfigurationError(wrong) from None  # the cause would show the address, which may contain a password
    if not valid or not _TARGET.fullmatch(parts.path + parts.query):
        raise ConfigurationError(wrong)
    return parts


def _basic(parts: SplitResult) -> dict[str, str]:
    if parts.username is None and parts.password is None:
        return {}
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}".encode()
    return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}


def _check_headers(headers: Mapping[str, str] | None) -> dict[str, str]:
    for name, value in (headers or {}).items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise ConfigurationError(f"HTTPBroker(headers=...): {name!r} is not a valid header name.")
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise ConfigurationError(f"HTTPBroker(headers=...): the value of {name!r} is not a valid header value.")
    return dict(headers or {})


def _collect_secrets(address: _Address, headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the texts that must not be shown, the longest first, since one may be a part of another."""
    values = [part for value in headers.values() for part in (value, value.rpartition(" ")[2])]
    return tuple(sorted({secret for secret in (*address.secrets, *values) if len(secret) > 2}, key=len, reverse=True))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait that the server asks for in `Retry-After`, which is a number or a date."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdecimal():
        return float(value[:9])
    try:
        when = parsedate_to_datetime(value)
        now = parsedate_to_datetime(headers["date"]) if "date" in headers else to_datetime(SystemClock().now())
        return max((when - now).total_seconds(), 0.0)
    except (ValueError, TypeError, OverflowError):  # not a date, or a date without a time zone
        return None

"""Runs an ASGI application under a WSGI server, on the event loop of a separate thread.

    server's thread ── call ──► Exchange ── scope, receive, send ──► the application, on the loop's thread
           ▲                        │
           └── read, start, body ◄──┘   requested by the application, done in the server's thread

The server's thread reads the body and writes the response, so the loop never blocks on a socket of the server.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import logging
import queue
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote
from wsgiref.util import is_hop_by_hop

from romancy.clock import monotonic
from romancy.http.problems import UnavailableError
from romancy.http.types import ASGIApp, Message, Scope

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

T = TypeVar("T")

_LOG = logging.getLogger("romancy.http")
_CHUNK = 64 * 1024
_RETRY_DELAY = 1.0
"""The time in seconds after a failed start before the next attempt."""
_NOT_STARTED = "The application could not start; its log says why."
# Python closes all thread pools before it calls the functions of `atexit`, but the shutdown of an app needs a pool.
_REGISTER_AT_EXIT: Callable[[Callable[[], None]], object] = getattr(threading, "_register_atexit", atexit.register)


def to_wsgi(app: ASGIApp) -> WSGIApp:
    """Return a WSGI application that serves `app`, for servers without support for ASGI.

    The app starts with the first request, in a separate thread, and stops when the process ends or `close()` is called.
    Other threads call the app through `run(...)`, which starts it as well.

    >>> application = to_wsgi(app)  # gunicorn shop:application
    >>> handle = application.run(app.start_workflow(order, 42))
    """
    return WSGIApp(app)


class WSGIApp:
    """A WSGI application that serves an ASGI application; `to_wsgi` creates it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._start: _StartAttempt | None = None
        self._closes = False

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request, as WSGI defines it."""
        try:
            loop = self._running()
        except Exception:  # already logged; callers must not see the files and addresses that it names
            return _refuse(_NOT_STARTED, start_response)
        exchange = _Exchange(environ, loop)
        exchange.begin(self._app)
        started = exchange.until_started()
        start_response(started.status, started.headers)
        return exchange.parts()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a call of the app from a thread of the server: `application.run(app.start_workflow(...))`."""
        try:
            loop = self._running()
        except BaseException:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    def close(self) -> None:
        """Shut the app down. Safe to call twice; the next request starts it again."""
        with self._lock:
            start, self._start = self._start, None
        if start is not None and start.thread.exception() is None:
            start.thread.result().stop()

    def _running(self) -> asyncio.AbstractEventLoop:
        # The first request starts the app, not the import, because servers fork after the import. Requests that arrive
        # during the first attempt wait for it and share its failure. During a later attempt they fail at once with the
        # previous error, so that they do not block the threads of the server. The lock is not held during an attempt.
        with self._lock:
            start, begins = self._start, False
            if start is None or start.has_failed_long_ago():
                self._start = start = _StartAttempt(after=start)
                begins = True
        if begins:
            start.begin(self._app)
            self._close_at_exit()
        return start.wait(waits=begins).loop

    def _close_at_exit(self) -> None:
        if not self._closes:
            self._closes = True
            _REGISTER_AT_EXIT(self.close)


class _StartAttempt:
    """One attempt to start the application, with its outcome."""

    def __init__(self, after: _StartAttempt | None) -> None:
        self.thread = Future[LoopThread]()
        self._after = after
        self._failed_at = 0.0

    def begin(self, app: ASGIApp) -> None:
        """Start the application. A failure is logged, and kept for the requests that follow."""
        try:
            started = LoopThread(app)
        except BaseException as error:
            _LOG.error("The app could not start, so requests are answered with 503: %s", error)
            self._failed_at = monotonic()
            self.thread.set_exception(error)
        else:
            self.thread.set_result(started)

    def wait(self, *, waits: bool) -> LoopThread:
        """Return the thread, or raise the error of the failed attempt.

        Unless `waits`, a caller that comes during a repeated attempt gets the error of the previous attempt.
        """
        before = self._after
        if before is not None and not waits and not self.thread.done():
            return before.thread.result()
        self._after = None
        return self.thread.result()

    def has_failed_long_ago(self) -> bool:
        """Whether the attempt failed, and it is time for another."""
        return self.thread.done() and self.thread.exception() is not None and monotonic() - self._failed_at >= _RETRY_DELAY


class LoopThread:
    """A thread with an event loop, on which the lifespan of the application runs."""

    def __init__(self, app: ASGIApp) -> None:
        self.loop = asyncio.new_event_loop()
        # The pool gets its thread now: Python 3.12 starts no thread at the end of the process, when the app shuts down.
        self._pool = ThreadPoolExecutor(thread_name_prefix="romancy-wsgi")
        self._pool.submit(int).result()
        self.loop.set_default_executor(self._pool)
        self._thread = threading.Thread(target=self.loop.run_forever, name="romancy-wsgi", daemon=True)
        self._thread.start()
        self._lifespan = _LifespanClient(app)
        try:
            self._on_loop(self._lifespan.startup())
        except BaseException:
            self._end()
            raise

    def stop(self) -> None:
        """Shut the application down and end the thread."""
        try:
            self._on_loop(self._lifespan.shutdown())
        finally:
            self._end()

    def _on_loop(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def _end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self._pool.shutdown()
        self.loop.close()


class _LifespanClient:
    """The server's side of the lifespan protocol. An application without a lifespan is served all the same."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._to_app = asyncio.Queue[Message]()
        self._from_app = asyncio.Queue[Message]()
        self._task: asyncio.Task[None] | None = None

    async def startup(self) -> None:
        """Start the application. Raises `UnavailableError` if it reports that it could not start."""
        self._task = asyncio.create_task(self._run())
        answer = await self._send_event("lifespan.startup")
        if answer["type"] == "lifespan.startup.failed":
            raise UnavailableError(f"The application could not start: {answer.get('message', '')}")

    async def shutdown(self) -> None:
        """Shut the application down."""
        if self._task is not None and not self._task.done():
            await self._send_event("lifespan.shutdown")
            await self._task

    async def _send_event(self, kind: str) -> Message:
        await self._to_app.put({"type": kind})
        return await self._from_app.get()

    async def _run(self) -> None:
        scope: Scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
        with contextlib.suppress(Exception):  # by the specification of ASGI, the application has no lifespan
            await self._app(scope, self._to_app.get, self._from_app.put)
        await self._from_app.put({"type": "lifespan.over"})


@dataclass(frozen=True, slots=True)
class _ResponseStart:
    status: str
    headers: list[tuple[str, str]]


class _ReadBody:
    """Asks the server's thread for the next part of the body."""


class _Exchange:
    """One request and its response, passed between the thread of the server and that of the loop."""

    def __init__(self, environ: WSGIEnvironment, loop: asyncio.AbstractEventLoop) -> None:
        self._input = environ["wsgi.input"]
        self._unread = _body_size(environ)
        self._scope = _scope(environ)
        self._loop = loop
        self._outgoing = queue.SimpleQueue[_ReadBody | _ResponseStart | bytes | None]()
        self._incoming = asyncio.Queue[Message]()
        self._body_received = False
        self._complete = False
        self._running: Future[None] | None = None

    def begin(self, app: ASGIApp) -> None:
        """Start the application on the loop."""
        self._running = asyncio.run_coroutine_threadsafe(self._run(app), self._loop)

    def until_started(self) -> _ResponseStart:
        """Return the head of the response. Until it arrives, read the parts of the body that the application asks for."""
        for message in self._serve_application():
            if isinstance(message, _ResponseStart):
                return message
        return _ResponseStart(_status_line(500), [("Content-Type", "text/plain")])

    def parts(self) -> Iterator[bytes]:
        """Yield the parts of the response as the application sends them."""
        try:
            yield from (message for message in self._serve_application() if isinstance(message, bytes))
        finally:
            # The server may close this iterator early, because the client disconnected, or after the loop was closed.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._incoming.put_nowait, {"type": "http.disconnect"})

    def _serve_application(self) -> Iterator[_ResponseStart | bytes]:
        while not self._complete:
            message = self._outgoing.get()
            if isinstance(message, _ReadBody):
                self._loop.call_soon_threadsafe(self._incoming.put_nowait, self._read())
            elif message is None:
                self._complete = True
            else:
                yield message

    def _read(self) -> Message:
        try:
            body = self._input.read(min(self._unread, _CHUNK)) if self._unread else b""
        except OSError:
            return {"type": "http.disconnect"}
        if self._unread and not body:
            return {"type": "http.disconnect"}  # the body is shorter than its Content-Length
        self._unread -= len(body)
        return {"type": "http.request", "body": body, "more_body": self._unread > 0}

    # --- on the loop's thread

    async def _run(self, app: ASGIApp) -> None:
        try:
            await app(self._scope, self._receive, self._send)
        finally:
            self._outgoing.put(None)

    async def _receive(self) -> Message:
        if not self._body_received:
            self._outgoing.put(_ReadBody())
        message = await self._incoming.get()
        self._body_received = not message.get("more_body", False)  # after the body, only the disconnection can arrive
        return message

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._outgoing.put(_ResponseStart(_status_line(message["status"]), _end_to_end(message.get("headers", ()))))
        elif message.get("body"):
            self._outgoing.put(message["body"])


def _refuse(why: str, start_response: StartResponse) -> Iterable[bytes]:
    body = json.dumps({"error": why, "error_type": "UnavailableError", "retryable": True}).encode()
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body))), ("Retry-After", "1")]
    start_response(_status_line(503), headers)
    return [body]


def _scope(environ: WSGIEnvironment) -> Scope:
    root, path = _path(environ, "SCRIPT_NAME"), _path(environ, "PATH_INFO")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": environ.get("SERVER_PROTOCOL", "HTTP/1.1").partition("/")[2],
        "method": environ["REQUEST_METHOD"],
        "scheme": environ.get("wsgi.url_scheme", "http"),
        "root_path": root,
        "path": root + path,
        "raw_path": quote(root + path).encode(),
        "query_string": environ.get("QUERY_STRING", "").encode("latin-1"),
        "headers": list(_headers(environ)),
        "client": _client(environ),
        "server": (environ["SERVER_NAME"], int(environ["SERVER_PORT"])),
    }


def _path(environ: WSGIEnvironment, name: str) -> str:
    """Return a path of the request. WSGI passes its bytes decoded as Latin-1."""
    text: str = environ.get(name, "")
    return text.encode("latin-1").decode("utf-8", "replace")


def _client(environ: WSGIEnvironment) -> tuple[str, int] | None:
    address = environ.get("REMOTE_ADDR")
    return (address, int(environ.get("REMOTE_PORT") or 0)) if address else None


def _headers(environ: WSGIEnvironment) -> Iterator[tuple[bytes, bytes]]:
    for name, value in environ.items():
        if name.startswith("HTTP_") or (name in ("CONTENT_TYPE", "CONTENT_LENGTH") and value):
            header = name.removeprefix("HTTP_").replace("_", "-").lower()
            yield header.encode("latin-1"), str(value).encode("latin-1")


def _body_size(environ: WSGIEnvironment) -> int:
    """Return the length of the body: 0 without Content-Length, because WSGI does not define an end of the input."""
    announced = str(environ.get("CONTENT_LENGTH") or "")
    return int(announced[:20]) if announced.isdecimal() else 0


def _end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    plain = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
    return [(name, value) for name, value in plain if not is_hop_by_hop(name)]  # hop-by-hop headers belong to the server


def _status_line(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Unknown"

"""An ASGI application under a WSGI server, on an event loop of its own.

    server's thread ── call ──► Exchange ── scope, receive, send ──► the application, on the loop's thread
           ▲                        │
           └── read, start, body ◄──┘   what the application wants or says, done in the server's thread

The body is read and the answer written by the thread that the server gave: the loop never blocks on its socket.
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
_MEMORY = 1.0
"""Seconds for which a start that failed is not tried again."""
_NOT_STARTED = "The application could not start; its log says why."
# The functions of `atexit` run after Python has forbidden new work to all pools of threads, and shutting down takes some.
_AT_THE_END: Callable[[Callable[[], None]], object] = getattr(threading, "_register_atexit", atexit.register)


def to_wsgi(app: ASGIApp) -> WSGIApp:
    """A WSGI application that serves `app`, for servers that know no ASGI.

    The app starts with the first request, in a thread of its own, and stops when the process ends or by `close()`. Other
    threads use the app by `run(...)`, which starts it as well.

    >>> application = to_wsgi(app)  # gunicorn shop:application
    >>> handle = application.run(app.start_workflow(order, 42))
    """
    return WSGIApp(app)


class WSGIApp:
    """Made by `to_wsgi`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._start: _StartAttempt | None = None
        self._closes = False

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """One request, as WSGI calls it."""
        try:
            loop = self._running()
        except Exception:  # has been logged: what it says of files and addresses is not for everybody
            return _refuse(_NOT_STARTED, start_response)
        exchange = _Exchange(environ, loop)
        exchange.begin(self._app)
        started = exchange.until_started()
        start_response(started.status, started.headers)
        return exchange.parts()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something with the app from a thread of the server: `application.run(app.start_workflow(...))`."""
        try:
            loop = self._running()
        except BaseException:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    def close(self) -> None:
        """Shut the app down. Safe to call twice; the next request would start it again."""
        with self._lock:
            start, self._start = self._start, None
        if start is not None and start.thread.exception() is None:
            start.thread.result().stop()

    def _running(self) -> asyncio.AbstractEventLoop:
        # At the first request and not before: servers fork after they have imported the application. Requests that come
        # meanwhile wait for the first start, and share its failure; while it is tried again, they have failed already, and
        # take no threads from the server. The lock is held for a moment only.
        with self._lock:
            start, begins = self._start, False
            if start is None or start.has_failed_long_ago():
                self._start = start = _StartAttempt(after=start)
                begins = True
        if begins:
            start.begin(self._app)
            self._close_at_the_end()
        return start.wait(waits=begins).loop

    def _close_at_the_end(self) -> None:
        if not self._closes:
            self._closes = True
            _AT_THE_END(self.close)


class _StartAttempt:
    """One attempt to start the application, and what came of it."""

    def __init__(self, after: _StartAttempt | None) -> None:
        self.thread = Future[LoopThread]()
        self._after = after
        self._over = 0.0

    def begin(self, app: ASGIApp) -> None:
        """Start it. A failure is logged, and remembered for whoever asks next."""
        try:
            started = LoopThread(app)
        except BaseException as error:
            _LOG.error("The app could not start, so requests are answered with 503: %s", error)
            self._over = monotonic()
            self.thread.set_exception(error)
        else:
            self.thread.set_result(started)

    def wait(self, *, waits: bool) -> LoopThread:
        """What came of it. Raises the error of a start that failed: while this one goes on, of the one before it."""
        before = self._after
        if before is not None and not waits and not self.thread.done():
            return before.thread.result()
        self._after = None
        return self.thread.result()

    def has_failed_long_ago(self) -> bool:
        """It failed, and it is time to try again."""
        return self.thread.done() and self.thread.exception() is not None and monotonic() - self._over >= _MEMORY


class LoopThread:
    """A thread with an event loop, on which the lifespan of the application runs."""

    def __init__(self, app: ASGIApp) -> None:
        self.loop = asyncio.new_event_loop()
        # With a thread from the beginning: at the end of the process, when the app shuts down, Python 3.12 starts none.
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
    """The server's side of the lifespan protocol. An application that has none is left alone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._to_app = asyncio.Queue[Message]()
        self._from_app = asyncio.Queue[Message]()
        self._task: asyncio.Task[None] | None = None

    async def startup(self) -> None:
        """Let the application start. Raises `UnavailableError` if it says that it cannot."""
        self._task = asyncio.create_task(self._run())
        answer = await self._send_event("lifespan.startup")
        if answer["type"] == "lifespan.startup.failed":
            raise UnavailableError(f"The application could not start: {answer.get('message', '')}")

    async def shutdown(self) -> None:
        """Let the application stop."""
        if self._task is not None and not self._task.done():
            await self._send_event("lifespan.shutdown")
            await self._task

    async def _send_event(self, kind: str) -> Message:
        await self._to_app.put({"type": kind})
        return await self._from_app.get()

    async def _run(self) -> None:
        scope: Scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
        with contextlib.suppress(Exception):  # by ASGI's rules: it knows no lifespan
            await self._app(scope, self._to_app.get, self._from_app.put)
        await self._from_app.put({"type": "lifespan.over"})


@dataclass(frozen=True, slots=True)
class _ResponseStart:
    status: str
    headers: list[tuple[str, str]]


class _ReadBody:
    """The application wants the next part of the body."""


class _Exchange:
    """One request and its answer, between two threads."""

    def __init__(self, environ: WSGIEnvironment, loop: asyncio.AbstractEventLoop) -> None:
        self._input = environ["wsgi.input"]
        self._left = _body_size(environ)
        self._scope = _scope(environ)
        self._loop = loop
        self._outgoing = queue.SimpleQueue[_ReadBody | _ResponseStart | bytes | None]()
        self._incoming = asyncio.Queue[Message]()
        self._whole = False
        self._over = False
        self._running: Future[None] | None = None

    def begin(self, app: ASGIApp) -> None:
        """Let the application run."""
        self._running = asyncio.run_coroutine_threadsafe(self._run(app), self._loop)

    def until_started(self) -> _ResponseStart:
        """The head of the answer; what is read of the body meanwhile is read here."""
        for said in self._serve_application():
            if isinstance(said, _ResponseStart):
                return said
        return _ResponseStart(_status_line(500), [("Content-Type", "text/plain")])

    def parts(self) -> Iterator[bytes]:
        """The parts of the answer, as they come."""
        try:
            yield from (said for said in self._serve_application() if isinstance(said, bytes))
        finally:
            # The server may close this early, because the client went away; or late, when the app has been closed.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._incoming.put_nowait, {"type": "http.disconnect"})

    def _serve_application(self) -> Iterator[_ResponseStart | bytes]:
        while not self._over:
            said = self._outgoing.get()
            if isinstance(said, _ReadBody):
                self._loop.call_soon_threadsafe(self._incoming.put_nowait, self._read())
            elif said is None:
                self._over = True
            else:
                yield said

    def _read(self) -> Message:
        try:
            body = self._input.read(min(self._left, _CHUNK)) if self._left else b""
        except OSError:
            return {"type": "http.disconnect"}
        if self._left and not body:
            return {"type": "http.disconnect"}  # it had announced more
        self._left -= len(body)
        return {"type": "http.request", "body": body, "more_body": self._left > 0}

    # --- on the loop's thread

    async def _run(self, app: ASGIApp) -> None:
        try:
            await app(self._scope, self._receive, self._send)
        finally:
            self._outgoing.put(None)

    async def _receive(self) -> Message:
        if not self._whole:
            self._outgoing.put(_ReadBody())
        message = await self._incoming.get()
        self._whole = not message.get("more_body", False)  # after it there is only the end of the connection
        return message

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._outgoing.put(_ResponseStart(_status_line(message["status"]), _plain(message.get("headers", ()))))
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
    """WSGI shows bytes as if they were Latin-1."""
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
    """Without a length there is no body: WSGI lets nobody read until its end."""
    announced = str(environ.get("CONTENT_LENGTH") or "")
    return int(announced[:20]) if announced.isdecimal() else 0


def _plain(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    plain = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
    return [(name, value) for name, value in plain if not is_hop_by_hop(name)]  # those are the server's to say


def _status_line(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Unknown"

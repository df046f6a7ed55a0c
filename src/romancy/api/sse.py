"""What watchers are told, as server-sent events.

    id: 1:12:running
    event: changed
    data: {"instance_id": "...", "generation": 1, "seq": 12, "status": "running"}

Of a single instance; a stream of all has no id and no data to speak of. A browser that has lost a stream comes back with
the last id that it has seen, and is told at once if the instance stands elsewhere by then.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from romancy.api.watcher import Watch, Watcher
from romancy.errors import WorkflowNotFoundError
from romancy.http.headers import JSON_HEADERS
from romancy.http.types import Receive, Scope, Send
from romancy.model.instance import InstanceProgress

CONTENT_TYPE = "text/event-stream"
_HEADERS = {**JSON_HEADERS, "X-Accel-Buffering": "no"}
_PING = b": still here\n\n"


async def open_stream(watcher: Watcher, instance_id: str | None, request: Request) -> Response:
    """Begin a stream. Raises `WorkflowNotFoundError`, and `UnavailableError` if there are too many."""
    watch = await watcher.open(instance_id)
    if watch is None:
        raise WorkflowNotFoundError(f"There is no instance {instance_id!r} in this database.")
    seen = request.headers.get("last-event-id", "")
    return EventStream(watcher, watch, seen)


class EventStream(Response):
    """One stream, from its head to its end."""

    def __init__(self, watcher: Watcher, watch: Watch, seen: str) -> None:
        super().__init__(headers=_HEADERS, media_type=CONTENT_TYPE)
        del self.headers["content-length"]
        self._watcher = watcher
        self._watch = watch
        self._last_event_id = seen
        self._settings = watcher.settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI calls it."""
        gone = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                await self._send_changes(gone, send)
            if not gone.done():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()
            self._watcher.close(self._watch)

    async def _send_changes(self, gone: asyncio.Future[None], send: Send) -> None:
        # Also the end of one whose client reads nothing: then `send` would wait for ever.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.max_duration):
                await _send_chunk(send, f"retry: {self._settings.reconnect_ms}\n\n".encode())
                standing = self._watch.progress
                if standing is not None and _event_id(standing) != self._last_event_id:
                    await _send_chunk(send, format_event(self._watch))
                while (told := await self._next_chunk(gone)) is not None:
                    await _send_chunk(send, told)

    async def _next_chunk(self, gone: asyncio.Future[None]) -> bytes | None:
        """What to say next; None: nothing more."""
        news = asyncio.ensure_future(self._watch.wait_for_change())
        try:
            await asyncio.wait({gone, news}, timeout=self._settings.ping_interval, return_when=asyncio.FIRST_COMPLETED)
        finally:
            heard = not news.cancel()
        if gone.done() or self._watch.is_over:
            return None
        return format_event(self._watch) if heard else _PING


def format_event(watch: Watch) -> bytes:
    """What is told."""
    standing = watch.progress
    if standing is None:
        return b"event: changed\ndata: {}\n\n"
    data: dict[str, Any] = {
        "instance_id": watch.instance_id,
        "generation": standing.generation,
        "seq": standing.seq,
        "status": standing.status.value,
    }
    return b"id: %s\nevent: changed\ndata: %s\n\n" % (_event_id(standing).encode(), to_json(data))


def _event_id(progress: InstanceProgress) -> str:
    return f"{progress.generation}:{progress.seq}:{progress.status.value}"


async def _send_chunk(send: Send, text: bytes) -> None:
    await send({"type": "http.response.body", "body": text, "more_body": True})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

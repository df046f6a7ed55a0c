"""Sends changes to clients that watch instances, as server-sent events.

    id: 1:12:running
    event: changed
    data: {"instance_id": "...", "generation": 1, "seq": 12, "status": "running"}

These are the events of one instance; those of all instances have no id, and `{}` as data. A browser that has lost the
connection reconnects with the last id that it has received, and gets an event at once if the instance has changed since.
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
    """Return a new stream. Raises `WorkflowNotFoundError`, and `UnavailableError` if too many are open."""
    watch = await watcher.open(instance_id)
    if watch is None:
        raise WorkflowNotFoundError(f"There is no instance {instance_id!r} in this database.")
    last_event_id = request.headers.get("last-event-id", "")
    return EventStream(watcher, watch, last_event_id)


class EventStream(Response):
    """The response that streams the changes of one watch."""

    def __init__(self, watcher: Watcher, watch: Watch, last_event_id: str) -> None:
        super().__init__(headers=_HEADERS, media_type=CONTENT_TYPE)
        del self.headers["content-length"]
        self._watcher = watcher
        self._watch = watch
        self._last_event_id = last_event_id
        self._settings = watcher.settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response, as ASGI defines it."""
        disconnected = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                await self._send_changes(disconnected, send)
            if not disconnected.done():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            disconnected.cancel()
            self._watcher.close(self._watch)

    async def _send_changes(self, disconnected: asyncio.Future[None], send: Send) -> None:
        # The timeout also ends a stream whose client does not read: its `send` would wait for ever.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.max_duration):
                await _send_chunk(send, f"retry: {self._settings.reconnect_ms}\n\n".encode())
                progress = self._watch.progress
                if progress is not None and _event_id(progress) != self._last_event_id:
                    await _send_chunk(send, format_event(self._watch))
                while (chunk := await self._next_chunk(disconnected)) is not None:
                    await _send_chunk(send, chunk)

    async def _next_chunk(self, disconnected: asyncio.Future[None]) -> bytes | None:
        """Return the next event or ping, or None when the stream ends."""
        change = asyncio.ensure_future(self._watch.wait_for_change())
        try:
            await asyncio.wait(
                {disconnected, change}, timeout=self._settings.ping_interval, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            has_changed = not change.cancel()
        if disconnected.done() or self._watch.is_over:
            return None
        return format_event(self._watch) if has_changed else _PING


def format_event(watch: Watch) -> bytes:
    """Return the present state of a watch as an event."""
    progress = watch.progress
    if progress is None:
        return b"event: changed\ndata: {}\n\n"
    data: dict[str, Any] = {
        "instance_id": watch.instance_id,
        "generation": progress.generation,
        "seq": progress.seq,
        "status": progress.status.value,
    }
    return b"id: %s\nevent: changed\ndata: %s\n\n" % (_event_id(progress).encode(), to_json(data))


def _event_id(progress: InstanceProgress) -> str:
    return f"{progress.generation}:{progress.seq}:{progress.status.value}"


async def _send_chunk(send: Send, text: bytes) -> None:
    await send({"type": "http.response.body", "body": text, "more_body": True})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

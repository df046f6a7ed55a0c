"""Request bodies, read within bounds of size and time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from romancy.http.problems import BodyTooLargeError, RequestTimeoutError, UnavailableError
from romancy.http.types import Receive

_MAX_BODIES = 4
"""How many bodies of the maximum size fit into the shared memory limit."""
FREE = 64 * 1024
"""The part of each body that does not count towards the shared limit: small requests pass while large ones use it up."""


class ClientDisconnected(Exception):
    """The client disconnected before its request was complete, so there is no response to send."""


class Bodies:
    """Reads request bodies, and bounds the memory that all of them use together."""

    def __init__(self, limit: int, seconds: float) -> None:
        self._limit = limit
        self._seconds = seconds
        self._room = limit * _MAX_BODIES

    @asynccontextmanager
    async def read(self, headers: Mapping[str, str], receive: Receive) -> AsyncIterator[bytes]:
        """Yield the body, and release its memory at the end.

        Raises `BodyTooLargeError`, `RequestTimeoutError`, `UnavailableError`, `ClientDisconnected`.
        """
        content_length = headers.get("content-length", "")
        if content_length.isdecimal() and int(content_length[:20]) > self._limit:
            raise self._too_large()
        body = bytearray()
        try:
            await self._fill_in_time(body, receive)
            yield bytes(body)
        finally:
            self._room += _counted(len(body))

    async def _fill_in_time(self, body: bytearray, receive: Receive) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await self._fill(body, receive)
        except TimeoutError as error:
            raise RequestTimeoutError(f"The body did not arrive within {self._seconds:g} s (`request_timeout`).") from error

    async def _fill(self, body: bytearray, receive: Receive) -> None:
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise ClientDisconnected
            self._add(body, message.get("body", b""))
            more = message.get("more_body", False)

    def _add(self, body: bytearray, part: bytes) -> None:
        if len(body) + len(part) > self._limit:
            raise self._too_large()
        more = _counted(len(body) + len(part)) - _counted(len(body))
        if more > self._room:
            raise UnavailableError("There are too many large requests at the moment: try again later.")
        self._room -= more
        body += part

    def _too_large(self) -> BodyTooLargeError:
        return BodyTooLargeError(f"The body is larger than {self._limit} bytes, the `max_body_size` of this app.")


def _counted(size: int) -> int:
    """Return how many bytes of a body of this size count towards the shared limit."""
    return max(0, size - FREE)

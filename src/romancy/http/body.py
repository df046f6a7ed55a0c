"""The body of a request: no more of it than allowed, and not for longer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from romancy.http.problems import BodyTooLargeError, RequestTimeoutError, UnavailableError
from romancy.http.types import Receive

_SHARE = 4
"""How many bodies of the largest size are held at once."""
FREE = 64 * 1024
"""So much of each body takes none of the room that all share: a few slow connections lock nobody out."""


class ClientDisconnected(Exception):
    """The client went away in the middle of its request: there is nobody to answer."""


class Bodies:
    """Reads bodies, and bounds what all of them take together."""

    def __init__(self, limit: int, seconds: float) -> None:
        self._limit = limit
        self._seconds = seconds
        self._room = limit * _SHARE

    @asynccontextmanager
    async def read(self, headers: Mapping[str, str], receive: Receive) -> AsyncIterator[bytes]:
        """The body; its room is given back at the end.

        Raises `BodyTooLargeError`, `RequestTimeoutError`, `UnavailableError`, `ClientGone`.
        """
        announced = headers.get("content-length", "")
        if announced.isdecimal() and int(announced[:20]) > self._limit:
            raise self._too_large()
        body = bytearray()
        try:
            await self._fill_in_time(body, receive)
            yield bytes(body)
        finally:
            self._room += _beyond(len(body))

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
        more = _beyond(len(body) + len(part)) - _beyond(len(body))
        if more > self._room:
            raise UnavailableError("There are too many large requests at the moment: try again later.")
        self._room -= more
        body += part

    def _too_large(self) -> BodyTooLargeError:
        return BodyTooLargeError(f"The body is larger than {self._limit} bytes, the `max_body_size` of this app.")


def _beyond(size: int) -> int:
    """How much of a body of this size counts."""
    return max(0, size - FREE)

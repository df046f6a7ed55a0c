"""Events that are addressed to one instance: Edda's extension `eddainstanceid`, said in this library's word.

Requests are read as they pass. The event in a body is not written anew, only added to: what the app refuses, it must see.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]

EDDA, ROMANCY = "eddainstanceid", "romancyinstanceid"
_STRUCTURED = b"application/cloudevents"


def addressed(extensions: dict[str, Any]) -> dict[str, Any]:
    """The extensions of an event, with the address in this library's word too."""
    return {ROMANCY: extensions[EDDA], **extensions} if EDDA in extensions else extensions


def addressed_request(scope: Scope, receive: Receive, limit: int) -> tuple[Scope, Receive]:
    """A request whose events are addressed as this library does."""
    headers: list[tuple[bytes, bytes]] = list(scope["headers"])
    by_name = {name.lower(): value for name, value in headers}
    if f"ce-{EDDA}".encode() in by_name and f"ce-{ROMANCY}".encode() not in by_name:
        scope = {**scope, "headers": [*headers, (f"ce-{ROMANCY}".encode(), by_name[f"ce-{EDDA}".encode()])]}
    if by_name.get(b"content-type", b"").lower().startswith(_STRUCTURED):
        receive = _Body(receive, limit)
    return scope, receive


class _Body:
    """The body of a request, in one part; one that is too large is handed on as it comes."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._read = False

    async def __call__(self) -> Message:
        if self._read:
            return await self._receive()
        body, more = bytearray(), True
        while more and len(body) <= self._limit:
            message = await self._receive()
            if message["type"] != "http.request":
                return message
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self._read = True
        return {"type": "http.request", "body": bytes(body) if more else addressed_body(bytes(body)), "more_body": more}


def addressed_body(body: bytes) -> bytes:
    """One event or a batch of them as JSON; anything else is left alone."""
    if EDDA.encode() not in body:
        return body
    try:
        text = body.decode()
        places = _places(text)
    except ValueError:
        return body
    for at, target in reversed(places):
        text = f"{text[:at]}{json.dumps(ROMANCY)}: {json.dumps(target)}, {text[at:]}"
    return text.encode()


def _places(text: str) -> list[tuple[int, Any]]:
    """Where the fields of each addressed event begin, and its address."""
    decoder, at = json.JSONDecoder(), _solid(text, 0)
    if text[at : at + 1] != "[":
        return _place(text, at, decoder.raw_decode(text, at)[0])
    found: list[tuple[int, Any]] = []
    at = _solid(text, at + 1)
    while text[at : at + 1] == "{":
        event, end = decoder.raw_decode(text, at)
        found += _place(text, at, event)
        at = _solid(text, end)
        at = _solid(text, at + 1) if text[at : at + 1] == "," else at
    return found


def _place(text: str, at: int, event: Any) -> list[tuple[int, Any]]:
    if isinstance(event, dict) and EDDA in event and ROMANCY not in event:
        return [(at + 1, event[EDDA])]  # pyright: ignore[reportUnknownVariableType]
    return []


def _solid(text: str, at: int) -> int:
    while text[at : at + 1].isspace():
        at += 1
    return at

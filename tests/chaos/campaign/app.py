"""The app of the campaign: `romancy serve tests.chaos.campaign.app:app`.

`python -m tests.chaos.campaign.app` runs a worker without HTTP; it ends with its standard input. Options come from the
environment.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import logging
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tests.chaos.campaign.campaign_workflows import WORKFLOWS
from tests.chaos.campaign.client_log import CallKind
from tests.chaos.campaign.planted_faults import VARIABLE, Plant, planted

from romancy import App, RetryPolicy
from romancy.http.types import ASGIApp, Message, Receive, Scope, Send

_PATHS = {
    "/": CallKind.EVENT,
    "/events": CallKind.EVENT,
    "/api/v1/workflows/start": CallKind.START,
    "/api/v1/messages": CallKind.MESSAGE,
}
_REFUSED = (409, {"error": "This fault was planted.", "error_type": "PlantedError", "retryable": False})
WATCHED = "ROMANCY_CHAOS_WATCHED"
"""Set in the processes of a campaign."""
_TAKEN = (202, {"status": "accepted", "instance_ids": []})


class CampaignApp(App):
    """An app whose HTTP interface can contain planted faults."""

    def __init__(self, database: str | None = None, **options: Any) -> None:
        patient = RetryPolicy.fixed(1000, 0.1)  # the database may be unavailable for a long time
        super().__init__(database, workflows=WORKFLOWS, default_retry=patient, **options)
        self._delayed: dict[tuple[str, ...], list[Callable[[], Any]]] = defaultdict(list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, possibly with the planted fault."""
        kind = _kind_of(scope)
        if kind is None or VARIABLE not in os.environ:
            return await super().__call__(scope, receive, send)
        body = await _read(receive)
        key = _key_of(kind, scope, body)
        serve = _Forwarder(super().__call__, scope)
        if planted(Plant(f"lost-{kind}"), key):
            await _answer(send, *_TAKEN)
        elif planted(Plant(f"refused-{kind}"), key):
            await serve(body, _discard_response)
            await _answer(send, *_REFUSED)
        elif kind is CallKind.MESSAGE and planted(Plant.DISORDERED_MESSAGE, key):
            self._delayed[_order_key(body)].append(lambda: serve(body, _discard_response))
            await _answer(send, *_TAKEN)
        elif kind is CallKind.MESSAGE and (late := self._delayed.pop(_order_key(body), [])):
            await serve(body, _discard_response)
            for serve_late in late:
                await serve_late()
            await _answer(send, *_TAKEN)
        else:
            await self._serve_again(kind, key, body, serve)
            await serve(body, send)

    async def _serve_again(self, kind: CallKind, key: str, body: bytes, serve: _Forwarder) -> None:
        if kind is CallKind.MESSAGE and planted(Plant.DOUBLED_MESSAGE, key):
            await serve(body, _discard_response)
        if kind is CallKind.EVENT and planted(Plant.DOUBLED_EVENT, key):
            await serve(json.dumps({**json.loads(body), "source": "planted"}).encode(), _discard_response)


class _Forwarder:
    """Passes a request on to the app, with a given body."""

    def __init__(self, app: ASGIApp, scope: Scope) -> None:
        self._app = app
        self._scope = scope

    async def __call__(self, body: bytes, send: Send) -> None:
        said = False

        async def receive() -> Message:
            nonlocal said
            if said:
                await asyncio.Event().wait()  # the client stays connected
            said = True
            return {"type": "http.request", "body": body, "more_body": False}

        others = [pair for pair in self._scope["headers"] if pair[0] != b"content-length"]
        headers = [*others, (b"content-length", str(len(body)).encode())]
        await self._app({**self._scope, "headers": headers}, receive, send)


def _kind_of(scope: Scope) -> CallKind | None:
    if scope["type"] != "http" or scope["method"] != "POST":
        return None
    path: str = scope["path"]
    return CallKind.CANCEL if path.startswith("/cancel/") else _PATHS.get(path)


def _key_of(kind: CallKind, scope: Scope, body: bytes) -> str:
    if kind is CallKind.CANCEL:
        return str(scope["path"])
    try:
        parts = json.loads(body)
    except ValueError:
        return ""
    if kind is CallKind.START and parts.get("workflow") != "order":
        return ""  # the long-running workflows must start
    return str(parts.get({CallKind.START: "instance_id", CallKind.EVENT: "id", CallKind.MESSAGE: "data"}[kind]))


def _order_key(body: bytes) -> tuple[str, ...]:
    """Messages with equal keys must be received in order."""
    parts = json.loads(body)
    return parts["channel"], parts.get("to", "")


async def _read(receive: Receive) -> bytes:
    body: bytes = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if not message.get("more_body"):
            return body


async def _answer(send: Send, status: int, content: dict[str, Any]) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(content).encode()})


async def _discard_response(message: Message) -> None:
    """Discard the response."""


app = CampaignApp()


def dump_tasks(number: int, frame: object) -> None:
    """Print the stacks of all tasks and threads, to diagnose a process that does not end."""
    faulthandler.dump_traceback(all_threads=True)
    for task in asyncio.all_tasks(asyncio.get_running_loop()):
        task.print_stack(file=sys.stderr)


if WATCHED in os.environ:
    signal.signal(signal.SIGUSR1, dump_tasks)


async def main() -> None:
    """Run until standard input ends."""
    async with app:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.buffer.read)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    with suppress(KeyboardInterrupt):
        asyncio.run(main())

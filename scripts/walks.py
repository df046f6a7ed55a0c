"""Walks through the engine, as a reader with a debugger would step: which functions of romancy one action calls.

    .venv/bin/python scripts/walks.py [--list]

    start   `start_workflow` with one activity, until `handle.result()` returns, on SQLite
    event   `POST /events` to an instance that waits here, until it has ended, on PostgreSQL

For each walk it prints the calls of Python functions of the package (with each resumption of a coroutine), the number of
different functions and files, and how often the walk changes to another file or package. The threads count together, in the
order of their calls. `--list` prints the calls.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from benchmarks.postgres_server import serving

import romancy
from romancy import ActivityContext, App, WorkflowContext, activity, wait_event, workflow

_PACKAGE = f"{Path(romancy.__file__).parent}/"
_QUIET: dict[str, Any] = {"poll_interval": 3600, "heartbeat_interval": 600, "lease_timeout": 3600}
"""Options of an app without regular work, which would be counted."""
_WARM_UP = 5


class Call(NamedTuple):
    """A call of a function of the package."""

    file: str
    function: str


class Recorder:
    """Records calls in all threads that begin after `install`."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._on = False

    def install(self) -> None:
        """Begin to watch this thread and those that start from now on."""
        threading.setprofile(self._watch)
        sys.setprofile(self._watch)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the calls within the context, instead of those recorded before."""
        self.calls, self._on = [], True
        try:
            yield
        finally:
            self._on = False

    def _watch(self, frame: FrameType, what: str, _: object) -> None:
        if self._on and what == "call" and frame.f_code.co_filename.startswith(_PACKAGE):
            self.calls.append(Call(frame.f_code.co_filename.removeprefix(_PACKAGE), frame.f_code.co_qualname))


@activity
async def add_one(ctx: ActivityContext, number: int) -> int:
    """The activity of the first walk."""
    return number + 1


@workflow
async def one_activity(ctx: WorkflowContext, number: int) -> int:
    """The workflow of the first walk."""
    return await add_one(ctx, number)


@workflow
async def one_event(ctx: WorkflowContext, name: str) -> None:
    """The workflow of the second walk."""
    await wait_event(ctx, "go", subject=name)


async def start(recorder: Recorder, address: str) -> None:
    """Record a start."""
    async with App(address, **_QUIET) as app:
        for _ in range(_WARM_UP):
            await (await app.start_workflow(one_activity, 1)).result()
        await asyncio.sleep(0.1)  # what follows a commit in the background is over then
        with recorder.recording():
            await (await app.start_workflow(one_activity, 1)).result()


async def event(recorder: Recorder, address: str) -> None:
    """Record an event."""
    async with App(address, **_QUIET) as app:
        for number in range(_WARM_UP + 1):
            name = f"walk-{number}"
            handle = await app.start_workflow(one_event, name)
            while await handle.status() != "waiting_for_event":
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            result = asyncio.ensure_future(handle.result())
            await asyncio.sleep(0.01)
            with recorder.recording():
                assert await _post(app, name) == 202
                await result


async def _post(app: App, name: str) -> int:
    """Send the event to the app's HTTP interface; return the status of the response."""
    body = json.dumps({"specversion": "1.0", "id": name, "source": "/walk", "type": "go", "subject": name}).encode()
    headers = [(b"host", b"localhost"), (b"content-type", b"application/cloudevents+json")]
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/events",
        "raw_path": b"/events",
        "query_string": b"",
        "headers": headers,
        "client": ("127.0.0.1", 5000),
    }
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    status: int = sent[0]["status"]
    return status


def report(name: str, calls: list[Call], *, list_calls: bool) -> None:
    """Print the figures of a walk."""
    files = [call.file for call in calls]
    packages = [str(Path(file).parent) for file in files]
    if list_calls:
        for number, call in enumerate(calls, 1):
            print(f"  {number:4}  {call.file}  {call.function}")
    print(
        f"{name:6} {len(calls)} calls, {len(set(calls))} functions, {len(set(files))} files, "
        f"{_changes(files)} changes of file, {_changes(packages)} of package"
    )


def _changes(names: list[str]) -> int:
    return sum(before != after for before, after in pairwise(names))


def main() -> None:
    """Take both walks."""
    parser = argparse.ArgumentParser(description="Count the calls of two walks through the engine.")
    parser.add_argument("--list", action="store_true", help="print every call")
    given = parser.parse_args()
    recorder = Recorder()
    recorder.install()
    walk: Callable[[Recorder, str], Awaitable[None]]
    with tempfile.TemporaryDirectory() as folder, serving() as server:
        for walk, address in ((start, f"{folder}/walk.db"), (event, server.address())):
            asyncio.run(walk(recorder, address))
            report(walk.__name__, recorder.calls, list_calls=given.list)


if __name__ == "__main__":
    main()

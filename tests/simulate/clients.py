"""Simulated clients of the apps: they start and control instances, send events and messages, and wait for results.

A client repeats a call until it knows the outcome. Only messages are sent once, because they have no id to deduplicate by.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from tests.explore.participants import ExternalSender, Spec, addressed, listen, send_items
from tests.explore.small_scenarios import item
from tests.http.asgi_client import call
from tests.simulate.order_workflows import ARRIVED, order
from tests.simulate.simulated_process import Process, UnreachableError
from tests.simulate.simulation import Simulation

from romancy import (
    InvalidWorkflowStateError,
    StoreError,
    WorkflowCancelledError,
    WorkflowFailedError,
    WorkflowNotCancellableError,
    WorkflowNotFoundError,
)
from romancy.authoring.workflow import Workflow
from romancy.model.status import Status

T = TypeVar("T")
_UNSURE = (UnreachableError, StoreError, TimeoutError)
"""Errors after which a client cannot know whether its call took effect."""
_REFUSED = (InvalidWorkflowStateError, WorkflowNotCancellableError, WorkflowNotFoundError)
_SOURCE = "/out"


class Clients:
    """The clients of one simulation."""

    def __init__(self, simulation: Simulation, rng: random.Random) -> None:
        self._simulation = simulation
        self._rng = rng
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.results: dict[str, int] = {}
        """Results that `handle.result()` returned for orders, by instance id."""
        self.controlled: set[str] = set()
        """Instances for which a cancellation or termination was requested."""

    @property
    def done(self) -> bool:
        """True when every client has finished."""
        return all(task.done() for task in self._tasks)

    def check(self) -> None:
        """Raise the error of a client that failed by itself."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a client as a task."""
        self._tasks[asyncio.create_task(work)] = None

    # --- starts

    async def start(self, spec: Spec, *, waits: bool) -> None:
        """Start an instance, repeating the call until it is acknowledged; with `waits`, also wait for its result."""
        what: Workflow[..., Any] = order if "steps" in spec else send_items if "items" in spec else listen
        await asyncio.sleep(self._rng.uniform(0, 3))
        await self._retry_until_answered(f"start {spec['id']}", partial(self._start, what, spec))
        if waits:
            await self._wait_for(spec["id"])

    async def _start(self, what: Workflow[..., Any], spec: Spec, process: Process) -> None:
        await process.start_workflow(what.with_options(instance_id=spec["id"]), spec)
        self._simulation.acknowledge_start(spec["id"])

    async def _wait_for(self, id: str) -> None:
        try:
            self.results[id] = await self._retry_until_answered(f"result of {id}", partial(_result, id))
        except (WorkflowFailedError, WorkflowCancelledError):
            return

    # --- events and messages

    async def send(self, external_sender: ExternalSender) -> None:
        """Send the items of an external sender in order; events are repeated until acknowledged, messages are sent once."""
        for one in external_sender.items:
            await asyncio.sleep(self._rng.uniform(0, 2))
            match one["how"]:
                case "event":
                    for _ in range(2 if one["again"] else 1):
                        await self._retry_until_answered(f"event {one['id']}", partial(self._event, one))
                case "cancel" | "terminate":
                    continue
                case _:
                    await self._send_once(one)

    async def send_start_events(self, name: str, count: int) -> None:
        """Send events that start instances of `arrived`."""
        for n in range(count):
            await asyncio.sleep(self._rng.uniform(0, 3))
            one = item(name, n, "event", id=f"{name}:{n}", type=ARRIVED)
            await self._retry_until_answered(f"event {one['id']}", partial(self._event, one))

    async def _event(self, one: Spec, process: Process) -> None:
        event = {"specversion": "1.0", "id": one["id"], "source": _SOURCE, "type": one["type"], "data": one["data"]}
        event |= {"subject": one["subject"]} if one["subject"] is not None else {}
        event |= addressed(one) or {}
        headers = {"content-type": "application/cloudevents+json"}
        answer = await call(process, "/", json.dumps(event).encode(), headers=headers)
        if answer.status != 202:
            if answer.status != 503:
                self._simulation.fault(f"event {one['id']} got the response {answer}")
            raise UnreachableError(f"{process.name} responded with {answer.status}")
        self._simulation.acknowledge_event(_SOURCE, one["id"])

    async def _send_once(self, one: Spec) -> None:
        """Send a message once: an unacknowledged message may have been published, and a repetition would duplicate it."""
        process = await self._pick_process()
        try:
            await process.call_app(partial(self._message, one))
        except (*_UNSURE, *_REFUSED):
            return

    async def _message(self, one: Spec, process: Process) -> None:
        match one["how"]:
            case "publish":
                id = await process.publish(one["channel"], one["data"])
            case "group":
                id = await process.send_to_group(one["group"], one["channel"], one["data"])
            case _:
                id = await process.send_to(one["to"], one["channel"], one["data"])
        self._simulation.acknowledge_message(id)

    # --- control

    async def control(self, id: str, what: str) -> None:
        """Cancel, terminate, or pause and resume an instance."""
        await asyncio.sleep(self._rng.uniform(0, 12))
        if what == "pause":
            await self._control(id, what, lambda process: process.pause_workflow(id))
            await asyncio.sleep(self._rng.uniform(0, 4))
            await self.resume(id)
        elif what == "cancel":
            self.controlled.add(id)
            if self._rng.random() < 0.5:
                self.spawn(self._pause_repeatedly(id))
            await self._control(id, what, partial(self._cancel, id))
        else:
            self.controlled.add(id)
            await self._control(id, what, partial(self._terminate, id))

    async def _pause_repeatedly(self, id: str) -> None:
        """Pause and resume an instance repeatedly while it is cancelled and compensates."""
        for _ in range(4):
            await self._control(id, "pause", lambda process: process.pause_workflow(id))
            await self.resume(id)

    async def resume(self, id: str) -> None:
        """Resume an instance."""
        await self._control(id, "resume", lambda process: process.resume_workflow(id))

    async def _control(self, id: str, what: str, make: Callable[[Process], Awaitable[None]]) -> None:
        try:
            await self._retry_until_answered(f"{what} {id}", make)
        except _REFUSED:
            return

    async def _cancel(self, id: str, process: Process) -> None:
        """Cancel an instance over HTTP."""
        answer = await call(process, f"/cancel/{id}")
        if answer.status == 200:
            self._simulation.acknowledge_end(id, Status.CANCELLED, Status.TERMINATED)
        elif answer.status == 503:
            raise UnreachableError(f"{process.name} responded with {answer.status}")
        elif answer.status not in (404, 409):
            self._simulation.fault(f"the cancellation of {id} got the response {answer}")

    async def _terminate(self, id: str, process: Process) -> None:
        await process.terminate_workflow(id)
        self._simulation.acknowledge_end(id, Status.TERMINATED)

    # --- calls

    async def _retry_until_answered(self, what: str, make: Callable[[Process], Awaitable[T]]) -> T:
        while True:
            process = await self._pick_process()
            try:
                answer = await process.call_app(make)
            except _UNSURE as error:
                self._simulation.note("client", f"{what}: outcome unknown: {error}")
                await asyncio.sleep(self._rng.uniform(0.05, 1.0))
            else:
                self._simulation.note("client", f"{what}: {answer}")
                return answer

    async def _pick_process(self) -> Process:
        while not (up := self._simulation.up):
            await asyncio.sleep(0.2)
        return self._rng.choice(up)


async def _result(id: str, process: Process) -> Any:
    return await process.get_handle(id).result(timeout=5)

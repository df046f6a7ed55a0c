"""Those outside: they start instances, send events by HTTP, publish, steer, wait for results, and ask again when unsure."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from tests.explore.participants import Outsider, Spec, addressed, listen, speak
from tests.explore.small_scenarios import item
from tests.http.asgi_client import call
from tests.simulate.order_workflows import ARRIVED, order
from tests.simulate.simulated_process import Gone, Process
from tests.simulate.simulation import World

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
_UNSURE = (Gone, StoreError, TimeoutError)
"""What a client gets when it cannot know whether its wish was done."""
_REFUSED = (InvalidWorkflowStateError, WorkflowNotCancellableError, WorkflowNotFoundError)
_SOURCE = "/out"


class Clients:
    """All of them."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self._world = world
        self._chance = chance
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.results: dict[str, int] = {}
        """What was returned to those who waited for an order."""
        self.steered: set[str] = set()
        """Instances whose cancellation or termination was asked for."""

    @property
    def done(self) -> bool:
        """Everybody has got what they wanted."""
        return all(task.done() for task in self._tasks)

    def check(self) -> None:
        """Raise what went wrong with a client itself."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Let a client begin."""
        self._tasks[asyncio.create_task(work)] = None

    # --- starting

    async def start(self, spec: Spec, *, waits: bool) -> None:
        """Start an instance, until it is sure that it has; and wait for its result."""
        what: Workflow[..., Any] = order if "steps" in spec else speak if "items" in spec else listen
        await asyncio.sleep(self._chance.uniform(0, 3))
        await self._until_sure(f"start {spec['id']}", partial(self._start, what, spec))
        if waits:
            await self._wait_for(spec["id"])

    async def _start(self, what: Workflow[..., Any], spec: Spec, process: Process) -> None:
        await process.start_workflow(what.with_options(instance_id=spec["id"]), spec)
        self._world.promise_start(spec["id"])

    async def _wait_for(self, id: str) -> None:
        try:
            self.results[id] = await self._until_sure(f"result of {id}", partial(_result, id))
        except (WorkflowFailedError, WorkflowCancelledError):
            return

    # --- saying

    async def send(self, outsider: Outsider) -> None:
        """Say one thing after another; what has an id of its own is said until it is sure."""
        for one in outsider.items:
            await asyncio.sleep(self._chance.uniform(0, 2))
            match one["how"]:
                case "event":
                    for _ in range(2 if one["again"] else 1):
                        await self._until_sure(f"event {one['id']}", partial(self._event, one))
                case "cancel" | "terminate":
                    continue
                case _:
                    await self._say_once(one)

    async def arrive(self, name: str, count: int) -> None:
        """Send events that start something."""
        for n in range(count):
            await asyncio.sleep(self._chance.uniform(0, 3))
            one = item(name, n, "event", id=f"{name}:{n}", type=ARRIVED)
            await self._until_sure(f"event {one['id']}", partial(self._event, one))

    async def _event(self, one: Spec, process: Process) -> None:
        event = {"specversion": "1.0", "id": one["id"], "source": _SOURCE, "type": one["type"], "data": one["data"]}
        event |= {"subject": one["subject"]} if one["subject"] is not None else {}
        event |= addressed(one) or {}
        headers = {"content-type": "application/cloudevents+json"}
        answer = await call(process, "/", json.dumps(event).encode(), headers=headers)
        if answer.status != 202:
            if answer.status != 503:
                self._world.fault(f"event {one['id']} was answered {answer}")
            raise Gone(f"{process.name} has answered {answer.status}")
        self._world.promise_event(_SOURCE, one["id"])

    async def _say_once(self, one: Spec) -> None:
        """Nobody can know whether a message was published that was not acknowledged: it is not said again."""
        process = await self._somebody()
        try:
            await process.ask(partial(self._message, one))
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
        self._world.promise_message(id)

    # --- steering

    async def steer(self, id: str, what: str) -> None:
        """Cancel, terminate, or pause and resume an instance."""
        await asyncio.sleep(self._chance.uniform(0, 12))
        if what == "pause":
            await self._steer(id, what, lambda process: process.pause_workflow(id))
            await asyncio.sleep(self._chance.uniform(0, 4))
            await self.resume(id)
        elif what == "cancel":
            self.steered.add(id)
            if self._chance.random() < 0.5:
                self.spawn(self._hesitate(id))
            await self._steer(id, what, partial(self._cancel, id))
        else:
            self.steered.add(id)
            await self._steer(id, what, partial(self._terminate, id))

    async def _hesitate(self, id: str) -> None:
        """Call it again and again, while it is cancelled and on its way back."""
        for _ in range(4):
            await self._steer(id, "pause", lambda process: process.pause_workflow(id))
            await self.resume(id)

    async def resume(self, id: str) -> None:
        """Take back a pause."""
        await self._steer(id, "resume", lambda process: process.resume_workflow(id))

    async def _steer(self, id: str, what: str, make: Callable[[Process], Awaitable[None]]) -> None:
        try:
            await self._until_sure(f"{what} {id}", make)
        except _REFUSED:
            return

    async def _cancel(self, id: str, process: Process) -> None:
        """By HTTP."""
        answer = await call(process, f"/cancel/{id}")
        if answer.status == 200:
            self._world.promise_end(id, Status.CANCELLED, Status.TERMINATED)
        elif answer.status == 503:
            raise Gone(f"{process.name} has answered {answer.status}")
        elif answer.status not in (404, 409):
            self._world.fault(f"the cancellation of {id} was answered {answer}")

    async def _terminate(self, id: str, process: Process) -> None:
        await process.terminate_workflow(id)
        self._world.promise_end(id, Status.TERMINATED)

    # --- asking

    async def _until_sure(self, what: str, make: Callable[[Process], Awaitable[T]]) -> T:
        while True:
            process = await self._somebody()
            try:
                answer = await process.ask(make)
            except _UNSURE as error:
                self._world.note("client", f"{what}: unsure: {error}")
                await asyncio.sleep(self._chance.uniform(0.05, 1.0))
            else:
                self._world.note("client", f"{what}: {answer}")
                return answer

    async def _somebody(self) -> Process:
        while not (up := self._world.up):
            await asyncio.sleep(0.2)
        return self._chance.choice(up)


async def _result(id: str, process: Process) -> Any:
    return await process.get_handle(id).result(timeout=5)

"""The life of the app behind the HTTP interface: by the server's lifespan, or from the first request on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import traceback

from romancy.errors import RomancyError
from romancy.http.problems import UnavailableError
from romancy.http.types import Receive, Send, Service

_LOG = logging.getLogger("romancy.http")
_START_TIMEOUT = 1.0


class Lifespan:
    """Starts the app once, however many requests come at the same time."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._startup_task: asyncio.Task[None] | None = None
        self._is_shut_down = False

    async def ensure_started(self) -> None:
        """See that the app runs. An app that was shut down is not started again."""
        if self._is_shut_down:
            raise UnavailableError("This app is shutting down: try again, because another process may respond.")
        if self._startup_task is None:
            self._startup_task = asyncio.create_task(self._service.startup())
        if self._startup_task.get_loop() is not asyncio.get_running_loop():
            raise UnavailableError(
                "This app was started on another event loop, and can be used only there. (In tests, enter the client: `with "
                "TestClient(app) as client`.)"
            )
        await self._wait_until_started(self._startup_task)

    async def try_to_start(self) -> None:
        """See that the app runs, or comes to. Who asks does not wait for that long, and gets no error."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_START_TIMEOUT):
                await self.ensure_started()

    async def _wait_until_started(self, starting: asyncio.Task[None]) -> None:
        if starting.done() and not starting.cancelled() and starting.exception() is None:
            return
        try:
            # Shielded: a request that is given up must not stop what the others wait for.
            await asyncio.shield(starting)
        except BaseException:
            if starting.done() and self._startup_task is starting:
                self._startup_task = None  # the next request tries again
            raise

    async def serve(self, receive: Receive, send: Send) -> None:
        """The server's lifespan protocol. It may come again, on another event loop: so tests use an app."""
        await receive()
        self._startup_task, self._is_shut_down = None, False
        try:
            await self.ensure_started()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": _describe_error(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self._is_shut_down = True
        try:
            await self._service.shutdown()
        except Exception as error:
            _LOG.exception("The app could not be shut down.")
            await send({"type": "lifespan.shutdown.failed", "message": _describe_error(error)})
        else:
            await send({"type": "lifespan.shutdown.complete"})


def _describe_error(error: Exception) -> str:
    """Our own errors say what to do; of others the stack is needed."""
    if isinstance(error, RomancyError):
        return f"{type(error).__name__}: {error}"
    return "".join(traceback.format_exception(error))

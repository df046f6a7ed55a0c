"""Starts and stops an app that is served over HTTP: with the lifespan of the server, or else at the first request."""

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
    """Starts the app once, even if many requests arrive at the same time."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._startup_task: asyncio.Task[None] | None = None
        self._is_shut_down = False

    async def ensure_started(self) -> None:
        """Start the app if it is not running. An app that was shut down is not started again."""
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
        """Start the app if it is not running. The caller waits for a bounded time only, and gets no error."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_START_TIMEOUT):
                await self.ensure_started()

    async def _wait_until_started(self, starting: asyncio.Task[None]) -> None:
        if starting.done() and not starting.cancelled() and starting.exception() is None:
            return
        try:
            # Shielded: all requests wait for the same start, so the cancellation of one request must not cancel it.
            await asyncio.shield(starting)
        except BaseException:
            if starting.done() and self._startup_task is starting:
                self._startup_task = None  # the next request starts it again
            raise

    async def serve(self, receive: Receive, send: Send) -> None:
        """Serve the lifespan protocol. Tests run it several times for one app, each time on another event loop."""
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
    """Return the message of an error of romancy, which says what to do, or the traceback of any other error."""
    if isinstance(error, RomancyError):
        return f"{type(error).__name__}: {error}"
    return "".join(traceback.format_exception(error))

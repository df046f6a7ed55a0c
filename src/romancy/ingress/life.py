"""The life of the app behind the HTTP interface: by the server's lifespan, or from the first request on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import traceback

from romancy.errors import RomancyError
from romancy.ingress.problems import UnavailableError
from romancy.ingress.types import Receive, Send, Service

_LOG = logging.getLogger("romancy.http")
_PATIENCE = 1.0


class Life:
    """Starts the app once, however many requests come at the same time."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._starting: asyncio.Task[None] | None = None
        self._over = False

    async def begin(self) -> None:
        """See that the app runs. An app that was shut down is not started again."""
        if self._over:
            raise UnavailableError("This app is shutting down: try again, another process may answer.")
        if self._starting is None:
            self._starting = asyncio.create_task(self._service.startup())
        if self._starting.get_loop() is not asyncio.get_running_loop():
            raise UnavailableError(
                "This app was started on another event loop, and can only be used there. (In tests: enter the client, "
                "`with TestClient(app) as client`.)"
            )
        await self._started(self._starting)

    async def try_to_begin(self) -> None:
        """See that the app runs, or comes to. Who asks does not wait for that long, and gets no error."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_PATIENCE):
                await self.begin()

    async def _started(self, starting: asyncio.Task[None]) -> None:
        if starting.done() and not starting.cancelled() and starting.exception() is None:
            return
        try:
            # Shielded: a request that is given up must not stop what the others wait for.
            await asyncio.shield(starting)
        except BaseException:
            if starting.done() and self._starting is starting:
                self._starting = None  # the next request tries again
            raise

    async def lifespan(self, receive: Receive, send: Send) -> None:
        """The server's lifespan protocol. It may come again, on another event loop: so tests use an app."""
        await receive()
        self._starting, self._over = None, False
        try:
            await self.begin()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": _told(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self._over = True
        try:
            await self._service.shutdown()
        except Exception as error:
            _LOG.exception("The app could not be shut down.")
            await send({"type": "lifespan.shutdown.failed", "message": _told(error)})
        else:
            await send({"type": "lifespan.shutdown.complete"})


def _told(error: Exception) -> str:
    """Our own errors say what to do; of others the stack is needed."""
    if isinstance(error, RomancyError):
        return f"{type(error).__name__}: {error}"
    return "".join(traceback.format_exception(error))

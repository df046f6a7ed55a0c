"""`EddaMCPServer`: an app and a tool server in one, on top of `romancy.integrations.mcp`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn, overload

from romancy import ConfigurationError
from romancy.integrations.edda.addressed_events import Message, Receive, Scope
from romancy.integrations.edda.app import EddaApp
from romancy.integrations.edda.facades import ReplayEngine, Storage
from romancy.integrations.edda.unsupported import no_attribute
from romancy.integrations.edda.workflow import Workflow, workflow
from romancy.integrations.mcp import ToolServer

__all__ = ["EddaMCPServer"]

_MCP = ("/", "/mcp", "/mcp/")
"""Paths of MCP over HTTP. The app serves all other paths."""
_INTERNALS: Mapping[str, str] = {"_mcp": "the tool server is `server.romancy`"}


class EddaMCPServer:
    """An MCP server with its own app. `romancy` is the `ToolServer` behind it; options of `App` are accepted too.

    Each workflow has four tools: its name starts it, and `{name}_status`, `{name}_result` and `{name}_cancel` take the id of
    an instance. `token_verifier` decides whether a token is valid; with it, requests without a token are refused.
    """

    def __init__(
        self,
        name: str,
        db_url: str,
        *,
        outbox_enabled: bool = False,
        broker_url: str | None = None,
        token_verifier: Callable[[str], bool | Awaitable[bool]] | None = None,
        **options: Any,
    ) -> None:
        if token_verifier is not None:
            options["auth"] = _decider(token_verifier)
        self._edda_app = EddaApp(
            service_name=name, db_url=db_url, outbox_enabled=outbox_enabled, broker_url=broker_url or None, **options
        )
        self._chosen = "workflows" in options
        self._workflows: dict[str, Workflow[Any]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.romancy = ToolServer(self._edda_app.romancy, name=name)

    @property
    def storage(self) -> Storage:
        """The `storage` of the app."""
        return self._edda_app.storage

    @property
    def replay_engine(self) -> ReplayEngine:
        """The `replay_engine` of the app."""
        return self._edda_app.replay_engine

    @overload
    def durable_tool(self, func: Callable[..., Any], /, *, description: str = "") -> Workflow[Any]: ...
    @overload
    def durable_tool(self, /, *, description: str = "") -> Callable[[Callable[..., Any]], Workflow[Any]]: ...
    def durable_tool(self, func: Any = None, /, *, description: str = "") -> Any:
        """Offer a workflow as four tools. A plain function becomes a workflow."""

        def offer(func: Any) -> Workflow[Any]:
            made: Workflow[Any] = func if isinstance(func, Workflow) else workflow(func)
            self.romancy.tools(
                made.romancy,
                start=made.name,
                description=description or None,
                status_description=f"Check status of {made.name} workflow",
                result_description=f"Get result of {made.name} workflow (if completed)",
                cancel_description=f"Cancel {made.name} workflow (if running or waiting)",
            )
            if self._chosen:
                self._edda_app.romancy.register(made.romancy)
            self._workflows[made.name] = made
            return made

        return offer if func is None else offer(func)

    def prompt(self, func: Any = None, /, *, description: str = "") -> Any:
        """Offer a function as a prompt. It may use `server.storage`."""
        offer = self.romancy.prompt(description=description or None)
        return offer if func is None else offer(func)

    async def initialize(self) -> None:
        """Start the app. Safe to call again while it is running."""
        self._loop = asyncio.get_running_loop()
        await self._edda_app.initialize()

    async def shutdown(self) -> None:
        """Stop the app."""
        self._loop = None
        await self._edda_app.shutdown()

    async def run_stdio(self) -> None:
        """Serve the parent process over standard input and output, until it closes them."""
        await self.initialize()
        try:
            await self.romancy.run_stdio()
        finally:
            await self.shutdown()

    def asgi_app(self) -> Callable[[Scope, Receive, Callable[[Message], Awaitable[None]]], Awaitable[None]]:
        """Return an ASGI application: MCP at `/` and `/mcp`, and the app's paths: `/events`, `/cancel/...`, `/viewer/`, ...

        It starts the app with its lifespan, or with the first request.
        """
        tools: Any = self.romancy.asgi_app()

        async def site(scope: Scope, receive: Receive, send: Callable[[Message], Awaitable[None]]) -> None:
            if self._loop not in (None, asyncio.get_running_loop()):
                raise ConfigurationError(
                    "server.initialize() was called on another event loop, as `asyncio.run(server.initialize())` does, and "
                    "the app cannot be used on this one. Remove that call: asgi_app() starts the app by itself."
                )
            if scope["type"] == "http" and _path(scope) in _MCP:
                await self._edda_app.initialize()
                await tools(scope, receive, send)
            else:
                await self._edda_app(scope, receive, send)

        return site

    def __getattr__(self, name: str) -> NoReturn:
        raise no_attribute("EddaMCPServer", name, _INTERNALS, [one for one in dir(type(self)) if not one.startswith("_")])


def _path(scope: Scope) -> str:
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    return path.removeprefix(root) or "/"


def _decider(verify: Callable[[str], bool | Awaitable[bool]]) -> Callable[[Mapping[str, Any]], Awaitable[str | None]]:
    """Return the `auth` option of an app, given a function that verifies tokens."""

    async def decide(scope: Mapping[str, Any]) -> str | None:
        headers = dict(scope["headers"])
        scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return None
        valid = verify(token.strip())
        return "admin" if (await valid if inspect.isawaitable(valid) else valid) else None

    return decide

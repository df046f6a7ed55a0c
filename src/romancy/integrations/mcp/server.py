"""`ToolServer`: its tools and prompts, and its transports."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

from mcp.server import Server
from mcp.server.mcpserver.prompts import Prompt
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequiredResult,
    ListPromptsResult,
    ListToolsResult,
    PaginatedRequestParams,
    PromptArgument,
    PromptMessage,
)
from mcp.types import Prompt as ListedPrompt
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from romancy import App, ConfigurationError, Workflow, __version__
from romancy.integrations.mcp.handlers import SHARED, Context, DurableTool, InstanceTools, ToolHandler
from romancy.integrations.mcp.tasks import Tasks

_LOG = logging.getLogger("romancy.mcp")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class ToolServer:
    """An MCP server whose tools are workflows of an app.

    A call starts the workflow and returns when the instance is durable: with a task if the client supports tasks, otherwise
    with an instance id for `workflow_status`, `workflow_result` and `workflow_cancel`. `tools` gives a workflow its own
    tools for status, result and cancellation.

    >>> server = ToolServer(App("sqlite:///orders.db"), name="orders")
    """

    def __init__(
        self, app: App, *, name: str = "romancy", version: str = __version__, instructions: str | None = None
    ) -> None:
        if not isinstance(app, App):
            raise ConfigurationError(
                f"{app!r} is not an App: a tool server needs one to run the workflows and to check the tokens."
            )
        self._app = app
        self._name = name
        self._version = version
        self._instructions = instructions
        self._tools: dict[str, DurableTool] = {}
        self._prompts: dict[str, Prompt] = {}

    @overload
    def tool(self, wf: Workflow[P, R], /) -> Workflow[P, R]: ...
    @overload
    def tool(
        self, /, *, name: str | None = None, title: str | None = None, description: str | None = None
    ) -> Callable[[Workflow[P, R]], Workflow[P, R]]: ...
    def tool(
        self,
        wf: Any = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
    ) -> Any:
        """Offer a workflow as a tool: `@server.tool` above `@workflow`, or a call. Returns the workflow.

        The default of `name` is the name of the workflow, the default of `description` its docstring.
        """

        def offer(wf: Any) -> Any:
            if not isinstance(wf, Workflow):
                raise ConfigurationError(f"{wf!r} cannot be a tool: write @server.tool above @workflow.")
            self._add(DurableTool(name or wf.name, wf, title, description))
            return wf

        return offer if wf is None else offer(wf)

    def tools(
        self,
        wf: Workflow[P, R],
        /,
        *,
        prefix: str | None = None,
        start: str | None = None,
        title: str | None = None,
        description: str | None = None,
        status_description: str | None = None,
        result_description: str | None = None,
        cancel_description: str | None = None,
    ) -> Workflow[P, R]:
        """Offer a workflow as four tools of its own: `{prefix}_start`, `_status`, `_result` and `_cancel`.

        The default of `prefix` is the name of the workflow; `start` is another name for the first tool. Workflows offered
        with `tool` share the tools for status, result and cancellation; these accept instances of this workflow alone.
        """
        if not isinstance(wf, Workflow):
            raise ConfigurationError(f"{wf!r} cannot be offered as tools: give a workflow.")
        common = prefix or wf.name
        descriptions = (
            status_description or f"The status and progress of a call of {common}, and when to poll again.",
            result_description or f"The result of a call of {common}; an error if it has not ended yet.",
            cancel_description
            or f"Cancel a call of {common}. Completed steps are compensated where a compensation is defined.",
        )
        others = InstanceTools(f"{common}_status", f"{common}_result", f"{common}_cancel", descriptions)
        self._add(DurableTool(start or f"{common}_start", wf, title, description, others))
        return wf

    def _add(self, tool: DurableTool) -> None:
        taken = {*SHARED.names, *(name for one in self._tools.values() for name in one.names)}
        for name in tool.names:
            if not _NAME.fullmatch(name):
                raise ConfigurationError(f"name={name!r} of a tool: give 1 to 128 letters, digits, and `_`, `-`, `.`.")
            if name in taken:
                raise ConfigurationError(f"Two tools have the name {name!r}: give one of them another name=.")
            taken.add(name)
        if any(one.workflow.name == tool.workflow.name for one in self._tools.values()):
            raise ConfigurationError(f"The workflow {tool.workflow.name!r} is already a tool.")
        self._tools[tool.name] = tool

    @overload
    def prompt(self, fn: F, /) -> F: ...
    @overload
    def prompt(
        self, /, *, name: str | None = None, title: str | None = None, description: str | None = None
    ) -> Callable[[F], F]: ...
    def prompt(
        self, fn: Any = None, /, *, name: str | None = None, title: str | None = None, description: str | None = None
    ) -> Any:
        """Offer a function as a prompt: it receives the arguments, and returns a string or messages of the SDK."""

        def offer(fn: Any) -> Any:
            prompt = Prompt.from_function(fn, name=name, title=title, description=description)
            if prompt.name in self._prompts:
                raise ConfigurationError(f"Two prompts have the name {prompt.name!r}: give one of them another name=.")
            self._prompts[prompt.name] = prompt
            return fn

        return offer if fn is None else offer(fn)

    async def run_stdio(self) -> None:
        """Start the app, and serve the parent process until it closes standard input."""
        server = self._server(trusting=True)
        async with self._app, stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    def asgi_app(self) -> ASGIApp:
        """Return an ASGI application for streamable HTTP at every path: serve it, or mount it in another one.

        The app's `auth` applies: role `read` may query, `admin` may start and cancel. Without `auth`, only requests from
        this machine are accepted. Its lifespan starts the app, or else the first request does.
        """
        return self._app.behind_auth(_StreamableHTTP(self._server(trusting=False)), role="read")

    def _server(self, *, trusting: bool) -> Server[Any]:
        handler = ToolHandler(self._app, self._tools, trusting=trusting)
        handler.tools()  # raises an error now if the app does not have a workflow, not at the first request
        tasks = Tasks(handler)

        async def list_tools(ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
            return ListToolsResult(tools=handler.tools())

        server: Server[Any] = Server(
            self._name,
            version=self._version,
            instructions=self._instructions,
            on_list_tools=list_tools,
            on_call_tool=tasks.call,  # type: ignore[arg-type]  # the task extension has its own kind of result
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
        )
        tasks.add_to(server)
        return server

    async def _list_prompts(self, ctx: Context, params: PaginatedRequestParams | None) -> ListPromptsResult:
        return ListPromptsResult(prompts=[_listed_prompt(prompt) for prompt in self._prompts.values()])

    async def _get_prompt(self, ctx: Context, params: GetPromptRequestParams) -> GetPromptResult:
        prompt = self._prompts.get(params.name)
        if prompt is None:
            raise MCPError(
                INVALID_PARAMS, f"There is no prompt {params.name!r}. The prompts are: {', '.join(self._prompts)}."
            )
        try:
            # None: the context belongs to the SDK's own server. A function that needs it fails below.
            rendered = await prompt.render(params.arguments, None)  # type: ignore[arg-type]
        except ValueError as error:
            if error.__cause__ is not None:  # an error of the function, not missing arguments
                _LOG.error("The prompt %s failed.", params.name, exc_info=error.__cause__)
            raise MCPError(INVALID_PARAMS, str(error)) from None
        if isinstance(rendered, InputRequiredResult):
            raise MCPError(INTERNAL_ERROR, f"The prompt {params.name!r} requests input, which this server does not support.")
        messages = [PromptMessage(role=one.role, content=one.content) for one in rendered]
        return GetPromptResult(description=prompt.description, messages=messages)


def _listed_prompt(prompt: Prompt) -> ListedPrompt:
    arguments = [PromptArgument(**one.model_dump()) for one in prompt.arguments or ()]
    return ListedPrompt(name=prompt.name, title=prompt.title, description=prompt.description, arguments=arguments)


class _StreamableHTTP:
    """Stateless streamable HTTP: without sessions, any process can handle any request."""

    def __init__(self, server: Server[Any]) -> None:
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":  # GET and DELETE are for sessions
            response = JSONResponse({"error": "This MCP endpoint accepts only POST."}, 405, headers={"allow": "POST"})
            return await response(scope, receive, send)
        exchange = StreamableHTTPSessionManager(self._server, json_response=True, stateless=True)
        async with exchange.run():
            await exchange.handle_request(scope, receive, send)

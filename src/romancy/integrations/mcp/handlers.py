"""Handlers of tool calls: the tools that start workflows, and the tools for status, result and cancellation.

A caller can access only instances of workflows that are tools of this server. Over HTTP, the role of its token applies:
`read` may query, `admin` may also start and cancel.
"""

from __future__ import annotations

import contextlib
import getpass
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp.server import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, INVALID_REQUEST, CallToolRequestParams, CallToolResult, Tool, ToolAnnotations
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from romancy import App, Instance, RomancyError, Workflow
from romancy.integrations.mcp.progress import milliseconds, poll_interval, status_of, steps_of
from romancy.integrations.mcp.responses import error_result, instance_result, structured_result

_LOG = logging.getLogger("romancy.mcp")

Context = ServerRequestContext[Any, Any]
INSTANCE_ID = "romancy/instance-id"
"""Key in `_meta` of a call: the id of the new instance, so that a repeated call does not start a second one."""
CALLER = "romancy.caller"


class ToolCallError(Exception):
    """A call that cannot be carried out. The message is for the caller."""


@dataclass(frozen=True, slots=True)
class InstanceTools:
    """The names and descriptions of the tools for status, result and cancellation."""

    status: str = "workflow_status"
    result: str = "workflow_result"
    cancel: str = "workflow_cancel"
    descriptions: tuple[str, str, str] = (
        "The status and progress of a call of one of the other tools, and when to poll again (poll_interval_ms).",
        "The result of a call of one of the other tools; an error if it has not ended yet.",
        "Cancel a call of one of the other tools. Completed steps are compensated where a compensation is defined.",
    )

    @property
    def names(self) -> tuple[str, str, str]:
        """The names of all three tools."""
        return self.status, self.result, self.cancel


SHARED = InstanceTools()
"""The shared tools, for workflows without tools of their own."""


@dataclass(frozen=True, slots=True)
class DurableTool:
    """A workflow that is offered as a tool."""

    name: str
    workflow: Workflow[..., Any]
    title: str | None
    description: str | None
    instance_tools: InstanceTools = SHARED

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tools for this workflow alone."""
        return (self.name,) if self.instance_tools is SHARED else (self.name, *self.instance_tools.names)

    def described(self, app: App) -> Tool:
        """Return the description of the tool for clients."""
        text = self.description or inspect.cleandoc(self.workflow.__doc__ or "") or f"Run the workflow {self.workflow.name}."
        return Tool(
            name=self.name,
            title=self.title,
            description=f"{text}\n\n{_HOW.format(self.instance_tools)}",
            input_schema=app.input_schema(self.workflow),
        )


_HOW = (
    "It runs in the background and survives restarts of this server. Unless the response is the result itself, it contains "
    "an instance_id: call {0.status}, then {0.result}."
)


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid")

    instance_id: str = Field(min_length=1, max_length=1024, description="The instance_id from the response of the tool.")


class _ResultArguments(_Arguments):
    wait: float = Field(0, ge=0, le=60, description="Seconds to wait for the end, if it has not ended yet.")


class _CancelArguments(_Arguments):
    reason: str | None = Field(None, max_length=4096, description="The reason for the cancellation, which is recorded.")


@dataclass(frozen=True, slots=True)
class _InstanceTool:
    """A tool for status, result or cancellation: of instances of one workflow, or of all tools."""

    description: str
    arguments: type[_Arguments]
    handler: Callable[[Context, Any, Instance], Awaitable[CallToolResult]]
    writes: bool
    workflow: str | None

    def described(self, name: str) -> Tool:
        """Return the description of the tool for clients."""
        hints = ToolAnnotations(
            read_only_hint=not self.writes, destructive_hint=self.writes, idempotent_hint=True, open_world_hint=False
        )
        return Tool(
            name=name, description=self.description, input_schema=self.arguments.model_json_schema(), annotations=hints
        )


class ToolHandler:
    """Handles tool calls with an app."""

    def __init__(self, app: App, tools: Mapping[str, DurableTool], *, trusting: bool) -> None:
        self.app = app
        self._tools = tools
        self._by_workflow = {tool.workflow.name: tool for tool in tools.values()}
        self._trusting = trusting
        """The caller is the parent process (stdio)."""
        self._instance_tools: dict[str, _InstanceTool] = {}
        for tool in tools.values():
            if tool.instance_tools is not SHARED:
                self._add_instance_tools(tool.instance_tools, tool.workflow.name)
        if not tools or any(tool.instance_tools is SHARED for tool in tools.values()):
            self._add_instance_tools(SHARED, None)

    def _add_instance_tools(self, names: InstanceTools, workflow: str | None) -> None:
        status, result, cancel = names.descriptions
        self._instance_tools |= {
            names.status: _InstanceTool(status, _Arguments, self._status, False, workflow),
            names.result: _InstanceTool(result, _ResultArguments, self._result, False, workflow),
            names.cancel: _InstanceTool(cancel, _CancelArguments, self._cancel, True, workflow),
        }

    def tools(self) -> list[Tool]:
        """Return the descriptions of all tools for clients."""
        others = [tool.described(name) for name, tool in self._instance_tools.items()]
        return [tool.described(self.app) for tool in self._tools.values()] + others

    def tool(self, name: str) -> DurableTool | None:
        """Return the workflow tool of a name; None for other tools."""
        return self._tools.get(name)

    async def call(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult:
        """Call a tool. Errors that the caller can correct are returned as errors of the tool."""
        if params.name not in self._tools and params.name not in self._instance_tools:
            known = ", ".join([*self._tools, *self._instance_tools])
            raise MCPError(INVALID_PARAMS, f"There is no tool {params.name!r}. The tools are: {known}.")
        try:
            if (tool := self.tool(params.name)) is not None:
                return _started(await self.start(ctx, tool, params), tool.instance_tools)
            other = self._instance_tools[params.name]
            arguments = _read(other.arguments, params.arguments)
            return await other.handler(ctx, arguments, await self.find(ctx, arguments.instance_id, other.workflow))
        except (ToolCallError, RomancyError) as error:
            return error_result(str(error))
        except MCPError:
            raise
        except Exception:
            _LOG.exception("The tool %s failed.", params.name)
            return error_result(
                "An unexpected error occurred in this server; see its log. The outcome of the call is unknown."
            )

    async def start(self, ctx: Context, tool: DurableTool, params: CallToolRequestParams) -> Instance:
        """Start the workflow of a tool; it is durable when this returns."""
        self._check_may_write(ctx)
        meta: Mapping[str, Any] = ctx.meta or {}
        wanted = meta.get(INSTANCE_ID)
        if wanted is not None and (not isinstance(wanted, str) or not 0 < len(wanted) <= 1024):
            raise ToolCallError(f"_meta[{INSTANCE_ID!r}] must be a string of 1 to 1024 characters.")
        handle = await self.app.start_with_input(
            tool.workflow, params.arguments or {}, instance_id=wanted, actor=self._actor(ctx)
        )
        return await self.find(ctx, handle.instance_id)

    async def find(self, ctx: Context, instance_id: str, workflow: str | None = None) -> Instance:
        """Return an instance of one of the tools, or of the tool of one workflow."""
        self._check_may_read(ctx)
        known = self._by_workflow if workflow is None else (workflow,)
        instance = await self.app.get_instance(instance_id)
        if instance is None or instance.workflow_name not in known:
            owner = "a tool of this server" if workflow is None else repr(self._by_workflow[workflow].name)
            raise ToolCallError(f"There is no instance {instance_id!r} of {owner}.")
        return instance

    async def cancel(self, ctx: Context, instance_id: str, reason: str | None = None) -> None:
        """Request the cancellation of an instance."""
        self._check_may_write(ctx)
        await self.find(ctx, instance_id)
        await self.app.cancel_workflow(instance_id, reason, actor=self._actor(ctx))

    async def _status(self, ctx: Context, arguments: _Arguments, instance: Instance) -> CallToolResult:
        steps = await steps_of(self.app, instance.instance_id)
        return structured_result(status_of(instance, steps, self._by_workflow[instance.workflow_name].name))

    async def _result(self, ctx: Context, arguments: _ResultArguments, instance: Instance) -> CallToolResult:
        if not instance.status.ended and arguments.wait:
            instance = await self._ended(ctx, instance, arguments.wait)
        if not instance.status.ended:
            wait = milliseconds(poll_interval(instance)) or 0
            raise ToolCallError(
                f"{instance.instance_id} is {instance.status.value} and has no result yet: call again in {wait / 1000:g} s."
            )
        return instance_result(instance)

    async def _ended(self, ctx: Context, instance: Instance, seconds: float) -> Instance:
        with contextlib.suppress(TimeoutError, RomancyError):  # the instance is read again below
            await self.app.get_handle(instance.instance_id).result(timeout=seconds)
        return await self.find(ctx, instance.instance_id)

    async def _cancel(self, ctx: Context, arguments: _CancelArguments, instance: Instance) -> CallToolResult:
        await self.cancel(ctx, arguments.instance_id, arguments.reason)
        return structured_result({"instance_id": arguments.instance_id, "cancellation": "requested"})

    def _check_may_read(self, ctx: Context) -> None:
        if not self._trusting:
            self._role(ctx)

    def _check_may_write(self, ctx: Context) -> None:
        if not self._trusting and self._role(ctx) != "admin":
            raise ToolCallError("The role of the token does not allow starting or cancelling: that needs the role admin.")

    def _role(self, ctx: Context) -> str:
        return str(self._caller(ctx).role)

    def _actor(self, ctx: Context) -> str:
        """Return the name of the caller, for the audit."""
        return f"{_user() if self._trusting else self._caller(ctx).name} (MCP)"

    def _caller(self, ctx: Context) -> Any:
        """Return the authenticated caller. Every request over HTTP must have passed the authentication of the app."""
        caller = getattr(ctx.request, "scope", {}).get(CALLER)
        if caller is None:
            raise MCPError(INVALID_REQUEST, "This request has not been authenticated.")
        return caller


def _user() -> str:
    """Return the name of the user that runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "stdio"


def _read(arguments: type[_Arguments], given: dict[str, Any] | None) -> _Arguments:
    try:
        return arguments.model_validate(given or {})
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_url=False))
        raise ToolCallError(f"The arguments are invalid: {wrong}.") from None


def _started(instance: Instance, tools: InstanceTools) -> CallToolResult:
    return structured_result(
        {
            "instance_id": instance.instance_id,
            "status": instance.status.value,
            "poll_interval_ms": milliseconds(poll_interval(instance)),
            "next": f"Call {tools.status} or {tools.result} with this instance_id.",
        }
    )

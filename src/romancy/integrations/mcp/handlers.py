"""What is done when a client calls: the tools of workflows, and those that ask about instances.

A caller sees instances of the workflows that are tools here, and no others. Over HTTP the role of its token counts: `read`
may ask, `admin` may start and cancel as well.
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
"""In `_meta` of a call: the id under which to start, so that a call that is repeated starts nothing again."""
CALLER = "romancy.caller"


class ToolCallError(Exception):
    """A call that cannot be done, said in a sentence."""


@dataclass(frozen=True, slots=True)
class InstanceTools:
    """The tools that ask about instances: their names, and what clients read of them."""

    status: str = "workflow_status"
    result: str = "workflow_result"
    cancel: str = "workflow_cancel"
    descriptions: tuple[str, str, str] = (
        "Where a call of one of the other tools stands, how far it has come, and when to ask again (poll_interval_ms).",
        "What a call of one of the other tools gave in the end; an error while it has not ended.",
        "Ask a call of one of the other tools to stop; what it did is undone where that was provided for.",
    )

    @property
    def names(self) -> tuple[str, str, str]:
        """All three."""
        return self.status, self.result, self.cancel


SHARED = InstanceTools()
"""Those of all tools that have none of their own."""


@dataclass(frozen=True, slots=True)
class DurableTool:
    """A workflow under the name of a tool."""

    name: str
    workflow: Workflow[..., Any]
    title: str | None
    description: str | None
    instance_tools: InstanceTools = SHARED

    @property
    def names(self) -> tuple[str, ...]:
        """The tools that there are for this workflow alone."""
        return (self.name,) if self.instance_tools is SHARED else (self.name, *self.instance_tools.names)

    def described(self, app: App) -> Tool:
        """As clients see it."""
        told = self.description or inspect.cleandoc(self.workflow.__doc__ or "") or f"Run the workflow {self.workflow.name}."
        return Tool(
            name=self.name,
            title=self.title,
            description=f"{told}\n\n{_HOW.format(self.instance_tools)}",
            input_schema=app.input_schema(self.workflow),
        )


_HOW = (
    "It goes on in the background, whatever happens to this server. Unless the answer is the result itself, it has an "
    "instance_id: ask {0.status}, then {0.result}."
)


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid")

    instance_id: str = Field(min_length=1, max_length=1024, description="What the tool gave when it was called.")


class _ResultArguments(_Arguments):
    wait: float = Field(0, ge=0, le=60, description="So many seconds to wait for the end, if it has not come yet.")


class _CancelArguments(_Arguments):
    reason: str | None = Field(None, max_length=4096, description="Why; it is recorded.")


@dataclass(frozen=True, slots=True)
class _InstanceTool:
    """A tool that asks about instances: of one workflow, or of all that are tools."""

    description: str
    arguments: type[_Arguments]
    handler: Callable[[Context, Any, Instance], Awaitable[CallToolResult]]
    writes: bool
    workflow: str | None

    def described(self, name: str) -> Tool:
        """As clients see it."""
        hints = ToolAnnotations(
            read_only_hint=not self.writes, destructive_hint=self.writes, idempotent_hint=True, open_world_hint=False
        )
        return Tool(
            name=name, description=self.description, input_schema=self.arguments.model_json_schema(), annotations=hints
        )


class ToolHandler:
    """Answers calls, with an app behind it."""

    def __init__(self, app: App, tools: Mapping[str, DurableTool], *, trusting: bool) -> None:
        self.app = app
        self._tools = tools
        self._by_workflow = {tool.workflow.name: tool for tool in tools.values()}
        self._trusting = trusting
        """The caller is the one who started this process (stdio)."""
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
        """All tools, as clients see them."""
        asking = [question.described(name) for name, question in self._instance_tools.items()]
        return [tool.described(self.app) for tool in self._tools.values()] + asking

    def tool(self, name: str) -> DurableTool | None:
        """The workflow behind a tool, if one is."""
        return self._tools.get(name)

    async def call(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult:
        """Call a tool. What the caller can put right is told as the tool's error."""
        if params.name not in self._tools and params.name not in self._instance_tools:
            known = ", ".join([*self._tools, *self._instance_tools])
            raise MCPError(INVALID_PARAMS, f"There is no tool {params.name!r}. There are: {known}.")
        try:
            if (tool := self.tool(params.name)) is not None:
                return _started(await self.start(ctx, tool, params), tool.instance_tools)
            question = self._instance_tools[params.name]
            asked = _read(question.arguments, params.arguments)
            return await question.handler(ctx, asked, await self.find(ctx, asked.instance_id, question.workflow))
        except (ToolCallError, RomancyError) as error:
            return error_result(str(error))
        except MCPError:
            raise
        except Exception:
            _LOG.exception("The tool %s failed.", params.name)
            return error_result("Something is wrong with this server; its log says what. Nothing is known of the outcome.")

    async def start(self, ctx: Context, tool: DurableTool, params: CallToolRequestParams) -> Instance:
        """Start the workflow of a tool; it is durable when this returns."""
        self._check_may_write(ctx)
        meta: Mapping[str, Any] = ctx.meta or {}
        wanted = meta.get(INSTANCE_ID)
        if wanted is not None and (not isinstance(wanted, str) or not 0 < len(wanted) <= 1024):
            raise ToolCallError(f"_meta[{INSTANCE_ID!r}] is a text of at most 1024 characters.")
        handle = await self.app.start_with_input(
            tool.workflow, params.arguments or {}, instance_id=wanted, actor=self._actor(ctx)
        )
        return await self.find(ctx, handle.instance_id)

    async def find(self, ctx: Context, instance_id: str, workflow: str | None = None) -> Instance:
        """An instance of one of the tools, or of that of one workflow."""
        self._check_may_read(ctx)
        known = self._by_workflow if workflow is None else (workflow,)
        instance = await self.app.get_instance(instance_id)
        if instance is None or instance.workflow_name not in known:
            whose = "a tool of this server" if workflow is None else repr(self._by_workflow[workflow].name)
            raise ToolCallError(f"There is no instance {instance_id!r} of {whose}.")
        return instance

    async def cancel(self, ctx: Context, instance_id: str, reason: str | None = None) -> None:
        """Ask for the cancellation of an instance."""
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
                f"{instance.instance_id} is {instance.status.value} and has no result yet: ask again in {wait / 1000:g} s."
            )
        return instance_result(instance)

    async def _ended(self, ctx: Context, instance: Instance, seconds: float) -> Instance:
        with contextlib.suppress(TimeoutError, RomancyError):  # how it ended is read below
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
            raise ToolCallError("The token that was shown may ask, but not start or cancel: it takes the role admin.")

    def _role(self, ctx: Context) -> str:
        return str(self._caller(ctx).role)

    def _actor(self, ctx: Context) -> str:
        """Who calls, for the audit."""
        return f"{_user() if self._trusting else self._caller(ctx).name} (MCP)"

    def _caller(self, ctx: Context) -> Any:
        """Whom the door has found. Nobody passes without that, whichever way the call came."""
        caller = getattr(ctx.request, "scope", {}).get(CALLER)
        if caller is None:
            raise MCPError(INVALID_REQUEST, "This request did not pass the check of tokens.")
        return caller


def _user() -> str:
    """Who has started this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "stdio"


def _read(arguments: type[_Arguments], given: dict[str, Any] | None) -> _Arguments:
    try:
        return arguments.model_validate(given or {})
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_url=False))
        raise ToolCallError(f"The arguments do not fit: {wrong}.") from None


def _started(instance: Instance, tools: InstanceTools) -> CallToolResult:
    return structured_result(
        {
            "instance_id": instance.instance_id,
            "status": instance.status.value,
            "poll_interval_ms": milliseconds(poll_interval(instance)),
            "next": f"Ask {tools.status} or {tools.result} with this instance_id.",
        }
    )

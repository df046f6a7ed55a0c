"""What is done when a client calls: the tools of workflows, and the three that ask about instances.

A caller sees instances of the workflows that are tools here, and no others. Over HTTP the role of its token counts: `read`
may ask, `admin` may start and cancel as well.
"""

from __future__ import annotations

import contextlib
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
from romancy.integrations.mcp.answers import answer, refusal, result_of
from romancy.integrations.mcp.progress import milliseconds, poll_interval, status_of, steps_of

_LOG = logging.getLogger("romancy.mcp")

Context = ServerRequestContext[Any, Any]
INSTANCE_ID = "romancy/instance-id"
"""In `_meta` of a call: the id under which to start, so that a call that is repeated starts nothing again."""
CALLER = "romancy.caller"


class Refused(Exception):
    """A call that cannot be done, said in a sentence."""


@dataclass(frozen=True, slots=True)
class DurableTool:
    """A workflow under the name of a tool."""

    name: str
    workflow: Workflow[..., Any]
    title: str | None
    description: str | None

    def described(self, app: App) -> Tool:
        """As clients see it."""
        told = self.description or inspect.cleandoc(self.workflow.__doc__ or "") or f"Run the workflow {self.workflow.name}."
        return Tool(
            name=self.name,
            title=self.title,
            description=f"{told}\n\n{_HOW}",
            input_schema=app.input_schema(self.workflow),
        )


_HOW = (
    "It goes on in the background, whatever happens to this server. Unless the answer is the result itself, it has an "
    "instance_id: ask workflow_status, then workflow_result."
)


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid")

    instance_id: str = Field(min_length=1, max_length=1024, description="What the tool gave when it was called.")


class _ResultArguments(_Arguments):
    wait: float = Field(0, ge=0, le=60, description="So many seconds to wait for the end, if it has not come yet.")


class _CancelArguments(_Arguments):
    reason: str | None = Field(None, max_length=4096, description="Why; it is recorded.")


class Desk:
    """Answers calls, with an app behind it."""

    def __init__(self, app: App, tools: Mapping[str, DurableTool], *, trusting: bool) -> None:
        self.app = app
        self._tools = tools
        self._by_workflow = {tool.workflow.name: tool for tool in tools.values()}
        self._trusting = trusting
        """The caller is the one who started this process (stdio)."""
        self._asking: dict[str, tuple[str, type[_Arguments], Callable[[Context, Any], Awaitable[CallToolResult]]]] = {
            "workflow_status": (_STATUS, _Arguments, self._status),
            "workflow_result": (_RESULT, _ResultArguments, self._result),
            "workflow_cancel": (_CANCEL, _CancelArguments, self._cancel),
        }

    def tools(self) -> list[Tool]:
        """All tools, as clients see them."""
        asking = [
            Tool(name=name, description=told, input_schema=arguments.model_json_schema(), annotations=_hints(name))
            for name, (told, arguments, _) in self._asking.items()
        ]
        return [tool.described(self.app) for tool in self._tools.values()] + asking

    def tool(self, name: str) -> DurableTool | None:
        """The workflow behind a tool, if one is."""
        return self._tools.get(name)

    async def call(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult:
        """Call a tool. What the caller can put right is told as the tool's error."""
        if params.name not in self._tools and params.name not in self._asking:
            known = ", ".join([*self._tools, *self._asking])
            raise MCPError(INVALID_PARAMS, f"There is no tool {params.name!r}. There are: {known}.")
        try:
            if (tool := self.tool(params.name)) is not None:
                return _started(await self.start(ctx, tool, params))
            _, arguments, do = self._asking[params.name]
            return await do(ctx, _read(arguments, params.arguments))
        except (Refused, RomancyError) as error:
            return refusal(str(error))
        except MCPError:
            raise
        except Exception:
            _LOG.exception("The tool %s failed.", params.name)
            return refusal("Something is wrong with this server; its log says what. Nothing is known of the outcome.")

    async def start(self, ctx: Context, tool: DurableTool, params: CallToolRequestParams) -> Instance:
        """Start the workflow of a tool; it is durable when this returns."""
        self._check_may_write(ctx)
        meta: Mapping[str, Any] = ctx.meta or {}
        wanted = meta.get(INSTANCE_ID)
        if wanted is not None and (not isinstance(wanted, str) or not 0 < len(wanted) <= 1024):
            raise Refused(f"_meta[{INSTANCE_ID!r}] is a text of at most 1024 characters.")
        handle = await self.app.start_with_input(tool.workflow, params.arguments or {}, instance_id=wanted)
        return await self.find(ctx, handle.instance_id)

    async def find(self, ctx: Context, instance_id: str) -> Instance:
        """An instance of one of the tools."""
        self._check_may_read(ctx)
        instance = await self.app.get_instance(instance_id)
        if instance is None or instance.workflow_name not in self._by_workflow:
            raise Refused(f"There is no instance {instance_id!r} of a tool of this server.")
        return instance

    async def cancel(self, ctx: Context, instance_id: str, reason: str | None = None) -> None:
        """Ask for the cancellation of an instance."""
        self._check_may_write(ctx)
        await self.find(ctx, instance_id)
        await self.app.cancel_workflow(instance_id, reason)

    async def _status(self, ctx: Context, asked: _Arguments) -> CallToolResult:
        instance = await self.find(ctx, asked.instance_id)
        steps = await steps_of(self.app, instance.instance_id)
        return answer(status_of(instance, steps, self._by_workflow[instance.workflow_name].name))

    async def _result(self, ctx: Context, asked: _ResultArguments) -> CallToolResult:
        instance = await self.find(ctx, asked.instance_id)
        if not instance.status.ended and asked.wait:
            instance = await self._ended(ctx, instance, asked.wait)
        if not instance.status.ended:
            wait = milliseconds(poll_interval(instance)) or 0
            raise Refused(
                f"{instance.instance_id} is {instance.status.value} and has no result yet: ask again in {wait / 1000:g} s."
            )
        return result_of(instance)

    async def _ended(self, ctx: Context, instance: Instance, seconds: float) -> Instance:
        with contextlib.suppress(TimeoutError, RomancyError):  # how it ended is read below
            await self.app.get_handle(instance.instance_id).result(timeout=seconds)
        return await self.find(ctx, instance.instance_id)

    async def _cancel(self, ctx: Context, asked: _CancelArguments) -> CallToolResult:
        await self.cancel(ctx, asked.instance_id, asked.reason)
        return answer({"instance_id": asked.instance_id, "cancellation": "requested"})

    def _check_may_read(self, ctx: Context) -> None:
        if not self._trusting:
            self._role(ctx)

    def _check_may_write(self, ctx: Context) -> None:
        if not self._trusting and self._role(ctx) != "admin":
            raise Refused("The token that was shown may ask, but not start or cancel: it takes the role admin.")

    def _role(self, ctx: Context) -> str:
        """The role that the door has found. Nobody passes without one, whichever way the call came."""
        caller = getattr(ctx.request, "scope", {}).get(CALLER)
        if caller is None:
            raise MCPError(INVALID_REQUEST, "This request did not pass the check of tokens.")
        return str(caller.role)


_STATUS = "Where a call of one of the other tools stands, how far it has come, and when to ask again (poll_interval_ms)."
_RESULT = "What a call of one of the other tools gave in the end; an error while it has not ended."
_CANCEL = "Ask a call of one of the other tools to stop; what it did is undone where that was provided for."


def _hints(name: str) -> ToolAnnotations:
    writes = name == "workflow_cancel"
    return ToolAnnotations(read_only_hint=not writes, destructive_hint=writes, idempotent_hint=True, open_world_hint=False)


def _read(arguments: type[_Arguments], given: dict[str, Any] | None) -> _Arguments:
    try:
        return arguments.model_validate(given or {})
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_url=False))
        raise Refused(f"The arguments do not fit: {wrong}.") from None


def _started(instance: Instance) -> CallToolResult:
    return answer(
        {
            "instance_id": instance.instance_id,
            "status": instance.status.value,
            "poll_interval_ms": milliseconds(poll_interval(instance)),
            "next": "Ask workflow_status or workflow_result with this instance_id.",
        }
    )

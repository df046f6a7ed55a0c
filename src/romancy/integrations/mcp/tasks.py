"""The Tasks extension of MCP (`io.modelcontextprotocol/tasks`): each instance is a task with the same id.

A client that declares the extension receives a task instead of an instance id, and polls it with `tasks/get`, which returns
the result of the tool at the end. A failed workflow is a task that *completed* with an error of the tool: `failed` is for
errors of the protocol.
"""

from __future__ import annotations

from typing import Any

from mcp.server import Server
from mcp.server.mcpserver import require_client_extension
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    CancelTaskRequestParams,
    GetTaskRequestParams,
    RequestParams,
)
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from romancy import Instance, RomancyError, Status, WorkflowNotCancellableError
from romancy.integrations.mcp.handlers import Context, ToolCallError, ToolHandler
from romancy.integrations.mcp.progress import Steps, message_of, milliseconds, poll_interval, steps_of
from romancy.integrations.mcp.responses import error_result, instance_result

EXTENSION = "io.modelcontextprotocol/tasks"


class _UpdateTaskParams(RequestParams):
    task_id: str


class Tasks:
    """Serves tasks with a tool handler."""

    def __init__(self, handler: ToolHandler) -> None:
        self._handler = handler

    def add_to(self, server: Server[Any]) -> None:
        """Add the extension to a server."""
        server.extensions[EXTENSION] = {}
        server.add_request_handler("tasks/get", GetTaskRequestParams, self._get)
        server.add_request_handler("tasks/cancel", CancelTaskRequestParams, self._cancel)
        server.add_request_handler("tasks/update", _UpdateTaskParams, self._update)

    async def call(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult | dict[str, Any]:
        """Call a tool. Return a task if the client supports tasks."""
        tool = self._handler.tool(params.name)
        if tool is None or not _supports_tasks(ctx):
            return await self._handler.call(ctx, params)
        try:
            instance = await self._handler.start(ctx, tool, params)
        except (ToolCallError, RomancyError) as error:
            return error_result(str(error))
        return {"resultType": "task", **_task(instance, Steps())}

    async def _get(self, ctx: Context, params: GetTaskRequestParams) -> dict[str, Any]:
        instance = await self._found(ctx, params.task_id)
        task = _task(instance, await steps_of(self._handler.app, instance.instance_id))
        if task["status"] == "completed":
            task["result"] = instance_result(instance).model_dump(mode="json", by_alias=True, exclude_none=True)
        return task

    async def _cancel(self, ctx: Context, params: CancelTaskRequestParams) -> dict[str, Any]:
        instance = await self._found(ctx, params.task_id)
        try:
            await self._handler.cancel(ctx, instance.instance_id)
        except WorkflowNotCancellableError:
            pass  # it has ended: the next poll returns its outcome
        except (ToolCallError, RomancyError) as error:
            raise MCPError(INVALID_PARAMS, str(error)) from None
        return {}

    async def _update(self, ctx: Context, params: _UpdateTaskParams) -> dict[str, Any]:
        """Ignore updates that were not requested, as the extension requires."""
        await self._found(ctx, params.task_id)
        return {}

    async def _found(self, ctx: Context, task_id: str) -> Instance:
        require_client_extension(ctx, EXTENSION)
        try:
            return await self._handler.find(ctx, task_id)
        except (ToolCallError, RomancyError) as error:
            raise MCPError(INVALID_PARAMS, str(error)) from None


def _supports_tasks(ctx: Context) -> bool:
    declared = ctx.session.client_capabilities
    return (
        ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        and declared is not None
        and EXTENSION in (declared.extensions or {})
    )


def _task(instance: Instance, steps: Steps) -> dict[str, Any]:
    task = {
        "taskId": instance.instance_id,
        "status": _status(instance.status),
        "statusMessage": message_of(instance, steps),
        "createdAt": instance.created_at.isoformat(),
        "lastUpdatedAt": instance.updated_at.isoformat(),
        "ttlMs": None,  # retained as long as the option instance_retention says
    }
    return {**task, "pollIntervalMs": milliseconds(poll_interval(instance)) or 0}


def _status(status: Status) -> str:
    if status is Status.CANCELLED:
        return "cancelled"
    return "completed" if status.ended else "working"

"""The Tasks extension of MCP (`io.modelcontextprotocol/tasks`): an instance is a task, and its id the task's.

A client that says that it knows tasks gets one instead of an instance id, and follows it with `tasks/get`; the result of
the tool is in there in the end. A workflow that failed is a task that *completed* with an error of the tool: `failed` is
for errors of the protocol.
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
    """Serves tasks from a desk."""

    def __init__(self, handler: ToolHandler) -> None:
        self._handler = handler

    def add_to(self, server: Server[Any]) -> None:
        """Offer the extension."""
        server.extensions[EXTENSION] = {}
        server.add_request_handler("tasks/get", GetTaskRequestParams, self._get)
        server.add_request_handler("tasks/cancel", CancelTaskRequestParams, self._cancel)
        server.add_request_handler("tasks/update", _UpdateTaskParams, self._update)

    async def call(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult | dict[str, Any]:
        """Call a tool: a task for those who know tasks."""
        tool = self._handler.tool(params.name)
        if tool is None or not _knows_tasks(ctx):
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
            pass  # it was faster: who asks next sees how it ended
        except (ToolCallError, RomancyError) as error:
            raise MCPError(INVALID_PARAMS, str(error)) from None
        return {}

    async def _update(self, ctx: Context, params: _UpdateTaskParams) -> dict[str, Any]:
        """Answers to questions that were not asked are ignored, as the extension says."""
        await self._found(ctx, params.task_id)
        return {}

    async def _found(self, ctx: Context, task_id: str) -> Instance:
        require_client_extension(ctx, EXTENSION)
        try:
            return await self._handler.find(ctx, task_id)
        except (ToolCallError, RomancyError) as error:
            raise MCPError(INVALID_PARAMS, str(error)) from None


def _knows_tasks(ctx: Context) -> bool:
    told = ctx.session.client_capabilities
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS and told is not None and EXTENSION in (told.extensions or {})


def _task(instance: Instance, steps: Steps) -> dict[str, Any]:
    task = {
        "taskId": instance.instance_id,
        "status": _status(instance.status),
        "statusMessage": message_of(instance, steps),
        "createdAt": instance.created_at.isoformat(),
        "lastUpdatedAt": instance.updated_at.isoformat(),
        "ttlMs": None,  # as long as the database keeps it: see the option instance_retention
    }
    return {**task, "pollIntervalMs": milliseconds(poll_interval(instance)) or 0}


def _status(status: Status) -> str:
    if status is Status.CANCELLED:
        return "cancelled"
    return "completed" if status.ended else "working"

"""A client with the Tasks extension of MCP, which the SDK's client lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from mcp import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.types import CallToolResult, CancelTaskRequestParams, GetTaskRequestParams, Request, Result


class TaskResult(Result):
    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    poll_interval_ms: int


class GetTask(Request[GetTaskRequestParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    params: GetTaskRequestParams
    name_param = "taskId"


class CancelTask(Request[CancelTaskRequestParams, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: CancelTaskRequestParams
    name_param = "taskId"


class TaskState(Result):
    task_id: str
    status: str
    status_message: str
    result: dict[str, Any] | None = None


class TasksClient(ClientExtension):
    """An extension of the client: it polls a task until the task has ended."""

    identifier = "io.modelcontextprotocol/tasks"

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=TaskResult, resolve=self.resolve)]

    async def resolve(self, task: TaskResult, ctx: ClaimContext) -> CallToolResult:
        while (state := await get_task(ctx.session, task.task_id)).status == "working":
            pass
        assert state.status == "completed", state
        return CallToolResult.model_validate(state.result)


async def get_task(session: Any, task_id: str) -> TaskState:
    state = await session.send_request(GetTask(params=GetTaskRequestParams(task_id=task_id)), TaskState)
    assert isinstance(state, TaskState)
    return state


async def start_task(client: Client, tool: str, arguments: dict[str, Any]) -> TaskResult:
    task = await client.session.call_tool(tool, arguments, allow_claimed=True)
    assert isinstance(task, TaskResult)
    return task

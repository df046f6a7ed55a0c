"""Agents of pydantic-ai inside workflows: results of models, tools and MCP servers are recorded, and not paid for twice.

The module implements a durability capability, pydantic-ai's interface for durable engines. The loop of the agent runs as
workflow code on the workflow's event loop. Each of its external operations arrives here under a name (`execute`) and becomes
an activity: retried by a policy, recorded as JSON, and taken from the record after a crash.

    workflow ── agent.run ──► model.request ──► activity `NAME__model.request:1`
                          ──► call_tool     ──► activity `NAME__function_toolset__<agent>.call_tool:weather:1`

Outside `in_workflow(ctx)`, an agent with this capability behaves like one without it. Tools made by `workflow_tool` are the
exception: they are workflow code, and call activities or wait for events.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Literal, Protocol, TypedDict, cast, get_type_hints, runtime_checkable

from romancy import (
    Activity,
    ActivityContext,
    ConfigurationError,
    Duration,
    RetryPolicy,
    TerminalError,
    WorkflowContext,
    activity,
)

try:
    from pydantic_ai import ModelHTTPError, ModelMessage, ModelRequest, RunContext, Tool, ToolsetTool, UserError
    from pydantic_ai.agent import AgentRunResult, EventStreamHandler
    from pydantic_ai.durable_exec import (
        JSON_CODEC,
        BaseDurabilityCapability,
        DurabilityEngineSpec,
        DurableOperationBackend,
        DurableOperationId,
        JournalCallableOperationBackend,
        RoleBasedOperationConfig,
        conversation_id_from_run_id,
    )
    from pydantic_ai.models import Model, ModelRequestContext
    from pydantic_ai.tools import AgentDepsT
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "pydantic_ai":
        raise
    raise ConfigurationError(
        "Agents need pydantic-ai, which is not installed: pip install 'romancy[pydantic-ai]'"
    ) from error

__all__ = ["ActivityOptions", "RomancyDurability", "in_workflow", "workflow_tool"]

METADATA = "romancy"
"""Key in the metadata of a tool: options of its activity, or False for a tool that is workflow code."""
_RETRYABLE_STATUSES = frozenset({408, 409, 425, 429})
_WORKFLOW: ContextVar[WorkflowContext | None] = ContextVar("romancy_workflow", default=None)


class ActivityOptions(TypedDict, total=False):
    """Options of the activity of a tool call: `metadata={"romancy": {"timeout": 10}}`."""

    retry: RetryPolicy | None
    timeout: Duration | None


@contextmanager
def in_workflow(ctx: WorkflowContext) -> Iterator[None]:
    """Make agents that run inside this block a part of the workflow.

    >>> # with in_workflow(ctx): result = await agent.run("...")
    """
    with _as_part_of(ctx):
        yield


@contextmanager
def _as_part_of(ctx: WorkflowContext | None) -> Iterator[None]:
    token = _WORKFLOW.set(ctx)
    try:
        yield
    finally:
        _WORKFLOW.reset(token)


def workflow_tool(
    function: Activity[..., Any] | Callable[..., Awaitable[Any]], *, name: str | None = None, description: str | None = None
) -> Tool[Any]:
    """Return a tool that is workflow code: an activity, or an `async def` whose first parameter is the workflow context.

    An activity keeps its own retries, timeout and compensation. A function may call activities, sleep, and wait for events.
    The model sees the parameters after the context. Raises `ConfigurationError` for any other function.
    """
    plain = function.fn if isinstance(function, Activity) else function
    if not isinstance(function, Activity) and not inspect.iscoroutinefunction(function):
        raise ConfigurationError(f"{function!r} cannot be a workflow tool: give an activity, or an `async def`.")
    called = name or (function.name if isinstance(function, Activity) else plain.__name__)

    async def call(*args: Any, **kwargs: Any) -> Any:
        workflow = _WORKFLOW.get()
        if workflow is None:
            raise ConfigurationError(f"The tool {called!r} is workflow code: run its agent inside `in_workflow(ctx)`.")
        return await function(workflow, *args, **kwargs)

    return Tool(_shown_as(plain, call), name=called, description=description, takes_ctx=False, metadata={METADATA: False})


def _shown_as(plain: Callable[..., Any], call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Give `call` the signature of `plain`, without its first parameter, the context."""
    parameters = list(inspect.signature(plain).parameters.values())
    if not parameters:
        raise ConfigurationError(
            f"{plain!r} takes no context: the first parameter of a workflow tool must be the workflow context."
        )
    hints = get_type_hints(plain, include_extras=True)
    hints.pop(parameters[0].name, None)
    shown = [one.replace(annotation=hints.get(one.name, Any)) for one in parameters[1:]]
    call.__doc__, call.__module__ = plain.__doc__, plain.__module__
    call.__name__ = call.__qualname__ = plain.__name__
    call.__annotations__ = hints
    call.__signature__ = inspect.Signature(shown, return_annotation=hints.get("return", Any))  # type: ignore[attr-defined]
    return call


class _ActivityBackend(JournalCallableOperationBackend[ActivityOptions]):
    """Runs each operation as an activity of the workflow."""

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: ActivityOptions,
    ) -> object:
        """Run an operation, or return its recorded result."""

        async def work(ctx: ActivityContext) -> Any:
            with _as_part_of(None):  # code inside an activity is not workflow code
                try:
                    return await body()
                except (UserError, ModelHTTPError) as error:
                    raise _classify_error(error) from error

        workflow = _WORKFLOW.get()
        assert workflow is not None  # pydantic-ai checks `in_durable_context` first
        # A new activity for each operation, because it needs `body`, which cannot be stored as an argument.
        return await activity(name=name, retry=config.get("retry"), timeout=config.get("timeout"))(work)(workflow)


def _classify_error(error: UserError | ModelHTTPError) -> Exception:
    """Make errors terminal that a retry cannot fix: mistakes in the program, and requests that the provider refuses."""
    if isinstance(error, ModelHTTPError) and (error.status_code >= 500 or error.status_code in _RETRYABLE_STATUSES):
        return error
    return TerminalError(f"{type(error).__name__}: {error}")


def _not_storable(error: Exception) -> TerminalError:
    return TerminalError(f"The result cannot be recorded as JSON: {error}")


class RomancyDurability(BaseDurabilityCapability[AgentDepsT]):
    """Makes an agent durable inside workflows: `Agent(..., name="helper", capabilities=[RomancyDurability()])`.

    `model_retry` and `model_timeout` apply to requests to models, `tool_retry` and `tool_timeout` to tool calls; the default
    policy is that of the app. A tool may have its own options in its `metadata`: see `ActivityOptions`. `models` are further
    models by key, to which a run may switch. `event_stream_handler` receives events in the activities, as they happen.
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="romancy",
        durable_unit_noun="activity",
        durable_unit_plural="activities",
        durable_container_noun="workflow",
        codec=JSON_CODEC,
        serialization_failure=_not_storable,
        # MCP servers are entered in each activity: a connection belongs to the real event loop, but the run, which would
        # have to close it, is on the event loop of the workflow.
        toolset_lifecycles={"function": "enter-never", "mcp": "enter-outside-durable", "dynamic": "enter-never"},
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        tool_config_key=METADATA,
    )

    def __init__(
        self,
        *,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        name: str | None = None,
        model_retry: RetryPolicy | None = None,
        model_timeout: Duration | None = None,
        tool_retry: RetryPolicy | None = None,
        tool_timeout: Duration | None = None,
    ) -> None:
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        self._model_options = ActivityOptions(retry=model_retry, timeout=model_timeout)
        self._tool_options = ActivityOptions(retry=tool_retry, timeout=tool_timeout)

    @property
    def in_durable_context(self) -> bool:
        """Whether the agent runs in a workflow."""
        return _WORKFLOW.get() is not None

    def get_default_run_id(self) -> str | None:
        """Return an id that is the same in every replay."""
        workflow = _WORKFLOW.get()
        return None if workflow is None else str(workflow.uuid4())

    def get_default_conversation_id(self, run_id: str) -> str | None:
        """Return an id that is the same in every replay."""
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    async def get_run_start_time(self, run_id: str) -> datetime | None:
        """Return the time of the workflow, which is the same in every replay."""
        workflow = _WORKFLOW.get()
        return None if workflow is None else workflow.now()

    def get_durable_operation_backend(self) -> DurableOperationBackend[ActivityOptions]:
        """Return the backend that runs the operations."""
        assert self.name is not None
        config = RoleBasedOperationConfig[ActivityOptions](
            model=self._model_options,
            event=ActivityOptions(),
            capability=ActivityOptions(),
            tool=self._tool_options,
            resolve_tool=self._options_of,
        )
        return _ActivityBackend(agent_name=self.name, config=config)

    def _options_of(self, operation: DurableOperationId, tool: object | None, name: str) -> ActivityOptions | Literal[False]:
        own: object = (tool.tool_def.metadata or {}).get(METADATA) if isinstance(tool, ToolsetTool) else None
        if own is None:
            return self._tool_options
        if own is False:
            return False
        if not isinstance(own, dict) or own.keys() - ActivityOptions.__annotations__.keys():
            raise UserError(f"metadata[{METADATA!r}] of the tool {name!r}: give `retry`, `timeout`, or both, or False.")
        return cast(ActivityOptions, {**self._tool_options, **own})

    async def before_model_request(
        self, ctx: RunContext[AgentDepsT], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Set the time of the messages that will be sent to the time of the workflow."""
        _stamp(request_context.messages)
        return await super().before_model_request(ctx, request_context)

    async def after_run(self, ctx: RunContext[AgentDepsT], *, result: AgentRunResult[Any]) -> AgentRunResult[Any]:
        """Set the time of the messages after the last response to the time of the workflow."""
        _stamp(result.all_messages())
        return await super().after_run(ctx, result=result)


@runtime_checkable
class _Timed(Protocol):
    timestamp: datetime


def _stamp(messages: Sequence[ModelMessage]) -> None:
    """Set the times of new messages to the time of the workflow, so that they are the same in every replay.

    A workflow may pass messages to an activity, whose arguments must not change in a replay.
    """
    workflow = _WORKFLOW.get()
    if workflow is None:
        return
    now = workflow.now()
    for message in reversed(messages):
        if not isinstance(message, ModelRequest):
            return  # a response has its recorded time, and earlier messages have been stamped already
        message.timestamp = now
        for part in message.parts:
            if isinstance(part, _Timed):
                part.timestamp = now

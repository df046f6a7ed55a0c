"""Agents of pydantic-ai inside workflows: what models, tools and MCP servers gave is recorded, and not paid for twice.

It is a durability capability, the way pydantic-ai has for engines of this kind. The agent's own loop runs as workflow code
on the workflow's event loop. Everything that it does to the world comes here as a named piece of work (`execute`), which
becomes an activity: retried by a policy, recorded as JSON, and answered from the record after a crash.

    workflow ── agent.run ──► model.request ──► activity `NAME__model.request:1`
                          ──► call_tool     ──► activity `NAME__function_toolset__<agent>.call_tool:weather:1`

Outside `in_workflow(ctx)` an agent with this capability behaves as one without.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any

from romancy import ActivityContext, ConfigurationError, RetryPolicy, WorkflowContext, activity

try:
    from pydantic_ai import UserError
    from pydantic_ai.agent import EventStreamHandler
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
    from pydantic_ai.models import Model
    from pydantic_ai.tools import AgentDepsT
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "pydantic_ai":
        raise
    raise ConfigurationError(
        "Agents need pydantic-ai, which is not installed: pip install 'romancy[pydantic-ai]'"
    ) from error

__all__ = ["RomancyDurability", "in_workflow"]

_WORKFLOW: ContextVar[WorkflowContext | None] = ContextVar("romancy_workflow", default=None)


@contextmanager
def in_workflow(ctx: WorkflowContext) -> Iterator[None]:
    """Agents that run in here are a part of this workflow.

    >>> # with in_workflow(ctx): result = await agent.run("...")
    """
    token = _WORKFLOW.set(ctx)
    try:
        yield
    finally:
        _WORKFLOW.reset(token)


class _Activities(JournalCallableOperationBackend[RetryPolicy | None]):
    """Runs each piece of work as an activity of the workflow."""

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: RetryPolicy | None,
    ) -> object:
        """Do it, or find it in the record."""

        async def work(ctx: ActivityContext) -> Any:
            token = _WORKFLOW.set(None)  # what runs in an activity is not workflow code
            try:
                return await body()
            finally:
                _WORKFLOW.reset(token)

        workflow = _WORKFLOW.get()
        assert workflow is not None  # pydantic-ai asks `in_durable_context` first
        # Made anew for each piece of work: it has to bring `body` along, which is no argument that could be stored.
        return await activity(name=name, retry=config)(work)(workflow)


class RomancyDurability(BaseDurabilityCapability[AgentDepsT]):
    """Makes an agent durable inside workflows: `Agent(..., name="helper", capabilities=[RomancyDurability()])`.

    `model_retry` and `tool_retry` are the policies of requests to models and of calls of tools; without one, the app's.
    `models` are further models, by key, to which a run may switch.
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="romancy",
        durable_unit_noun="activity",
        durable_unit_plural="activities",
        durable_container_noun="workflow",
        codec=JSON_CODEC,
        # MCP servers are entered in each activity: a connection belongs to the real event loop, and the run, which would
        # have to close it in the end, has another.
        toolset_lifecycles={"function": "enter-never", "mcp": "enter-outside-durable", "dynamic": "enter-never"},
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
    )

    def __init__(
        self,
        *,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        name: str | None = None,
        model_retry: RetryPolicy | None = None,
        tool_retry: RetryPolicy | None = None,
    ) -> None:
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        self._model_retry = model_retry or _POLICY
        self._tool_retry = tool_retry or _POLICY

    @property
    def in_durable_context(self) -> bool:
        """The agent runs as a part of a workflow."""
        return _WORKFLOW.get() is not None

    def get_default_run_id(self) -> str | None:
        """The same on every replay."""
        workflow = _WORKFLOW.get()
        return None if workflow is None else str(workflow.uuid4())

    def get_default_conversation_id(self, run_id: str) -> str | None:
        """The same on every replay."""
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    async def get_run_start_time(self, run_id: str) -> datetime | None:
        """The workflow's time, which replays."""
        workflow = _WORKFLOW.get()
        return None if workflow is None else workflow.now()

    def get_durable_operation_backend(self) -> DurableOperationBackend[RetryPolicy | None]:
        """What runs the pieces of work."""
        assert self.name is not None
        config = RoleBasedOperationConfig[RetryPolicy | None](
            model=self._model_retry, event=_POLICY, capability=_POLICY, tool=self._tool_retry
        )
        return _Activities(agent_name=self.name, config=config)


_POLICY = RetryPolicy(non_retryable=(UserError,))
"""A mistake in the program is not put right by trying again."""

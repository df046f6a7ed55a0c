"""The making of executions: from a stored instance to an execution that can be started or replayed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from romancy.authoring.context import WorkflowContext
from romancy.authoring.guard import guarded_run
from romancy.authoring.workflow import Workflow
from romancy.core.execution import Execution, is_effect
from romancy.core.loop import new_run
from romancy.model.history import Entry
from romancy.registry.event_handlers import handler_arguments
from romancy.registry.replay_comparison import Comparison
from romancy.serde.messaging import event_of_input

if TYPE_CHECKING:
    from romancy.app import App


def execution_of(
    workflow: Workflow[..., Any],
    *,
    instance_id: str,
    generation: int,
    input: bytes,
    history: Sequence[Entry] = (),
    length: int = 0,
    worker_id: str = "",
    app: App | None = None,
    guard: str = "off",
) -> Execution:
    """Make the execution of one generation, which has not begun yet. Raises `PayloadError` if the input does not fit."""
    started_by = event_of_input(input)
    args, kwargs = workflow.codec.decode(input if started_by is None else handler_arguments(workflow, started_by))
    effects = {entry.op: entry.digest for entry in history if is_effect(entry)}
    label = f"{workflow.label} ({instance_id})"
    if guard == "off":
        run = new_run(lambda: workflow.fn(ctx, *args, **kwargs), label, effects)
    else:
        run = guarded_run(lambda: workflow.fn(ctx, *args, **kwargs), label, effects, workflow.fn.__module__, guard)
    if history:  # a new run has no recorded arguments to compare with
        run.find_difference = Comparison(history, hidden=app is not None and app._hides_payloads)
    ctx = WorkflowContext(
        instance_id=instance_id,
        workflow_name=workflow.name,
        worker_id=worker_id,
        app=app,
        generation=generation,
        run=run,
        workflow=workflow,
    )
    return Execution(run, history, length=length)

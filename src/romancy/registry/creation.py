"""The creation of instances: of a workflow that is started, or of a handler for an event."""

from __future__ import annotations

import platform
from typing import Any

from romancy.authoring.workflow import Workflow
from romancy.errors import PayloadError
from romancy.ids import Ids
from romancy.model.messaging import Event
from romancy.model.transition import CreateInstance, Ending
from romancy.registry.event_handlers import handler_arguments
from romancy.registry.registry import Registry
from romancy.serde.failure import describe_failure, encode_failure
from romancy.serde.messaging import event_input

_PYTHON = platform.python_version()
"""Recorded with every instance, because a replay may differ between versions of Python."""


def creation(
    registry: Registry, workflow: Workflow[..., Any], input: bytes, ids: Ids, *, now: int, owner: str | None
) -> CreateInstance:
    """Make the write that creates an instance with encoded arguments. `owner` is the worker that will run it at once."""
    return CreateInstance(
        instance_id=workflow.instance_id or workflow.id_prefix + ids.instance_id(now),
        workflow=workflow.name,
        version=workflow.version,
        input=input,
        digest=workflow.codec.digest(input),
        now=now,
        owner=owner,
        deadline_at=now + workflow.timeout if workflow.timeout is not None else None,
        code=registry.code(workflow),
        python=_PYTHON,
    )


def starts_of(registry: Registry, event: Event, ids: Ids, *, now: int, owner: str | None) -> tuple[CreateInstance, ...]:
    """Return the instances that an event starts, of the handlers for its type. An addressed event starts none."""
    if event.target is not None:
        return ()
    handlers = registry.handlers(event.type)
    return tuple([_start(registry, workflow, event, ids, now, owner) for workflow in handlers])


def _start(
    registry: Registry, workflow: Workflow[..., Any], event: Event, ids: Ids, now: int, owner: str | None
) -> CreateInstance:
    try:
        create = creation(registry, workflow, handler_arguments(workflow, event), ids, now=now, owner=owner)
        return create._replace(event=event)
    except PayloadError as error:
        raw = encode_failure(error)
        return CreateInstance(
            instance_id=workflow.id_prefix + ids.instance_id(now),
            workflow=workflow.name,
            version=workflow.version,
            input=event_input(event),  # a retry of the instance reads the event again, perhaps with code that accepts it
            digest=b"",
            now=now,
            code=registry.code(workflow),
            python=_PYTHON,
            ending=Ending(error=raw, fingerprint=describe_failure(raw).fingerprint),
            event=event,
        )

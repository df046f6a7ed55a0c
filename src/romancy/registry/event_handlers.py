"""Handlers: the arguments of a workflow that is started by an event."""

from __future__ import annotations

from typing import Any

from romancy.authoring.workflow import Workflow
from romancy.model.messaging import Event
from romancy.serde.external import encode_external_call, encode_mapped_call


def handler_arguments(workflow: Workflow[..., Any], event: Event) -> bytes:
    """Return the input of the instance that an event starts. Raises `PayloadError` if its data does not fit the workflow.

    The fields of an object become arguments by name. If the only parameter is a model, a dataclass or a dict, the whole
    object becomes its argument. Other data becomes the argument of the only parameter. A workflow without parameters
    ignores the data.
    """
    what = f"the data of event {event.type!r} ({event.source}, {event.id})"
    if workflow.event_arguments is not None:
        return encode_mapped_call(workflow.codec, event.data, workflow.event_arguments, binary=event.binary, what=what)
    return encode_external_call(workflow.codec, event.data, binary=event.binary, what=what)

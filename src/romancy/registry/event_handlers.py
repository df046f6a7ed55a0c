"""Workflows that events start: what an event means as a call."""

from __future__ import annotations

from typing import Any

from romancy.authoring.workflow import Workflow
from romancy.model.messaging import Event
from romancy.serde.external import encode_external_call, encode_mapped_call


def handler_arguments(workflow: Workflow[..., Any], event: Event) -> bytes:
    """The input of the instance that an event starts. Raises `PayloadError` when its data does not fit the workflow.

    The fields of an object become arguments by name, or the whole of it the argument for a sole model, dataclass or dict
    parameter; other data is the argument for a sole parameter. A workflow without parameters takes no notice of the data.
    """
    what = f"the data of event {event.type!r} ({event.source}, {event.id})"
    if workflow.event_arguments is not None:
        return encode_mapped_call(workflow.codec, event.data, workflow.event_arguments, binary=event.binary, what=what)
    return encode_external_call(workflow.codec, event.data, binary=event.binary, what=what)

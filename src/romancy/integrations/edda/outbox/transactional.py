"""Events that are sent with the commit of a step or an attempt."""

from __future__ import annotations

from typing import Any

import romancy
from romancy.integrations.edda.channels import payload
from romancy.integrations.edda.context import WorkflowContext, native_context, new_id
from romancy.integrations.edda.current_app import warn_without_broker

__all__ = ["send_event_transactional"]


async def send_event_transactional(
    ctx: WorkflowContext, event_type: str, event_source: str, event_data: Any, content_type: str = "application/json"
) -> str:
    """Send an event in the commit of the activity's attempt or the workflow's step; returns its id.

    The event reaches the waiting workflows of this database, and the broker if the app has one.
    """
    inner = native_context(ctx, "send_event_transactional()")
    warn_without_broker(inner.app, event_type)
    event_id = new_id(ctx)
    await romancy.send_event(
        inner, event_type, event_source, payload(event_data), event_id=event_id, content_type=content_type
    )
    return event_id

"""Groups: instances that are spoken to together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json, to_json

from romancy.authoring.channels import compose, shown
from romancy.authoring.context import ActivityContext, WorkflowContext, run_of
from romancy.authoring.talking import Asked, ask, nothing, say, text
from romancy.core.futures import Operation
from romancy.model.history import Kind
from romancy.model.talk import JoinGroup, LeaveGroup, Members, SendToGroup


def join_group(ctx: WorkflowContext, name: str) -> Operation[None]:
    """Become a member of a group; a member that joins again stays one."""
    run_of(ctx, "join_group()")
    name = _group(name, "join_group()")
    return say(ctx, "join_group()", Kind.JOIN_GROUP, f"join_group:{name}", JoinGroup(name), _asked(name))


def leave_group(ctx: WorkflowContext, name: str) -> Operation[None]:
    """Cease to be a member of a group. Raises `GroupNotJoinedError` for an instance that is none."""
    run = run_of(ctx, "leave_group()")
    name = _group(name, "leave_group()")
    return ask(run, Kind.LEAVE_GROUP, f"leave_group:{name}", LeaveGroup(name), _asked(name), nothing)


def get_group_members(ctx: WorkflowContext, name: str) -> Operation[list[str]]:
    """Who is in a group: the ids of its members."""
    run = run_of(ctx, "get_group_members()")
    name = _group(name, "get_group_members()")
    return ask(run, Kind.MEMBERS, f"get_group_members:{name}", Members(name), _asked(name), from_json)


def send_to_group(
    ctx: WorkflowContext | ActivityContext,
    name: str,
    channel: str,
    data: Any,
    *,
    metadata: Mapping[str, Any] | None = None,
) -> Operation[None]:
    """Send a message to each member of a group, as `send_to` does; in the commit of the step or of the attempt."""
    message, ordered = compose(ctx, channel, data, metadata, "send_to_group()")
    name = _group(name, "send_to_group()")
    asked = Asked.of(shown(message, group=name), ordered=ordered, data=data, metadata=metadata)
    return say(ctx, "send_to_group()", Kind.SEND_TO_GROUP, f"send_to_group:{name}", SendToGroup(message, name), asked)


def _group(name: object, what: str) -> str:
    return text(name, f"The group given to {what}")


def _asked(name: str) -> Asked:
    return Asked.of(to_json({"group": name}))

"""Groups: instances that receive messages together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json, to_json

from romancy.authoring.channels import compose_message, describe_message
from romancy.authoring.context import ActivityContext, WorkflowContext, run_of
from romancy.authoring.operations import OperationInput, call_store, emit, read_nothing, require_text
from romancy.core.futures import Operation
from romancy.model.history import Kind
from romancy.model.messaging import JoinGroup, LeaveGroup, ListMembers, SendToGroup


def join_group(ctx: WorkflowContext, name: str) -> Operation[None]:
    """Make this instance a member of a group; joining again has no effect."""
    run_of(ctx, "join_group()")
    name = _group(name, "join_group()")
    return emit(ctx, "join_group()", Kind.JOIN_GROUP, f"join_group:{name}", JoinGroup(name), _group_input(name))


def leave_group(ctx: WorkflowContext, name: str) -> Operation[None]:
    """End the membership of this instance in a group. Raises `GroupNotJoinedError` if it is not a member."""
    run = run_of(ctx, "leave_group()")
    name = _group(name, "leave_group()")
    return call_store(run, Kind.LEAVE_GROUP, f"leave_group:{name}", LeaveGroup(name), _group_input(name), read_nothing)


def get_group_members(ctx: WorkflowContext, name: str) -> Operation[list[str]]:
    """Return the ids of a group's members."""
    run = run_of(ctx, "get_group_members()")
    name = _group(name, "get_group_members()")
    return call_store(run, Kind.MEMBERS, f"get_group_members:{name}", ListMembers(name), _group_input(name), from_json)


def send_to_group(
    ctx: WorkflowContext | ActivityContext,
    name: str,
    channel: str,
    data: Any,
    *,
    metadata: Mapping[str, Any] | None = None,
) -> Operation[None]:
    """Send a message to each member of a group, as `send_to` does; in the commit of the step or of the attempt."""
    message, ordered = compose_message(ctx, channel, data, metadata, "send_to_group()")
    name = _group(name, "send_to_group()")
    operation_input = OperationInput.of(describe_message(message, group=name), ordered=ordered, data=data, metadata=metadata)
    return emit(
        ctx, "send_to_group()", Kind.SEND_TO_GROUP, f"send_to_group:{name}", SendToGroup(message, name), operation_input
    )


def _group(name: object, what: str) -> str:
    return require_text(name, f"The group given to {what}")


def _group_input(name: str) -> OperationInput:
    return OperationInput.of(to_json({"group": name}))

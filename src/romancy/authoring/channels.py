"""Channels: subscriptions, and messages between workflows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar, cast, overload

from pydantic_core import from_json, to_json

from romancy.authoring.context import ActivityContext, WorkflowContext, run_of
from romancy.authoring.durations import Duration
from romancy.authoring.operations import (
    OperationInput,
    call_store,
    due_at,
    emit,
    emit_in_activity,
    read_nothing,
    require_text,
)
from romancy.core.futures import Operation
from romancy.errors import ConfigurationError, UnknownChannelModeError
from romancy.model.history import Kind
from romancy.model.messaging import (
    ChannelMode,
    Message,
    Publish,
    ReceivedMessage,
    SendTo,
    Subscribe,
    Unsubscribe,
    WaitSelector,
)
from romancy.serde.external import check_model
from romancy.serde.messaging import external_data, received_message, with_data

T = TypeVar("T")
Mode: TypeAlias = ChannelMode | Literal["broadcast", "competing", "direct"]


def subscribe(ctx: WorkflowContext, channel: str, mode: Mode = "broadcast") -> Operation[None]:
    """Subscribe this instance to a channel: it receives messages that are published from now on.

    `broadcast`: each message goes to every subscriber; `competing`: to one of them; `direct`: only to the instance that it
    is sent to. Subscribing again in the same mode has no effect. Raises `ChannelModeConflictError` while the channel has
    subscribers in another mode.
    """
    run = run_of(ctx, "subscribe()")
    channel = channel_name(channel, "subscribe()")
    channel_mode = _mode(mode)
    operation_input = OperationInput.of(to_json({"channel": channel, "mode": channel_mode.value}))
    return call_store(
        run, Kind.SUBSCRIBE, f"subscribe:{channel}", Subscribe(channel, channel_mode), operation_input, read_nothing
    )


def unsubscribe(ctx: WorkflowContext, channel: str) -> Operation[None]:
    """End the subscription to a channel; messages that were not received are dropped."""
    run_of(ctx, "unsubscribe()")
    channel = channel_name(channel, "unsubscribe()")
    operation_input = OperationInput.of(to_json({"channel": channel}))
    return emit(ctx, "unsubscribe()", Kind.UNSUBSCRIBE, f"unsubscribe:{channel}", Unsubscribe(channel), operation_input)


@overload
def receive(
    ctx: WorkflowContext, channel: str, *, timeout: Duration | None = None, model: None = None
) -> Operation[ReceivedMessage[Any]]: ...
@overload
def receive(
    ctx: WorkflowContext, channel: str, *, timeout: Duration | None = None, model: type[T]
) -> Operation[ReceivedMessage[T]]: ...
@overload
def receive(
    ctx: WorkflowContext, channel: str, *, timeout: Duration | None = None, model: Any
) -> Operation[ReceivedMessage[Any]]: ...
def receive(ctx: WorkflowContext, channel: str, *, timeout: Duration | None = None, model: Any = None) -> Operation[Any]:
    """Wait for the next message of a channel, without occupying a worker.

    `model` validates its data. Raises `ChannelNotSubscribedError` without a subscription, `ChannelMessageTimeoutError` if
    no message arrives in time, `PayloadError` if the data does not fit the model.

    >>> order = (await receive(ctx, "orders", model=Order, timeout=60)).data
    """
    run = run_of(ctx, "receive()")
    channel = channel_name(channel, "receive()")
    what = f"receive({channel!r})"
    check_model(model, what)
    return call_store(
        run,
        Kind.MESSAGE,
        f"receive:{channel}",
        WaitSelector(channel),
        OperationInput.of(to_json({"channel": channel})),
        partial(received_message, model=model),
        due=due_at(run, timeout, what),
    )


def publish(
    ctx: WorkflowContext | ActivityContext, channel: str, data: Any, *, metadata: Mapping[str, Any] | None = None
) -> Operation[None]:
    """Publish a message, in the commit of the workflow's step or of the activity's attempt: once, or not at all.

    `data` is any value that pydantic can write as JSON, or bytes; `metadata` holds further values for the receiver.
    """
    message, ordered = compose_message(ctx, channel, data, metadata, "publish()")
    operation_input = OperationInput.of(describe_message(message), ordered=ordered, data=data, metadata=metadata)
    return emit(ctx, "publish()", Kind.PUBLISH, f"publish:{channel}", Publish(message), operation_input)


def send_to(
    ctx: WorkflowContext | ActivityContext,
    instance_id: str,
    channel: str,
    data: Any,
    *,
    metadata: Mapping[str, Any] | None = None,
) -> Operation[None]:
    """Send a message to one instance, which may receive it from the channel even if it subscribes later.

    Raises `WorkflowNotFoundError` for an instance that does not exist, `InvalidWorkflowStateError` for one that has ended
    (in a plain `def` activity, which cannot await it, such a message is dropped).
    """
    message, ordered = compose_message(ctx, channel, data, metadata, "send_to()")
    command = SendTo(message, require_text(instance_id, "The instance_id given to send_to()"))
    if isinstance(ctx, ActivityContext):
        return emit_in_activity(ctx, command)
    run = run_of(ctx, "send_to()")
    operation_input = OperationInput.of(
        describe_message(message, to=instance_id), ordered=ordered, data=data, metadata=metadata
    )
    return call_store(run, Kind.SEND_TO, f"send_to:{channel}", command, operation_input, read_nothing)


# --- messages


def new_message(
    channel: str, data: Any, *, metadata: Mapping[str, Any] | None = None, sender: str | None = None, what: str = "publish()"
) -> Message:
    """Make a message of the user's values. Raises `ConfigurationError` or `PayloadError` for values that cannot be sent."""
    return _build_message(channel, data, metadata, sender, what)[0]


def compose_message(ctx: object, channel: str, data: Any, metadata: Any, what: str) -> tuple[Message, bool]:
    """Make a message from this instance; also return whether its JSON has the same order in every replay."""
    if not isinstance(ctx, ActivityContext):
        run_of(ctx, what)
    sender = cast(WorkflowContext | ActivityContext, ctx).instance_id
    return _build_message(channel, data, metadata, sender or None, what)


def _build_message(channel: str, data: Any, metadata: Any, sender: str | None, what: str) -> tuple[Message, bool]:
    channel = channel_name(channel, what)
    body = external_data(data, f"the data of a message to channel {channel!r}")
    about, ordered = _metadata(metadata, channel)
    return Message("", channel, body.raw, body.binary, about, sender), ordered and body.ordered


def describe_message(message: Message, **address: str) -> bytes:
    """Describe a message as JSON, for the history."""
    head: dict[str, Any] = {"channel": message.channel, **address}
    if message.metadata != b"{}":
        head["metadata"] = from_json(message.metadata)
    return with_data(head, message.data, binary=message.binary)


def channel_name(channel: object, what: str) -> str:
    """Check and return the name of a channel."""
    return require_text(channel, f"The channel given to {what}")


def _mode(mode: object) -> ChannelMode:
    try:
        return ChannelMode(cast(Any, mode))
    except ValueError:
        known = ", ".join(repr(channel_mode.value) for channel_mode in ChannelMode)
        raise UnknownChannelModeError(f"mode={mode!r} of subscribe(): the modes are {known}.") from None


def _metadata(metadata: Any, channel: str) -> tuple[bytes, bool]:
    if metadata is None:
        return b"{}", True
    what = f"metadata of a message to channel {channel!r}"
    if not isinstance(metadata, Mapping) or not all(isinstance(name, str) for name in metadata):
        raise ConfigurationError(f"The {what} is {metadata!r}: give a mapping of names to values.")
    data = external_data(dict(metadata), f"the {what}")
    return data.raw, data.ordered

"""Edda's channels, events and timers.

As in Edda, a message to one instance is a message to a channel named `channel:instance_id`. Code that builds this name
itself reaches the same channel as `subscribe(mode="direct")` and `send_to`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import romancy
from romancy import (
    App,
    ChannelModeConflictError,
    ChannelNotSubscribedError,
    ConfigurationError,
    InvalidWorkflowStateError,
    ReceivedMessage,
    WorkflowNotFoundError,
)
from romancy.integrations.edda.context import CURRENT_CONTEXT, WorkflowContext, in_workflow, native_context, new_id
from romancy.integrations.edda.current_app import current_app

__all__ = [
    "ChannelMessage",
    "ChannelModeConflictError",
    "EventTimeoutError",
    "ReceivedEvent",
    "publish",
    "receive",
    "send_event",
    "send_to",
    "sleep",
    "sleep_until",
    "subscribe",
    "unsubscribe",
    "wait_event",
    "wait_timer",
    "wait_until",
]

_ID = "eddamessageid"
"""The key of a message id in the metadata: `publish` returns it, before the engine assigns its own id."""
_SELF = "__direct__"


@dataclass(frozen=True)
class ChannelMessage:
    """A message that a workflow received from a channel."""

    id: str
    channel: str
    data: Any
    metadata: dict[str, Any]
    published_at: datetime


@dataclass(frozen=True)
class ReceivedEvent:
    """A CloudEvent that a workflow waited for. `time` is a string, as in the event; binary data is under `_binary`."""

    data: Any
    type: str
    source: str
    id: str
    time: str | None = None
    datacontenttype: str | None = None
    subject: str | None = None
    extensions: dict[str, Any] = field(default_factory=dict[str, Any])


class EventTimeoutError(romancy.EventTimeoutError):
    """No event arrived before the timeout."""

    def __init__(self, event_type: str, timeout_seconds: float) -> None:
        super().__init__(f"No event {event_type!r} arrived within {timeout_seconds} seconds.")
        self.event_type = event_type
        self.timeout_seconds = timeout_seconds


# --- channels


async def subscribe(ctx: WorkflowContext, channel: str, mode: str = "broadcast") -> None:
    """Receive messages of a channel from now on. `mode`: `broadcast`, `competing`, or `direct` for messages to here."""
    inner = in_workflow(ctx, "subscribe()")
    if mode == "direct":
        ctx._direct.add(channel)  # pyright: ignore[reportPrivateUsage]
        await romancy.subscribe(inner, _instance_channel(channel, ctx.instance_id), "broadcast")
        return
    await romancy.subscribe(inner, channel, mode)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def unsubscribe(ctx: WorkflowContext, channel: str) -> None:
    """Stop receiving messages of a channel."""
    await romancy.unsubscribe(in_workflow(ctx, "unsubscribe()"), _actual_channel(ctx, channel))


async def receive(
    ctx: WorkflowContext, channel: str, timeout_seconds: float | None = None, message_id: str | None = None
) -> ChannelMessage:
    """Wait for the next message of a channel; without a subscription, for the next one that is sent to this instance.

    Raises `TimeoutError`. `message_id` is accepted and ignored: concurrent waits are distinguished without it.
    """
    inner = in_workflow(ctx, "receive()")
    try:
        message = await romancy.receive(inner, _actual_channel(ctx, channel), timeout=timeout_seconds)
    except ChannelNotSubscribedError:
        await subscribe(ctx, channel, "direct")
        message = await romancy.receive(inner, _actual_channel(ctx, channel), timeout=timeout_seconds)
    return _received(message, channel)


async def publish(
    ctx_or_storage: Any,
    channel: str,
    data: Any,
    metadata: Mapping[str, Any] | None = None,
    *,
    target_instance_id: str | None = None,
    worker_id: str | None = None,
) -> str:
    """Publish a message; returns its id.

    With a context, the message commits with the step of the workflow or the attempt of the activity. Outside of both, pass
    the app or its `storage`. `worker_id` is ignored.
    """
    app = getattr(ctx_or_storage, "romancy", None)
    if isinstance(app, App):
        if target_instance_id is None:
            return await app.publish(channel, data, metadata=metadata)
        return await app.send_to(target_instance_id, channel, data, metadata=metadata)
    inner = native_context(ctx_or_storage, "publish()")
    message_id = new_id(ctx_or_storage)
    about = {**(metadata or {}), _ID: message_id}
    if target_instance_id is None:
        await romancy.publish(inner, channel, data, metadata=about)
    else:
        await romancy.send_to(inner, target_instance_id, channel, data, metadata=about)
    return message_id


async def send_to(
    ctx: WorkflowContext, instance_id: str, data: Any, channel: str = _SELF, metadata: Mapping[str, Any] | None = None
) -> bool:
    """Send a message to one instance. Return False if the instance does not exist or has ended."""
    inner = native_context(ctx, "send_to()")
    try:
        await romancy.send_to(inner, instance_id, _instance_channel(channel, instance_id), data, metadata=metadata)
    except WorkflowNotFoundError:
        return False
    except InvalidWorkflowStateError:  # it has ended
        return False
    return True


def _instance_channel(channel: str, instance_id: str) -> str:
    """Return the channel of messages to one instance."""
    return channel if channel.endswith(f":{instance_id}") else f"{channel}:{instance_id}"


def _actual_channel(ctx: WorkflowContext, channel: str) -> str:
    return _instance_channel(channel, ctx.instance_id) if channel in ctx._direct else channel  # pyright: ignore[reportPrivateUsage]


def _received(message: ReceivedMessage[Any], channel: str) -> ChannelMessage:
    about = dict(message.metadata)
    identity = about.pop(_ID, message.id)
    at = message.created_at.isoformat()
    sender = {"source_instance_id": message.sender_instance_id} if message.sender_instance_id is not None else {}
    return ChannelMessage(identity, channel, message.data, {"published_at": at, **sender, **about}, message.created_at)


# --- events


async def wait_event(
    ctx: WorkflowContext,
    event_type: str,
    timeout_seconds: float | None = None,
    model: Any = None,
    event_id: str | None = None,
) -> ReceivedEvent:
    """Wait for an event of a type. `model` validates its data; `event_id` is the id of the wait in the history."""
    inner = in_workflow(ctx, "wait_event()")
    try:
        event = await romancy.wait_event(inner, event_type, timeout=timeout_seconds, model=model, event_id=event_id)
    except romancy.EventTimeoutError as error:
        raise EventTimeoutError(event_type, timeout_seconds or 0) from error
    return ReceivedEvent(
        data={"_binary": event.data} if isinstance(event.data, bytes) else event.data,
        type=event.type,
        source=event.source,
        id=event.id,
        time=None if event.time is None else event.time.isoformat(),
        datacontenttype=event.datacontenttype,
        subject=event.subject,
        extensions=dict(event.extensions),
    )


async def send_event(
    event_type: str, source: str, data: Any, broker_url: str | None = None, datacontenttype: str | None = None
) -> None:
    """Send an event to the waiting workflows of the app, and to the broker if the app has one.

    In a workflow or an activity, the event is a part of its commit.
    """
    app, here = current_app("send_event()"), CURRENT_CONTEXT.get()
    if broker_url is not None:
        raise ConfigurationError(
            "send_event(broker_url=...) is not offered: events are sent through the outbox of the app. Give the broker to "
            "EddaApp(outbox_enabled=True, broker_url=...), and leave it out here."
        )
    if here is None:
        await app.send_event(event_type, source, payload(data), content_type=datacontenttype)
    else:
        await romancy.send_event(here.romancy, event_type, source, payload(data), content_type=datacontenttype)


def payload(data: Any) -> Any:
    """Wrap data that is neither an object nor a model in an object with the field `_data`."""
    plain = (str, int, float, list, tuple, type(None))
    return {"_data": data} if isinstance(data, plain) else data


# --- timers


async def sleep(
    ctx: WorkflowContext, seconds: float | None = None, timer_id: str | None = None, *, duration_seconds: float | None = None
) -> None:
    """Sleep for a number of seconds, without occupying a worker. `duration_seconds` is an earlier name of `seconds`."""
    given = duration_seconds if seconds is None else seconds
    if given is None:
        raise TypeError("sleep() needs the seconds to wait: sleep(ctx, 60).")
    await romancy.sleep(in_workflow(ctx, "sleep()"), given, sleep_id=timer_id)


async def sleep_until(ctx: WorkflowContext, target_time: datetime, timer_id: str | None = None) -> None:
    """Sleep until a time, an aware datetime."""
    await romancy.sleep_until(in_workflow(ctx, "sleep_until()"), target_time, sleep_id=timer_id)


wait_timer = sleep
wait_until = sleep_until

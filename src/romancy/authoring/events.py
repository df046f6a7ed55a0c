"""Events: the functions with which workflows wait for events and send them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, overload

from pydantic_core import to_json

from romancy.authoring.context import ActivityContext, WorkflowContext, run_of
from romancy.authoring.durations import Duration
from romancy.authoring.operations import OperationInput, call_store, due_at, emit, optional_text, parse_match, require_text
from romancy.clock import to_datetime
from romancy.core.futures import Operation
from romancy.errors import ConfigurationError
from romancy.model.history import Kind
from romancy.model.messaging import Event, ReceivedEvent, SendEvent, WaitSelector
from romancy.serde.external import check_model
from romancy.serde.messaging import ATTRIBUTES, BASE64, DATA, EncodedData, external_data, received_event, with_data

T = TypeVar("T")

_JSON, _OCTETS = "application/json", "application/octet-stream"
_EXTENSION = re.compile(r"[a-z0-9]+")
_RESERVED = ATTRIBUTES | {DATA, BASE64}


@overload
def wait_event(
    ctx: WorkflowContext,
    event_type: str,
    *,
    timeout: Duration | None = None,
    model: None = None,
    subject: str | None = None,
    match: Mapping[str, str | float | bool | None] | None = None,
    event_id: str | None = None,
) -> Operation[ReceivedEvent[Any]]: ...
@overload
def wait_event(
    ctx: WorkflowContext,
    event_type: str,
    *,
    timeout: Duration | None = None,
    model: type[T],
    subject: str | None = None,
    match: Mapping[str, str | float | bool | None] | None = None,
    event_id: str | None = None,
) -> Operation[ReceivedEvent[T]]: ...
@overload
def wait_event(
    ctx: WorkflowContext,
    event_type: str,
    *,
    timeout: Duration | None = None,
    model: Any,  # a union, Annotated, Literal: types that are not classes
    subject: str | None = None,
    match: Mapping[str, str | float | bool | None] | None = None,
    event_id: str | None = None,
) -> Operation[ReceivedEvent[Any]]: ...
def wait_event(
    ctx: WorkflowContext,
    event_type: str,
    *,
    timeout: Duration | None = None,
    model: Any = None,
    subject: str | None = None,
    match: Mapping[str, str | float | bool | None] | None = None,
    event_id: str | None = None,
) -> Operation[Any]:
    """Wait for an event of a type, without occupying a worker.

    The result is the oldest matching event that this instance has not consumed, or the next one that arrives. `subject` and
    `match` (dotted paths in the data) select events; `model` validates the data. `event_id` is the name of the wait in the
    history, and not a filter. Raises `EventTimeoutError` if no event arrives in time (with a `timeout` of zero or less: if
    none has arrived yet), `PayloadError` if the data does not fit the model.

    >>> paid = await wait_event(ctx, "order.paid", subject=order.id, model=Payment, timeout=timedelta(days=3))
    """
    run = run_of(ctx, "wait_event()")
    what = f"wait_event({event_type!r})"
    head = {"type": require_text(event_type, "The type given to wait_event()")}
    subject = optional_text(subject, f"The subject of {what}")
    match_json = None if (criteria := parse_match(match, what)) is None else to_json(criteria)
    check_model(model, what)
    operation_input = OperationInput.of(to_json({**head, "subject": subject, "match": criteria}))
    return call_store(
        run,
        Kind.EVENT,
        event_type,
        WaitSelector(event_type, subject, match_json),
        operation_input,
        partial(received_event, model=model),
        op_id=optional_text(event_id, f"The event_id of {what}"),
        due=due_at(run, timeout, what),
    )


def send_event(
    ctx: WorkflowContext | ActivityContext,
    type: str,
    source: str,
    data: Any = None,
    *,
    subject: str | None = None,
    event_id: str | None = None,
    content_type: str | None = None,
    extensions: Mapping[str, str | int | bool] | None = None,
    local: bool = True,
) -> Operation[None]:
    """Send an event, in the commit of the workflow's step or of the activity's attempt: once, or not at all.

    `data` is any value that pydantic can write as JSON, or bytes. `event_id` is the id of the event: a second event with the
    same source and id is a duplicate, and has no effect. `extensions={"romancyinstanceid": "order-42"}` addresses the event
    to one instance. With `App(broker=...)` it also goes to the brokers; with `local=False` only to them.

    >>> await send_event(ctx, "order.paid", "/shop", {"order": 42}, subject="42")
    """
    payload = _encode_data(data, f"the data of event {type!r}")
    event = _build_event(type, source, payload, subject, event_id, content_type, extensions)
    name = f"send_event:{type}"
    if not isinstance(ctx, ActivityContext):  # an event of an attempt gets the time of the attempt's commit
        event = replace(event, time=rfc3339(run_of(ctx, "send_event()").at))
    check_local(local, has_broker=_has_broker(ctx, name))
    operation_input = OperationInput.of(_describe_event(event, local), ordered=payload is None or payload.ordered, data=data)
    return emit(ctx, "send_event()", Kind.SEND_EVENT, name, SendEvent(event, local=local), operation_input)


def new_event(
    type: str,
    source: str,
    data: Any = None,
    *,
    subject: str | None = None,
    event_id: str | None = None,
    content_type: str | None = None,
    extensions: Mapping[str, str | int | bool] | None = None,
) -> Event:
    """Make an event of the user's values. Raises `ConfigurationError` or `PayloadError` for values that cannot be sent."""
    return _build_event(
        type, source, _encode_data(data, f"the data of event {type!r}"), subject, event_id, content_type, extensions
    )


def rfc3339(at: int) -> str:
    """Write a time of the engine as CloudEvents does."""
    return to_datetime(at).isoformat().replace("+00:00", "Z")


def _encode_data(data: Any, what: str) -> EncodedData | None:
    return None if data is None else external_data(data, what)


def _build_event(
    type: str, source: str, payload: EncodedData | None, subject: Any, event_id: Any, content_type: Any, extensions: Any
) -> Event:
    what = f"event {type!r}"
    content_type = optional_text(content_type, f"The content_type of {what}")
    if content_type is None and payload is not None:
        content_type = _OCTETS if payload.binary else _JSON
    return Event(
        id=optional_text(event_id, f"The event_id of {what}") or "",
        source=require_text(source, f"The source of {what}"),
        type=require_text(type, "The type of the event"),
        data=None if payload is None else payload.raw,
        binary=payload is not None and payload.binary,
        subject=optional_text(subject, f"The subject of {what}"),
        datacontenttype=content_type,
        extensions=checked_extensions(extensions, what),
    )


def _describe_event(event: Event, local: bool) -> bytes:
    """Describe an event as JSON, for the history: without its time, which differs when the instance is retried."""
    named = {
        "type": event.type,
        "source": event.source,
        "id": event.id or None,
        "subject": event.subject,
        "datacontenttype": event.datacontenttype,
        "extensions": event.extensions or None,
        "local": None if local else False,
    }
    return with_data({name: value for name, value in named.items() if value is not None}, event.data, binary=event.binary)


def checked_extensions(extensions: Any, what: str) -> dict[str, str | int | bool]:
    """Return the extensions of an event, sorted. Raises `ConfigurationError` for those that CloudEvents does not allow."""
    if extensions is None:
        return {}
    if not isinstance(extensions, Mapping):
        raise ConfigurationError(f"The extensions of {what} are {extensions!r}: give a mapping of names to values.")
    given: Mapping[Any, Any] = extensions
    for name, value in given.items():
        _check_extension(name, value, what)
    return dict(sorted(given.items()))


def _check_extension(name: Any, value: Any, what: str) -> None:
    if not isinstance(name, str) or _EXTENSION.fullmatch(name) is None:
        raise ConfigurationError(
            f"{name!r} cannot be an extension of {what}: a name has only lower-case letters and digits."
        )
    if name in _RESERVED:
        raise ConfigurationError(f"{name!r} cannot be an extension of {what}: it is an attribute that every event has.")
    if isinstance(value, str):
        require_text(value or "x", f"The extension {name!r} of {what}")  # an empty text is allowed here
    elif not isinstance(value, int):
        raise ConfigurationError(f"The extension {name!r} of {what} is {value!r}: give a string, an integer or a boolean.")


def check_local(local: Any, *, has_broker: bool) -> None:
    """Refuse an event that is for the brokers only if the app has no broker."""
    if not isinstance(local, bool):
        raise ConfigurationError(f"send_event(local={local!r}): give True or False.")
    if not local and not has_broker:
        raise ConfigurationError(
            "send_event(local=False) hands an event to the brokers only, and this app has none: give it one, "
            "App(broker=HTTPBroker(url)), or leave `local` out."
        )


def _has_broker(ctx: WorkflowContext | ActivityContext, name: str) -> bool:
    """Whether the app has a broker, or this is a replay of a call that was made when it had one."""
    app = ctx._app
    return (
        app is None
        or bool(app._brokers)
        or (isinstance(ctx, WorkflowContext) and run_of(ctx, name).is_next_effect_recorded(name))
    )

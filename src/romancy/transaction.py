"""The client for the caller's own transaction: it starts workflows, and sends events and messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from romancy.authoring.events import check_local, new_event, rfc3339
from romancy.authoring.workflow import Workflow, WorkflowRef
from romancy.codec import is_encoded, is_encoded_digest, not_decoded
from romancy.errors import CodecError, InstanceConflictError, no_recipient
from romancy.model.messaging import Publish, Sendable, SendEvent, SendTo, SendToGroup
from romancy.model.transition import CreateInstance, Existing
from romancy.serde.equivalence import Difference, difference_of_calls, difference_of_inputs
from romancy.serde.messaging import event_of_input

if TYPE_CHECKING:
    from romancy.client import Client
    from romancy.handle import WorkflowHandle

P = ParamSpec("P")
R = TypeVar("R")


class TransactionalClient:
    """A client on a transaction of the caller: its calls take effect when the caller commits, and not before."""

    def __init__(self, client: Client, connection: object) -> None:
        self._client = client
        self._connection = connection

    @overload
    async def start_workflow(self, wf: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> WorkflowHandle[R]: ...
    @overload
    async def start_workflow(self, wf: str | WorkflowRef, /, *args: Any, **kwargs: Any) -> WorkflowHandle[Any]: ...
    async def start_workflow(self, wf: Any, /, *args: Any, **kwargs: Any) -> WorkflowHandle[Any]:
        """Start a workflow as `App.start_workflow` does, with the same errors, when the caller commits."""
        client = self._client
        create, workflow = client._creation(wf, args, kwargs)
        answer = await client._transaction_store.create_on(self._connection, create._replace(owner=None))
        if isinstance(answer, Existing):
            check_same_start(create, answer, workflow, hidden=client._hides_payloads)
        return client._handle(create.instance_id, workflow)

    async def send_event(
        self,
        type: str,
        source: str,
        data: Any = None,
        *,
        subject: str | None = None,
        event_id: str | None = None,
        content_type: str | None = None,
        extensions: Mapping[str, str | int | bool] | None = None,
        local: bool = True,
    ) -> str:
        """Send an event when the caller commits; returns its id. A duplicate, by source and id, has no effect."""
        client = self._client
        check_local(local, has_broker=bool(client._brokers))
        event = new_event(
            type, source, data, subject=subject, event_id=event_id, content_type=content_type, extensions=extensions
        )
        now = client._clock.now()
        named = replace(event, id=event.id or client._ids.instance_id(now), time=rfc3339(now))
        fresh = client._ids.instance_id(now)
        await self._emit(SendEvent(named, fresh_id=fresh, local=local, brokers=tuple(client._brokers)))
        return named.id

    async def publish(self, channel: str, data: Any, *, metadata: Mapping[str, Any] | None = None) -> str:
        """Publish a message to a channel when the caller commits; returns its id."""
        message = self._client._message(channel, data, metadata)
        await self._emit(Publish(message))
        return message.id

    async def send_to(self, instance_id: str, channel: str, data: Any, *, metadata: Mapping[str, Any] | None = None) -> str:
        """Send a message to one instance when the caller commits; returns its id.

        Raises `WorkflowNotFoundError` for an unknown id, `InvalidWorkflowStateError` for an instance that has ended.
        """
        message = self._client._message(channel, data, metadata)
        await self._emit(SendTo(message, instance_id))
        return message.id

    async def send_to_group(self, name: str, channel: str, data: Any, *, metadata: Mapping[str, Any] | None = None) -> str:
        """Send a message to each member of a group when the caller commits; returns its id."""
        message = self._client._message(channel, data, metadata)
        await self._emit(SendToGroup(message, name))
        return message.id

    async def _emit(self, effect: Sendable) -> None:
        store = self._client._transaction_store
        refused = await store.emit_on(self._connection, effect, now=self._client._clock.now())
        if refused is not None and isinstance(effect, SendTo):
            raise no_recipient(effect.target, refused.status)


def check_same_start(
    create: CreateInstance,
    existing: Existing,
    workflow: Workflow[..., Any] | None,
    *,
    hidden: bool,
    filled: Callable[[Any], Any] | None = None,
) -> None:
    """Raise `InstanceConflictError` unless an existing instance has the same workflow and equivalent arguments.

    If the code of the workflow is not in this process, `filled` adds the defaults of arguments that were left out.
    """
    if existing.workflow != create.workflow:
        raise _conflict(create, f"workflow {existing.workflow!r}")
    for raw in (existing.digest if is_encoded_digest(existing.digest) else b"", existing.input or b""):
        if is_encoded(raw):
            raise CodecError(not_decoded(f"The input of {create.instance_id}", raw))
    if existing.digest == create.digest and existing.digest:
        return
    found = _difference(create, existing.input, workflow, filled)
    if found is not None:
        raise _conflict(create, f"other arguments: {found.describe(hidden=hidden)}")


def _difference(
    create: CreateInstance, recorded: bytes | None, workflow: Workflow[..., Any] | None, filled: Callable[[Any], Any] | None
) -> Difference | None:
    if recorded is None:
        return Difference(why="its input is no longer stored, and its digest differs")
    if event_of_input(recorded) is not None:
        return Difference(why="it was started by an event")
    if workflow is None:
        return difference_of_inputs(recorded, create.input, filled or _unchanged)
    return difference_of_calls(workflow.codec, recorded, create.input)


def _unchanged(value: Any) -> Any:
    return value


def _conflict(create: CreateInstance, what: str) -> InstanceConflictError:
    return InstanceConflictError(
        f"The instance id {create.instance_id!r} is already used by an instance with {what}. Use another id to start "
        "another instance."
    )

"""The calls of a client that send events and messages, and read the outbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from romancy.authoring.channels import new_message
from romancy.authoring.events import check_local, new_event, rfc3339
from romancy.errors import ConfigurationError, StoreError, no_recipient
from romancy.model.instance import (
    Page,
)
from romancy.model.messaging import AcceptedEvent, Event, Message, Publish, SendTo, SendToGroup, UndeliverableEvent
from romancy.model.outbox import OutboxEntry
from romancy.model.transition import Accepted, AcceptEvents, CreateInstance, PostMessage, Refused, WriteResult
from romancy.presenters import (
    make_page_token,
    outbox_entry_of,
    parse_page_token,
    undeliverable_of,
)
from romancy.registry.creation import starts_of
from romancy.runtime import Runtime

Starts: TypeAlias = tuple[tuple[CreateInstance, ...], ...]
"""For each of several events the instances that it starts."""
_REQUEUE_LIMIT = 500
"""Events that are requeued in one transaction."""


class MessagingClient(Runtime):
    """The part of a client that sends events and messages, and reads the outbox."""

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
    ) -> AcceptedEvent:
        """Send an event to the workflows that wait for it, now or later; returns when it is durable.

        An event with the `source` and `event_id` of an earlier one is a duplicate, and has no effect. An event with the
        extension `romancyinstanceid` is addressed to that instance alone. If the app has brokers, the event goes to them
        too; with `local=False` only to them.
        """
        check_local(local, has_broker=bool(self._brokers))
        event = new_event(
            type, source, data, subject=subject, event_id=event_id, content_type=content_type, extensions=extensions
        )
        now = self._clock.now()
        named = replace(event, id=event.id or self._ids.instance_id(now), time=rfc3339(now))
        return (await self._submit_events([named], local=local, brokers=tuple(self._brokers)))[0]

    async def accept_events(self, events: Sequence[Event]) -> list[AcceptedEvent]:
        """Accept events from outside, all or none; returns when they are durable and the waiting instances are woken.

        These events do not go to the brokers.
        """
        return await self._submit_events(events)

    async def _submit_events(
        self, events: Sequence[Event], *, local: bool = True, brokers: tuple[str, ...] = ()
    ) -> list[AcceptedEvent]:
        now = self._clock.now()
        starts = tuple([self._starts_of(event, now) if local else () for event in events])
        fresh = tuple([self._ids.instance_id(now) for _ in events])
        accept = AcceptEvents(tuple(events), now, starts, fresh, local, brokers)
        written = self._require_committer().submit(accept, partial(self._on_emitted, starts))
        self._on_submitted(starts)
        answer = await written
        assert isinstance(answer, Accepted)
        if brokers:
            self._on_outbox_enqueued()
        return list(answer.events)

    def _on_outbox_enqueued(self) -> None:
        """Called when the outbox has new events that are durable."""

    def _starts_of(self, event: Event, now: int) -> tuple[CreateInstance, ...]:
        return starts_of(self._registry, event, self._ids, now=now, owner=None)

    def _on_submitted(self, starts: Starts) -> None:
        """Called when events were submitted that may start these instances; `_on_emitted` follows."""

    def _on_emitted(self, starts: Starts, answer: WriteResult | StoreError) -> None:
        """Called with the answer to a write of events, a message or a request: woken instances may be in this process."""

    async def publish(self, channel: str, data: Any, *, metadata: Mapping[str, Any] | None = None) -> str:
        """Publish a message to a channel; returns its id when it is durable."""
        return await self._submit_message(Publish(self._message(channel, data, metadata)))

    async def send_to(self, instance_id: str, channel: str, data: Any, *, metadata: Mapping[str, Any] | None = None) -> str:
        """Send a message to one instance; returns its id when it is durable.

        Raises `WorkflowNotFoundError` for an unknown id, `InvalidWorkflowStateError` for an instance that has ended.
        """
        return await self._submit_message(SendTo(self._message(channel, data, metadata), instance_id))

    async def send_to_group(self, name: str, channel: str, data: Any, *, metadata: Mapping[str, Any] | None = None) -> str:
        """Send a message to each member of a group; returns its id when it is durable."""
        return await self._submit_message(SendToGroup(self._message(channel, data, metadata), name))

    async def get_group_members(self, name: str) -> list[str]:
        """Return the ids of a group's members, in the order in which they joined."""
        return await self._store.members(name)

    def _message(self, channel: str, data: Any, metadata: Mapping[str, Any] | None) -> Message:
        return replace(new_message(channel, data, metadata=metadata), id=self._ids.instance_id(self._clock.now()))

    async def _submit_message(self, effect: Publish | SendTo | SendToGroup) -> str:
        answer = await self._require_committer().submit(
            PostMessage(effect, self._clock.now()), partial(self._on_emitted, ())
        )
        if isinstance(answer, Refused):
            assert isinstance(effect, SendTo)
            raise no_recipient(effect.target, answer.status)
        return effect.message.id

    async def list_undeliverable_events(self, *, limit: int = 50, page_token: str | None = None) -> Page[UndeliverableEvent]:
        """List the events addressed to instances that do not exist, or have ended without receiving them; oldest first."""
        after = parse_page_token(page_token)[0] if page_token is not None else 0
        found = await self._store.undeliverable(after=after, limit=page_limit(limit) + 1)
        items = [undeliverable_of(at, raw) for _, at, raw in found[:limit]]
        return Page(items, make_page_token(found[limit - 1][0], "") if len(found) > limit else None)

    # --- the outbox

    async def list_outbox(
        self, *, dead: bool | None = None, limit: int = 50, page_token: str | None = None
    ) -> Page[OutboxEntry]:
        """List the events in the outbox, oldest first: all, only dead letters (`dead=True`), or only the others."""
        if dead is not None and not isinstance(dead, bool):
            raise ConfigurationError(f"dead={dead!r}: give True, False or None.")
        after = parse_page_token(page_token)[0] if page_token is not None else 0
        found = await self._store.list_outbox(dead=dead, after=after, limit=page_limit(limit) + 1)
        return Page(
            [outbox_entry_of(row) for row in found[:limit]],
            make_page_token(found[limit - 1].seq, "") if len(found) > limit else None,
        )

    async def requeue_outbox(self, ids: Sequence[int] | None = None) -> int:
        """Requeue dead letters, those with these ids or all, so that they are delivered again. Returns their number."""
        remaining = None if ids is None else _check_ids(ids)
        requeued, more = 0, True
        while more:
            portion = None if remaining is None else [remaining.pop() for _ in range(min(len(remaining), _REQUEUE_LIMIT))]
            count = await self._store.requeue_outbox(portion, now=self._clock.now(), limit=_REQUEUE_LIMIT)
            requeued += count
            more = bool(remaining) if remaining is not None else count == _REQUEUE_LIMIT
        self._on_outbox_enqueued()
        return requeued


def page_limit(limit: int) -> int:
    """Return the limit of a page. Raises `ConfigurationError` if it is not a number in the allowed range."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= 1000:
        raise ConfigurationError(f"limit={limit!r}: give a whole number from 1 to 1000.")
    return limit


def _check_ids(ids: Sequence[int]) -> list[int]:
    given = [] if isinstance(ids, str) else list(ids)
    if isinstance(ids, str) or not all(type(one) is int and 0 < one < 2**63 for one in given):
        raise ConfigurationError(f"ids={ids!r}: give the ids of entries of the outbox, or None for all dead letters.")
    return sorted(set(given), reverse=True)

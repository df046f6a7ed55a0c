"""What is said from outside: events, messages, and the events that brokers have not got."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from romancy.authoring.channels import new_message
from romancy.authoring.events import check_local, new_event, rfc3339
from romancy.authoring.starting import starts_of
from romancy.connected import Connected
from romancy.errors import ConfigurationError, StoreError, no_recipient
from romancy.model.instance import (
    Page,
)
from romancy.model.outbox import OutboxEntry
from romancy.model.talk import AcceptedEvent, Event, Message, Publish, SendTo, SendToGroup, UndeliverableEvent
from romancy.model.transition import Accept, Accepted, Answer, Create, Post, Refused
from romancy.views import (
    outbox_entry_of,
    page_position,
    token_of,
    undeliverable_of,
)

Starts: TypeAlias = tuple[tuple[Create, ...], ...]
"""The instances that each of several events starts."""
_REQUEUE = 500
"""Events that are requeued in one transaction."""


class Sending(Connected):
    """Sends events and messages, and looks at the outbox."""

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

        The same source and `event_id` again is a duplicate and does nothing. An event with the extension
        `romancyinstanceid` is for that instance alone. With `broker=...` it also goes to the brokers; with `local=False` to
        them only.
        """
        check_local(local, has_broker=bool(self._brokers))
        event = new_event(
            type, source, data, subject=subject, event_id=event_id, content_type=content_type, extensions=extensions
        )
        now = self._clock.now()
        named = replace(event, id=event.id or self._ids.instance_id(now), time=rfc3339(now))
        return (await self._accept([named], local=local, brokers=tuple(self._brokers)))[0]

    async def accept_events(self, events: Sequence[Event]) -> list[AcceptedEvent]:
        """Accept events, all of them or none; returns when they are durable and those who wait for them are called.

        They come from outside, and are not handed to the brokers.
        """
        return await self._accept(events)

    async def _accept(
        self, events: Sequence[Event], *, local: bool = True, brokers: tuple[str, ...] = ()
    ) -> list[AcceptedEvent]:
        now = self._clock.now()
        starts = tuple(self._starts_of(event, now) if local else () for event in events)
        fresh = tuple(self._ids.instance_id(now) for _ in events)
        accept = Accept(tuple(events), now, starts, fresh, local, brokers)
        written = self._write().submit(accept, partial(self._said, starts))
        self._saying(starts)
        answer = await written
        assert isinstance(answer, Accepted)
        if brokers:
            self._put_out()
        return list(answer.events)

    def _put_out(self) -> None:
        """Something is in the outbox, durably."""

    def _starts_of(self, event: Event, now: int) -> tuple[Create, ...]:
        return starts_of(self._registry, event, self._ids, now=now, owner=None)

    def _saying(self, starts: Starts) -> None:
        """Something is being said: its answer says which of these instances begin."""

    def _said(self, starts: Starts, answer: Answer | StoreError) -> None:
        """Something was said, durably: whoever it called may be here."""

    async def publish(self, channel: str, data: Any, *, metadata: Mapping[str, Any] | None = None) -> str:
        """Publish a message to a channel; returns its id when it is durable."""
        return await self._post(Publish(self._message(channel, data, metadata)))

    async def send_to(self, instance_id: str, channel: str, data: Any, *, metadata: Mapping[str, Any] | None = None) -> str:
        """Send a message to one instance; returns its id when it is durable.

        Raises `WorkflowNotFoundError` for an unknown id, `InvalidWorkflowStateError` for an instance that has ended.
        """
        return await self._post(SendTo(self._message(channel, data, metadata), instance_id))

    async def send_to_group(self, name: str, channel: str, data: Any, *, metadata: Mapping[str, Any] | None = None) -> str:
        """Send a message to each member of a group; returns its id when it is durable."""
        return await self._post(SendToGroup(self._message(channel, data, metadata), name))

    async def get_group_members(self, name: str) -> list[str]:
        """The ids of a group's members, in the order they joined."""
        return await self._store.members(name)

    def _message(self, channel: str, data: Any, metadata: Mapping[str, Any] | None) -> Message:
        return replace(new_message(channel, data, metadata=metadata), id=self._ids.instance_id(self._clock.now()))

    async def _post(self, deed: Publish | SendTo | SendToGroup) -> str:
        answer = await self._write().submit(Post(deed, self._clock.now()), partial(self._said, ()))
        if isinstance(answer, Refused):
            assert isinstance(deed, SendTo)
            raise no_recipient(deed.target, answer.status)
        return deed.message.id

    async def list_undeliverable_events(self, *, limit: int = 50, page_token: str | None = None) -> Page[UndeliverableEvent]:
        """Events addressed to instances that do not exist or have ended without taking them; oldest first."""
        after = page_position(page_token)[0] if page_token is not None else 0
        found = await self._store.undeliverable(after=after, limit=page_limit(limit) + 1)
        items = [undeliverable_of(at, raw) for _, at, raw in found[:limit]]
        return Page(items, token_of(found[limit - 1][0], "") if len(found) > limit else None)

    # --- the outbox

    async def list_outbox(
        self, *, dead: bool | None = None, limit: int = 50, page_token: str | None = None
    ) -> Page[OutboxEntry]:
        """Events that brokers have not got yet, oldest first: all, only those that were given up, or only the others."""
        if dead is not None and not isinstance(dead, bool):
            raise ConfigurationError(f"dead={dead!r}: give True, False or None.")
        after = page_position(page_token)[0] if page_token is not None else 0
        found = await self._store.list_outbox(dead=dead, after=after, limit=page_limit(limit) + 1)
        return Page(
            [outbox_entry_of(row) for row in found[:limit]],
            token_of(found[limit - 1].seq, "") if len(found) > limit else None,
        )

    async def requeue_outbox(self, ids: Sequence[int] | None = None) -> int:
        """Let events that were given up be tried again: those of these ids, or all of them. Returns how many."""
        wanted = None if ids is None else _ids(ids)
        requeued, more = 0, True
        while more:
            portion = None if wanted is None else [wanted.pop() for _ in range(min(len(wanted), _REQUEUE))]
            done = await self._store.requeue_outbox(portion, now=self._clock.now(), limit=_REQUEUE)
            requeued += done
            more = bool(wanted) if wanted is not None else done == _REQUEUE
        self._put_out()
        return requeued


def page_limit(limit: int) -> int:
    """How many items of a page are wanted."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= 1000:
        raise ConfigurationError(f"limit={limit!r}: give a whole number from 1 to 1000.")
    return limit


def _ids(ids: Sequence[int]) -> list[int]:
    given = [] if isinstance(ids, str) else list(ids)
    if isinstance(ids, str) or not all(type(one) is int and 0 < one < 2**63 for one in given):
        raise ConfigurationError(f"ids={ids!r}: give the ids of entries of the outbox, or None for all that were given up.")
    return sorted(set(given), reverse=True)

"""Groups: their members, and the messages to all members."""

from __future__ import annotations

import asyncio

import pytest
from tests.store.conformance.builders import (
    MakeStore,
    entry,
    leave,
    members,
    message,
    receive,
    request,
    subscribe,
    write,
)
from tests.store.conformance.driver import DrivenInstance, new_instances, subscribers, tell

from romancy.errors import ChannelNotSubscribedError, GroupNotJoinedError
from romancy.model.history import Kind
from romancy.model.messaging import ChannelMode, Effect, JoinGroup, Publish, SendToGroup
from romancy.model.status import Status
from romancy.model.transition import ControlKind, PostMessage, Refused
from romancy.store.port import Store

JOIN = JoinGroup("crew")


def send_to_group(data: str = "one", group: str = "crew", *, now: int = 30) -> PostMessage:
    """A message to a group, from outside."""
    return PostMessage(SendToGroup(message(data), group), now)


async def join_crew(store: Store, *ids: str) -> list[DrivenInstance]:
    """New instances that subscribe to direct messages and join the group, one after the other."""
    found = await subscribers(store, *ids, mode=ChannelMode.DIRECT)
    for at, one in enumerate(found, 15):
        await one.do(JOIN, now=at)
    return found


class TestGroups:
    """Members are listed in the order they joined, until they leave or end."""

    async def test_members_come_in_the_order_they_joined(self, store: Store) -> None:
        await join_crew(store, "b", "c", "a")
        assert await store.members("crew") == ["b", "c", "a"]
        assert await store.members("Crew") == []

    async def test_joining_twice_is_joining_once(self, store: Store) -> None:
        a, _ = await join_crew(store, "a", "b")
        await a.do(JOIN, JOIN, now=40)
        assert await store.members("crew") == ["a", "b"]

    async def test_who_leaves_is_out(self, store: Store) -> None:
        a, b = await join_crew(store, "a", "b")
        assert await a.ask(leave(), now=40) == {"leave:crew": None}
        assert await store.members("crew") == ["b"]
        assert await a.ask(leave(), now=41) == {"leave:crew": GroupNotJoinedError}
        assert await b.ask(leave("other"), now=41) == {"leave:other": GroupNotJoinedError}
        await a.do(JOIN, now=50)
        assert await store.members("crew") == ["b", "a"]

    async def test_a_workflow_asks_who_is_in(self, store: Store) -> None:
        a, _ = await join_crew(store, "b", "a")
        assert await a.ask(members(), members("unknown")) == {"members:crew": ["b", "a"], "members:unknown": []}
        recorded = (await store.history("b", 1, after=1, limit=9))[0]
        assert recorded.kind is Kind.MEMBERS

    async def test_what_is_said_in_one_commit_comes_before_what_is_asked(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        assert await a.ask(members(), leave(), members("x"), effects=(JOIN,)) == {
            "members:crew": ["a"],
            "leave:crew": None,
            "members:x": [],
        }
        assert await store.members("crew") == []

    @pytest.mark.parametrize("how", ["end", "terminate"])
    async def test_who_has_ended_is_out(self, store: Store, how: str) -> None:
        a, _ = await join_crew(store, "a", "b")
        if how == "end":
            await a.end()
        else:
            await write(store, request(ControlKind.TERMINATE))
        assert await store.members("crew") == ["b"]

    async def test_every_member_hears_what_is_said_to_all(self, store: Store) -> None:
        a, b, c = await join_crew(store, "a", "b", "c")
        (outsider,) = await subscribers(store, "o", mode=ChannelMode.DIRECT)
        for one in (a, b, outsider):
            await one.ask(receive())
        answer = await tell(store, send_to_group(now=30))
        assert sorted(answer.woken) == ["a", "b"]
        assert await outsider.ask(receive(), now=40) == {}
        for one in (a, b, c):
            assert await one.ask(receive(), now=40) == {"jobs:1": "one"}
            assert await one.ask(receive(op="jobs:2"), now=41) == {}

    async def test_a_member_hears_it_when_it_subscribes(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await a.do(JOIN)
        await tell(store, send_to_group())
        assert await a.ask(receive(), now=40) == {"jobs:1": ChannelNotSubscribedError}
        await a.ask(subscribe(mode=ChannelMode.DIRECT), now=41, keep_owned=True)
        assert await a.ask(receive(), now=42) == {"jobs:1": "one"}

    async def test_who_joins_later_does_not_hear_it(self, store: Store) -> None:
        await tell(store, send_to_group("unreceived"))
        (a,) = await join_crew(store, "a")
        assert await a.ask(receive(), now=40) == {}

    async def test_a_member_hears_itself(self, store: Store) -> None:
        a, b = await join_crew(store, "a", "b")
        await b.ask(receive())
        said: tuple[Effect, ...] = (SendToGroup(message("one"), "crew"), Publish(message("lost", "nowhere")))
        answer = await a.do(*said, now=30)
        assert answer.woken == ("b",)
        assert await a.ask(receive(), now=40) == {"jobs:1": "one"}
        assert await b.ask(receive(), now=40) == {"jobs:1": "one"}

    async def test_a_zombie_joins_nothing(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        late = await a.build(effects=(JOIN,), store_calls=(members(),))
        await store.sweep([], now=40, limit=9)
        assert await write(store, late) == [Refused(Status.PENDING)]
        assert await store.members("crew") == []

    async def test_what_the_database_refuses_joins_nothing(self, store: Store) -> None:
        a, b = await new_instances(store, "a", "b")
        bad = await a.build(effects=(JOIN,), history=(entry(1), entry(1)))
        good = await b.build(effects=(JOIN,))
        wrong, right = await store.commit([bad, good])
        assert isinstance(wrong, Exception)
        assert not isinstance(right, Exception)
        assert await store.members("crew") == ["b"]

    async def test_members_join_through_two_stores(self, store: Store, make_store: MakeStore) -> None:
        other = await make_store()
        found = await new_instances(store, *(f"i{n}" for n in range(10)))
        for one in found[5:]:
            one.store = other
        await asyncio.gather(*(one.do(JOIN) for one in found))
        for each in (store, other):
            assert sorted(await each.members("crew")) == [one.id for one in found]

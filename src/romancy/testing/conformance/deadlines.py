"""Waits that are given up at a time."""

from __future__ import annotations

import pytest

from romancy.errors import ChannelMessageTimeoutError, EventTimeoutError
from romancy.model.history import Outcome
from romancy.model.status import Status
from romancy.model.talk import ChannelMode
from romancy.store.port import Store
from romancy.testing.conformance.actors import actors, said, subscribers, tell
from romancy.testing.conformance.builders import accept, event, publish, receive, row, send, wait


class TestDeadlines:
    """What came before a wait's time was over meets it, however late somebody looks; what came then does not."""

    async def test_a_wait_expires_when_its_time_is_over(self, store: Store) -> None:
        (a,) = await actors(store, "a")
        assert await a.ask(wait(due=50), now=20, wake_at=50) == {}
        assert (await row(store, "a")).wake_at == 50
        assert await a.ask(wait(due=50), now=49, wake_at=50) == {}
        answer = await a.write(now=50, asks=(wait(due=50),))
        assert said(answer.replies) == {"paid:1": EventTimeoutError}
        assert answer.held
        (recorded,) = await store.history("a", 1, after=0, limit=9)
        assert (recorded.seq, recorded.outcome, recorded.value) == (1, Outcome.ERROR, answer.replies[0].value)
        stored = await store.get("a")
        assert stored is not None
        assert stored.waits == ()

    async def test_a_wait_that_is_over_when_it_is_first_asked(self, store: Store) -> None:
        a, b = await actors(store, "a", "b")
        await tell(store, accept(event(subject="b"), now=19))
        assert await a.ask(wait(due=20, subject="a"), now=20) == {"paid:1": EventTimeoutError}
        assert await b.ask(wait(due=20, subject="b"), now=20) == {"paid:1": "e-1"}

    @pytest.mark.parametrize(("at", "met"), [(49, True), (50, False), (51, False)])
    @pytest.mark.parametrize("to", [None, "a"])
    async def test_what_comes_at_the_deadline_is_late(self, store: Store, at: int, to: str | None, *, met: bool) -> None:
        (a,) = await actors(store, "a")
        await a.ask(wait(due=50), now=20, wake_at=50)
        answer = await tell(store, accept(event(to=to), now=at))
        assert answer.woken == (("a",) if met else ())
        assert await a.ask(wait(due=50), now=99) == {"paid:1": "e-1" if met else EventTimeoutError}
        assert await a.ask(wait(op="paid:2"), now=100) == ({} if met else {"paid:2": "e-1"}), "what is late stays"

    async def test_the_log_decides_what_was_late(self, store: Store) -> None:
        (a,) = await actors(store, "a")
        await a.ask(wait(due=50), now=20, wake_at=50)
        await tell(store, accept(event("x", "other"), now=60))
        await tell(store, accept(event(), now=40))  # by a clock that runs behind
        assert await a.ask(wait(due=50), now=61) == {"paid:1": EventTimeoutError}
        assert await a.ask(wait(op="paid:2"), now=62) == {"paid:2": "e-1"}

    async def test_of_two_waits_that_are_due_one_expires_at_a_time(self, store: Store) -> None:
        (a,) = await actors(store, "a")
        both = (wait(op="paid:1", due=50), wait(op="paid:2", due=50))
        await a.ask(*both, wake_at=50)
        assert await a.ask(*both, now=60) == {"paid:1": EventTimeoutError}
        assert await a.ask(both[1], now=60) == {"paid:2": EventTimeoutError}

    async def test_a_wait_is_set_aside_for_one_that_can_be_answered(self, store: Store) -> None:
        (a,) = await actors(store, "a")
        await tell(store, accept(event()))
        assert await a.ask(wait(), wait("shipped", due=40), now=50) == {"paid:1": "e-1"}
        assert await a.ask(wait("shipped", due=40), now=50) == {"shipped:1": EventTimeoutError}

    # --- messages

    @pytest.mark.parametrize("mode", list(ChannelMode))
    @pytest.mark.parametrize(("at", "met"), [(49, True), (50, False)])
    async def test_a_message_that_comes_at_the_deadline_is_late(
        self, store: Store, mode: ChannelMode, at: int, *, met: bool
    ) -> None:
        (a,) = await subscribers(store, "a", mode=mode)
        await a.ask(receive(due=50), now=20, wake_at=50, status=Status.WAITING_FOR_MESSAGE)
        answer = await tell(store, send("a", now=at) if mode is ChannelMode.DIRECT else publish(now=at))
        assert answer.woken == (("a",) if met else ())
        assert await a.ask(receive(due=50), now=99) == {"jobs:1": "one" if met else ChannelMessageTimeoutError}
        assert await a.ask(receive(op="jobs:2"), now=99) == ({} if met else {"jobs:2": "one"})

    async def test_who_waits_still_is_called_for_what_is_too_late_for_another(self, store: Store) -> None:
        a, b = await subscribers(store, "a", "b")
        await a.ask(receive(due=50, since=20), now=20, wake_at=50)
        await b.ask(receive(since=21), now=21)
        assert (await tell(store, publish(now=60))).woken == ("b",)
        assert await a.ask(receive(due=50), now=61) == {"jobs:1": ChannelMessageTimeoutError}
        assert await b.ask(receive(), now=62) == {"jobs:1": "one"}

    async def test_a_call_that_came_to_nothing_expires(self, store: Store) -> None:
        a, b, c = await subscribers(store, "a", "b", "c")
        await a.ask(receive(due=50), now=20, wake_at=50)
        assert (await tell(store, publish("one", now=30))).woken == ("a",)
        assert await b.ask(receive(), now=31) == {"jobs:1": "one"}, "b was quicker"
        await c.ask(receive(), now=32)
        assert (await tell(store, publish("two", now=60))).woken == ("c",)
        assert await a.ask(receive(due=50), now=61) == {"jobs:1": ChannelMessageTimeoutError}
        assert await c.ask(receive(), now=62) == {"jobs:1": "two"}

"""Waits with a deadline."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.store.conformance.builders import accept, event, publish, receive, row, send, wait
from tests.store.conformance.driver import new_instances, said, subscribers, tell

from romancy.errors import ChannelMessageTimeoutError, EventTimeoutError
from romancy.model.history import Outcome
from romancy.model.messaging import ChannelMode
from romancy.model.status import Status
from romancy.store.port import Store


class TestDeadlines:
    """An arrival before the deadline matches the wait, however late the instance asks; an arrival at it does not."""

    async def test_a_wait_expires_when_its_time_is_over(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        assert await a.ask(wait(due=50), now=20, wake_at=50) == {}
        assert (await row(store, "a")).wake_at == 50
        assert await a.ask(wait(due=50), now=49, wake_at=50) == {}
        answer = await a.write(now=50, store_calls=(wait(due=50),))
        assert said(answer.replies) == {"paid:1": EventTimeoutError}
        assert answer.owned
        (recorded,) = await store.history("a", 1, after=0, limit=9)
        assert (recorded.seq, recorded.outcome, recorded.value) == (1, Outcome.ERROR, answer.replies[0].value)
        stored = await store.get("a")
        assert stored is not None
        assert stored.waits == ()

    async def test_a_wait_that_is_over_when_it_is_first_asked(self, store: Store) -> None:
        a, b = await new_instances(store, "a", "b")
        await tell(store, accept(event(subject="b"), now=19))
        assert await a.ask(wait(due=20, subject="a"), now=20) == {"paid:1": EventTimeoutError}
        assert await b.ask(wait(due=20, subject="b"), now=20) == {"paid:1": "e-1"}

    @pytest.mark.parametrize(("at", "matched"), [(49, True), (50, False), (51, False)])
    @pytest.mark.parametrize("to", [None, "a"])
    async def test_what_comes_at_the_deadline_is_late(self, store: Store, at: int, to: str | None, *, matched: bool) -> None:
        (a,) = await new_instances(store, "a")
        await a.ask(wait(due=50), now=20, wake_at=50)
        answer = await tell(store, accept(event(to=to), now=at))
        assert answer.woken == (("a",) if matched else ())
        assert await a.ask(wait(due=50), now=99) == {"paid:1": "e-1" if matched else EventTimeoutError}
        assert await a.ask(wait(op="paid:2"), now=100) == ({} if matched else {"paid:2": "e-1"}), (
            "a late event stays for later waits"
        )

    async def test_the_log_decides_what_was_late(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await a.ask(wait(due=50), now=20, wake_at=50)
        await tell(store, accept(event("x", "other"), now=60))
        await tell(store, accept(event(), now=40))  # by a clock that runs behind
        assert await a.ask(wait(due=50), now=61) == {"paid:1": EventTimeoutError}
        assert await a.ask(wait(op="paid:2"), now=62) == {"paid:2": "e-1"}

    async def test_waits_expire_together(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        asks = (wait(op="paid:1", due=50), wait(op="paid:2", due=70), wait(op="paid:3", due=50))
        await a.ask(*asks, wake_at=50)
        assert await a.ask(*asks, now=60) == {"paid:1": EventTimeoutError, "paid:3": EventTimeoutError}
        assert await a.ask(asks[1], now=60) == {}

    async def test_a_wait_is_set_aside_for_one_that_can_be_answered(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await tell(store, accept(event()))
        assert await a.ask(wait("shipped", due=40), wait(), now=50) == {"paid:1": "e-1"}
        assert await a.ask(wait("shipped", due=40), now=50) == {"shipped:1": EventTimeoutError}

    # --- the order of arrivals and deadlines

    async def test_what_came_first_is_answered_first(self, store: Store) -> None:
        (a,) = await subscribers(store, "a", mode=ChannelMode.BROADCAST)
        asks = (wait(), wait("refused"), receive())
        await a.ask(*asks)
        await tell(store, accept(event("r", "refused"), now=30))
        await tell(store, publish(now=31))
        await tell(store, accept(event("p", "paid"), now=32))
        assert await a.ask(*asks, now=40) == {"refused:1": "r"}
        assert await a.ask(asks[0], asks[2], now=40) == {"jobs:1": "one"}
        assert await a.ask(asks[0], now=40) == {"paid:1": "p"}

    async def test_of_events_of_one_moment_the_first_in_the_log_wins(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        await tell(store, accept(event("r", "refused"), event("p", "paid")))
        assert await a.ask(wait(), wait("refused"), now=40) == {"refused:1": "r"}

    async def test_a_bound_leaves_out_what_came_later(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        bounded = replace(wait(), before=40)
        await tell(store, accept(event("e-1"), now=39))
        await tell(store, accept(event("e-2"), now=40))
        assert await a.ask(bounded, now=50) == {"paid:1": "e-1"}
        assert await a.ask(bounded, now=51) == {}
        assert await a.ask(wait(), now=52) == {"paid:1": "e-2"}

    @pytest.mark.parametrize("registered", [True, False])
    async def test_what_came_after_the_bound_stays_called_for(self, store: Store, *, registered: bool) -> None:
        (a,) = await new_instances(store, "a")
        if registered:
            await a.ask(wait())
        await tell(store, accept(event(), now=45))
        answer = await a.write(now=50, store_calls=(replace(wait(), before=40),))
        assert (answer.replies, answer.caught_up) == ((), False)
        assert await a.matched_waits() == ("paid:1",)
        assert await a.ask(wait(), now=51) == {"paid:1": "e-1"}

    async def test_a_message_that_came_after_the_bound_stays_called_for(self, store: Store) -> None:
        a, b = await subscribers(store, "a", "b")
        await a.ask(receive(since=20), now=20)
        await b.ask(receive(since=21), now=21)
        assert (await tell(store, publish(now=45))).woken == ("a",)
        assert await a.ask(replace(receive(since=20), before=40), now=50) == {}
        assert [await one.matched_waits() for one in (a, b)].count(("jobs:1",)) >= 1, "an instance was woken for it"
        await a.end(now=51)
        assert await b.matched_waits() == ("jobs:1",)

    async def test_a_wait_is_over_if_it_is_due_by_the_bound(self, store: Store) -> None:
        (a,) = await new_instances(store, "a")
        asks = (replace(wait(due=40), before=40), replace(wait("shipped", due=45), before=40))
        assert await a.ask(*asks, now=50) == {"paid:1": EventTimeoutError}
        assert await a.ask(wait("shipped", due=45), now=50) == {"shipped:1": EventTimeoutError}

    # --- messages

    @pytest.mark.parametrize("mode", list(ChannelMode))
    @pytest.mark.parametrize(("at", "matched"), [(49, True), (50, False)])
    async def test_a_message_that_comes_at_the_deadline_is_late(
        self, store: Store, mode: ChannelMode, at: int, *, matched: bool
    ) -> None:
        (a,) = await subscribers(store, "a", mode=mode)
        await a.ask(receive(due=50), now=20, wake_at=50, status=Status.WAITING_FOR_MESSAGE)
        answer = await tell(store, send("a", now=at) if mode is ChannelMode.DIRECT else publish(now=at))
        assert answer.woken == (("a",) if matched else ())
        assert await a.ask(receive(due=50), now=99) == {"jobs:1": "one" if matched else ChannelMessageTimeoutError}
        assert await a.ask(receive(op="jobs:2"), now=99) == ({} if matched else {"jobs:2": "one"})

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
        assert await b.ask(receive(), now=31) == {"jobs:1": "one"}, "b received it first"
        await c.ask(receive(), now=32)
        assert (await tell(store, publish("two", now=60))).woken == ("c",)
        assert await a.ask(receive(due=50), now=61) == {"jobs:1": ChannelMessageTimeoutError}
        assert await c.ask(receive(), now=62) == {"jobs:1": "two"}

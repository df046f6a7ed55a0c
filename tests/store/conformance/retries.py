"""Retries of failed instances."""

from __future__ import annotations

import pytest
from tests.store.conformance.builders import (
    attempt,
    compensation,
    create,
    ending,
    entry,
    journal_kinds,
    request,
    row,
    started,
    transition,
    write,
)

from romancy.model.history import Entry, Kind, Outcome, Role
from romancy.model.status import Status
from romancy.model.transition import Applied, ControlKind, Ending, Refused
from romancy.store.port import Store

RETRY = ControlKind.RETRY
FAILED = Ending(error=b"error", fingerprint="print")


class TestRetries:
    """A retry keeps the successful entries, sets the others aside and makes the instance due."""

    async def test_the_failed_activity_is_set_aside(self, store: Store) -> None:
        await started(store, "a")
        history = (entry(1), entry(2, outcome=Outcome.ERROR))
        await write(store, transition(attempts=(attempt("op-2", is_open=False),)))
        await write(store, ending(status=Status.FAILED, ending=FAILED, history=history))
        assert await write(store, request(RETRY, now=60)) == [Applied()]
        loaded = await store.load("a")
        assert loaded is not None
        assert [one.role for one in loaded.history] == [Role.FED, Role.DISCARDED, Role.FED]
        assert loaded.history[-1] == Entry(3, Kind.RETRY, "retry", Outcome.OK, 60, name="retry")
        assert loaded.attempts == ()
        one = loaded.row
        assert (one.status, one.wake_at, one.ended_at, one.epoch, one.round) == (Status.PENDING, 60, None, 2, 0)
        assert await journal_kinds(store) == ["retry"]

    async def test_results_and_errors_are_cleared(self, store: Store) -> None:
        await started(store, "a")
        await write(store, request(ControlKind.CANCEL), ending(status=Status.FAILED, ending=FAILED, inbox_seen=1))
        await write(store, request(RETRY, now=60))
        stored = await store.get("a")
        assert stored is not None
        assert (stored.input, stored.output, stored.error) == (b"input", None, None)
        # The retry has removed the old cancellation, so this request counts.
        assert await write(store, request(ControlKind.CANCEL)) == [Applied(inbox_version=2)]

    async def test_what_was_compensated_is_done_again_in_a_new_round(self, store: Store) -> None:
        await started(store, "a")
        history = (entry(1), entry(2), entry(3, outcome=Outcome.ERROR), compensation(4, "compensate:op-1"))
        await write(store, ending(status=Status.FAILED, ending=FAILED, history=history))
        await write(store, request(RETRY))
        roles = [one.role for one in await store.history("a", 1, after=0, limit=9)]
        assert roles == [Role.DISCARDED, Role.RETAINED, Role.DISCARDED, Role.DISCARDED, Role.FED]
        assert (await row(store)).round == 1

    @pytest.mark.parametrize(("deadline_at", "kept"), [(59, None), (60, None), (61, 61), (None, None)])
    async def test_a_deadline_that_has_passed_is_lifted(
        self, store: Store, deadline_at: int | None, kept: int | None
    ) -> None:
        await write(store, create(deadline_at=deadline_at), ending(status=Status.FAILED))
        await write(store, request(RETRY, now=60))
        assert (await row(store)).deadline_at == kept

    async def test_the_run_that_failed_is_fenced(self, store: Store) -> None:
        await started(store, "a")
        await write(store, ending(status=Status.FAILED), request(RETRY))
        assert await write(store, transition(new_epoch=2)) == [Refused(Status.PENDING)]

    @pytest.mark.parametrize("status", [Status.COMPLETED, Status.CANCELLED, Status.TERMINATED])
    async def test_only_what_failed_is_retried(self, store: Store, status: Status) -> None:
        await started(store, "a")
        await write(store, ending(status=status))
        assert await write(store, request(RETRY)) == [Refused(status)]
        assert await journal_kinds(store) == []

    @pytest.mark.parametrize("status", [Status.RUNNING, Status.COMPENSATING])
    async def test_what_has_not_ended_is_not_retried(self, store: Store, status: Status) -> None:
        await started(store, "a")
        await write(store, transition(status=status))
        assert await write(store, request(RETRY)) == [Refused(status)]

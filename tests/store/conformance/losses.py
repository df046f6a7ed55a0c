"""Instances whose workers die one after another: the losses are counted, the suspects isolated, and the cause paused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.store.conformance.builders import (
    ME,
    ORDER,
    attempt,
    create,
    ending,
    entry,
    journal_kinds,
    request,
    row,
    started,
    transition,
    worker,
    write,
)

from romancy.clock import MICROS
from romancy.model.instance import InstanceRow
from romancy.model.status import Status
from romancy.model.transition import Applied, AttemptUpdate, ControlKind, JournalNote
from romancy.store.port import Store, SweepResult

LATER = 60 * MICROS


class TestLosses:
    """An instance that has lost too many workers is paused, and no other."""

    async def test_an_instance_that_has_lost_too_many_workers_is_paused(self, store: Store) -> None:
        await started(store, "a")
        assert await lose_worker(store, 90) == ()
        assert await _losses(store) == 1
        assert await claim_again(store, 100) == ["a"]
        assert await lose_worker(store, 110) == ()
        assert await claim_again(store, 120) == ["a"]
        assert await _losses(store) == 2
        await write(store, AttemptUpdate("a", 1, 5, replace(attempt("charge:1"), epoch=5)))

        why = f"its worker died 3 times in charge:1, last on {ME}"
        assert await lose_worker(store, 130) == (("a", why),)

        one = await row(store)
        assert (one.status, one.owner, one.wake_at) == (Status.PAUSED, None, None)
        assert [line.note for line in await store.journal("a")][-2:] == [JournalNote("lost"), JournalNote("pause", why)]
        assert await claim_again(store, LATER) == []
        assert await write(store, transition(epoch=5, now=LATER)) != [Applied(0, owned=True)]

    async def test_a_resumed_instance_begins_with_a_clean_sheet(self, store: Store) -> None:
        await started(store, "a")
        assert [await lose_and_claim_again(store, at) for at in (90, 110)] == [(), ()]
        assert len(await lose_worker(store, 130)) == 1
        await write(store, request(ControlKind.RESUME, now=140))
        assert await claim_again(store, 150) == ["a"]
        assert await _losses(store) == 0
        assert await lose_worker(store, 160) == ()

    async def test_what_is_recorded_in_between_counts_the_losses_anew(self, store: Store) -> None:
        await started(store, "a")
        assert [await lose_and_claim_again(store, at) for at in (90, 110)] == [(), ()]
        epoch = (await row(store)).epoch
        await write(store, transition(epoch=epoch, history=(entry(1),), now=125))
        assert [await lose_and_claim_again(store, at) for at in (130, 150)] == [(), ()]
        epoch = (await row(store)).epoch
        failed = attempt("op-2", is_open=False, ended_at=165, next_at=170)
        await write(store, transition(epoch=epoch, attempts=(failed,), now=165))
        assert [await lose_and_claim_again(store, at) for at in (180, 200)] == [(), ()]
        assert len(await lose_worker(store, 220)) == 1

    async def test_an_attempt_that_was_cut_off_is_no_progress(self, store: Store) -> None:
        await started(store, "a")
        for number, at in ((1, 90), (2, 110)):
            await lose_and_claim_again(store, at)
            epoch = (await row(store)).epoch
            await write(store, transition(epoch=epoch, attempts=(attempt("op-1", number, is_open=False),), now=at + 15))
        assert len(await lose_worker(store, 130)) == 1

    async def test_a_release_is_no_loss(self, store: Store) -> None:
        await started(store, "a")
        for at in range(100, 2000, 100):
            await store.register_worker(worker(heartbeat_at=at))
            assert await store.release(ME, now=at + 10) == 1
            assert await claim_again(store, at + 20) == ["a"]
        assert await _losses(store) == 0
        assert await lose_worker(store, 2000) == ()

    async def test_an_owner_that_is_no_worker_is_no_loss(self, store: Store) -> None:
        await started(store, "a")
        for at in (100, 200, 300, 400):
            assert await store.sweep([], now=at, limit=9, max_losses=3) == SweepResult(1)
            assert len(await store.claim(ME, [ORDER], now=at + 20, limit=9)) == 1
        assert await _losses(store) == 0

    async def test_without_a_limit_nothing_is_counted(self, store: Store) -> None:
        await started(store, "a")
        for at in (100, 200, 300, 400):
            await store.register_worker(worker(heartbeat_at=at))
            assert await store.sweep([(ME, at)], now=at + 5, limit=9) == SweepResult(1)
            assert await claim_again(store, at + 20) == ["a"]
        assert await _losses(store) == 0

    async def test_a_worker_takes_one_suspect_at_a_time(self, store: Store) -> None:
        await started(store, "a", "b", "c")
        await lose_worker(store, 90)
        assert await claim_again(store, 100) == ["a", "b", "c"]
        assert await lose_worker(store, 110) == ()
        await write(store, create("d", owner=None, now=110))
        assert await claim_again(store, 120) == ["a", "d"], "a worker takes no second suspect"
        assert await claim_again(store, 120 + 2 * MICROS) == []

        epoch = (await row(store)).epoch
        await write(store, transition(epoch=epoch, history=(entry(1),), now=130))
        assert await claim_again(store, 130 + 4 * MICROS) == ["b"], "the first is no longer a suspect"

        assert [id for id, _ in await lose_worker(store, 140 + 4 * MICROS)] == ["b"], "it ran alone, so it is the cause"
        assert await claim_again(store, 150 + 6 * MICROS) == ["a", "c", "d"]

    async def test_a_suspect_that_runs_for_long_delays_no_other(self, store: Store) -> None:
        await started(store, "a", "b")
        assert await lose_and_claim_again(store, 90) == ()
        assert await lose_and_claim_again(store, 110) == ()
        assert await claim_again(store, LATER) == ["b"]

        assert await lose_worker(store, LATER + 10) == (), "with two instances the cause is not known"
        assert await claim_again(store, LATER + 20) == ["a"]

    async def test_suspects_in_company_are_paused_in_the_end(self, store: Store) -> None:
        await started(store, "a", "b")
        paused: Sequence[tuple[str, str]] = ()
        for n in range(1, 7):
            assert paused == ()
            paused = await lose_worker(store, n * 3 * LATER)
            await claim_again(store, (n * 3 + 1) * LATER)
            await claim_again(store, (n * 3 + 2) * LATER)
        assert [id for id, _ in paused] == ["a", "b"]

    async def test_a_limit_of_one_pauses_what_was_alone(self, store: Store) -> None:
        await started(store, "a")
        assert [id for id, _ in await lose_worker(store, 90, max_losses=1)] == ["a"]
        await started(store, "b", "c")
        assert await lose_worker(store, 110, max_losses=1) == ()
        assert await claim_again(store, 120) == ["b"]
        assert [id for id, _ in await lose_worker(store, 130, max_losses=1)] == ["b"]

    async def test_pruned_instances_leave_no_count(self, store: Store) -> None:
        await started(store, "a")
        await lose_worker(store, 90)
        await claim_again(store, 100)
        await write(store, ending(epoch=3, now=110))
        assert await store.prune_instances(ended_before=120, limit=9) == 1
        await started(store, "a")
        assert await _losses(store) == 0
        assert await journal_kinds(store) == []


async def lose_worker(store: Store, now: int, *, max_losses: int = 3) -> Sequence[tuple[str, str]]:
    """Let the worker die and sweep it; returns the paused instances with the reasons."""
    await store.register_worker(worker(heartbeat_at=now))
    return (await store.sweep([(ME, now)], now=now, limit=9, max_losses=max_losses)).paused


async def claim_again(store: Store, now: int) -> list[str]:
    """Claim due instances under the name of the dead worker; returns their ids."""
    await store.register_worker(worker(heartbeat_at=now))
    taken: list[InstanceRow] = await store.claim(ME, [ORDER], now=now, limit=9)
    return sorted(one.instance_id for one in taken)


async def lose_and_claim_again(store: Store, now: int) -> Sequence[tuple[str, str]]:
    paused = await lose_worker(store, now)
    await claim_again(store, now + 10)
    return paused


async def _losses(store: Store, instance_id: str = "a") -> int:
    loaded = await store.load(instance_id)
    assert loaded is not None
    return loaded.losses

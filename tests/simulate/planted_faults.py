"""Faults planted in the engine, each of which the simulation must find.

`python -m tests.simulate --plant NAME` runs seeds with one of them until it is found.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from tests.simulate.seed_run import Report, simulate

from romancy.app import App
from romancy.core.commands import Issue
from romancy.core.execution import Execution
from romancy.model.instance import InstanceRow
from romancy.model.messaging import AcceptedEvent, Event
from romancy.model.outbox import Delivered, OutboxRow
from romancy.model.transition import Applied, Transition, WriteResult
from romancy.outbox.relay import Relay
from romancy.store import committer as committers
from romancy.store.committer import Committer
from romancy.store.sql import apply as batches
from romancy.store.sql import channels, events, ownership, transitions, unit_of_work, wakeups
from romancy.store.sql.cursor import Cursor
from romancy.store.sqlite import database, fast_path
from romancy.worker.claimer import Claimer
from romancy.worker.maintenance import Maintenance
from romancy.worker.retries import Retries
from romancy.worker.runner.runner import InstanceRunner
from romancy.worker.worker import Worker, WorkerOptions

Replace = Callable[[object, str, Any], None]


@dataclass(frozen=True)
class PlantedFault:
    """A fault that can be planted in the engine."""

    name: str
    what: str
    """What the fault breaks."""
    plant: Callable[[Replace], None]
    seeds: int = 100
    """Number of seeds that are enough to find it."""
    first: int = 1
    """The first seed to try: for a rare fault, a little below a seed that is known to find it."""


@contextlib.contextmanager
def planted(fault: PlantedFault) -> Iterator[None]:
    """Plant a fault for the duration of the context."""
    with contextlib.ExitStack() as stack:

        def replace_with(where: object, name: str, what: Any) -> None:
            stack.enter_context(mock.patch.object(where, name, what))

        fault.plant(replace_with)
        yield


# --- ownership


def _disable_fast_path(put: Replace) -> None:
    put(database, "is_one_statement", lambda batch: False)
    put(fast_path, "is_step", lambda write: False)
    put(fast_path.SqliteFastPath, "_end", lambda self, write, ending: None)


def _unfenced(put: Replace) -> None:
    _disable_fast_path(put)
    put(transitions, "may_write", lambda state, write: state.length == write.length or write.length is None)


def _no_sweep(put: Replace) -> None:
    async def sweep(self: Maintenance) -> int:
        return 0

    put(Maintenance, "sweep", sweep)


def _no_adoption(put: Replace) -> None:
    async def adopt(self: Claimer) -> None:
        return None

    put(Claimer, "adopt_orphans", adopt)


def _claim_without_epoch(put: Replace) -> None:
    take = ownership.claim

    def stale(cursor: Any, worker: str, ids: Sequence[str], *, now: int) -> list[InstanceRow]:
        rows = take(cursor, worker, ids, now=now)
        for row in rows:
            cursor.raw.execute("UPDATE romancy_instances SET epoch = epoch - 1 WHERE id = ?", (row.instance_id,))
        return [replace(row, epoch=row.epoch - 1) for row in rows]

    put(ownership, "claim", stale)


# --- commits


def _early_acknowledgement(put: Replace) -> None:
    accept = App.accept_events

    async def early(self: App, events: Sequence[Event]) -> list[AcceptedEvent]:
        asyncio.ensure_future(accept(self, events)).add_done_callback(lambda task: task.cancelled() or task.exception())
        return [AcceptedEvent(event.id, event.source, False, ()) for event in events]

    put(App, "accept_events", early)


def _early_start(put: Replace) -> None:
    start = App.start_workflow

    async def early(self: App, wf: Any, /, *args: Any, **kwargs: Any) -> Any:
        asyncio.ensure_future(start(self, wf, *args, **kwargs)).add_done_callback(lambda task: task.exception())
        return None

    put(App, "start_workflow", early)


def _activity_before_commit(put: Replace) -> None:
    take = InstanceRunner.take_transition

    def early(self: InstanceRunner) -> Transition | None:
        taken = take(self)
        launching, self.attempts.starting = self.attempts.starting, []
        self.attempts.launch(self, launching)
        return taken

    put(InstanceRunner, "take_transition", early)


def _unguarded_repetition(put: Replace) -> None:
    """A commit of unknown outcome is repeated without a check whether it took effect."""
    _disable_fast_path(put)
    may_write = transitions.may_write
    put(transitions, "may_write", lambda state, write: may_write(state, write._replace(length=None)))
    put(committers, "_take_transition", _unchecked(committers._take_transition))


def _unchecked(take: Callable[[Any], Transition | None]) -> Callable[[Any], Transition | None]:
    def taken(source: Any) -> Transition | None:
        found = take(source)
        return found if found is None else found._replace(length=None)

    return taken


def _given_up_commit(put: Replace) -> None:
    """A transition that could not be written is dropped."""
    recover = Committer._recover

    async def once(self: Committer, left: Any) -> Any:
        outcome = await recover(self, left)
        self._retries = [pair for pair in self._retries if pair not in left.pairs]
        return outcome

    put(Committer, "_recover", once)


# --- wake-ups


def _lose_notifications(put: Replace) -> None:
    options = App._worker_options

    def never(self: App) -> WorkerOptions:
        return replace(options(self), poll_interval=1e6, horizon=2.0)

    put(App, "_worker_options", never)


def _release_past_arrivals(put: Replace) -> None:
    decide = transitions.apply_transition

    def release_unseen(unit: unit_of_work.UnitOfWork, write: Transition) -> WriteResult:
        state = unit.states.get(write.instance_id)
        answer = decide(unit, write if state is None else write._replace(inbox_seen=state.inbox_version))
        return answer._replace(inbox_version=write.inbox_seen) if isinstance(answer, Applied) else answer

    _disable_fast_path(put)
    put(batches, "apply_transition", release_unseen)
    # The notification within the process would nearly always hide the fault, so it is lost here.
    put(Worker, "wake", lambda self, ids: None)


def _wake_no_instance(put: Replace) -> None:
    for module in (events, channels, wakeups):
        put(module, "match_waits", lambda cursor, waits, seq: [])


# --- messages and effects


def _keep_consumed_messages(put: Replace) -> None:
    def keep(cursor: Cursor, instance_id: str, channel: str, seq: int) -> None:
        cursor.run("drop_delivery", (instance_id, channel, seq))

    put(channels, "take", keep)


def _replayed_effects(put: Replace) -> None:
    effected = Execution._handle_effect

    def again(self: Execution, issue: Issue, recorded: bool) -> None:
        effected(self, issue, recorded)
        if recorded and issue.detail is not None:
            self.effects.append((issue.op, issue.detail))

    put(Execution, "_handle_effect", again)


def _forgotten_attempts(put: Replace) -> None:
    """An activity that failed before a crash starts again with attempt 1."""
    put(Retries, "restore", lambda self, attempts, now: [])


# --- the outbox


def _delivered_in_any_case(put: Replace) -> None:
    put(Relay, "_on_failed", lambda self, row, error: Delivered(row.seq))


def _endless_claim(put: Replace) -> None:
    async def claim(self: Relay, limit: int) -> list[OutboxRow]:
        now = self._clock.now()
        until = now + 10**12
        return await self._store.claim_outbox(self.name, self._claimant, now=now, until=until, limit=limit)

    put(Relay, "_claim", claim)


def find_seed(fault: PlantedFault, first: int | None = None) -> Report | None:
    """The report of the first seed that finds a fault; None if no seed does."""
    with planted(fault):
        beginning = fault.first if first is None else first
        for seed in range(beginning, beginning + fault.seeds):
            report = simulate(seed)
            if report.faults:
                return report
    return None


FAULTS: Sequence[PlantedFault] = (
    PlantedFault("fencing", "a write under an old epoch is made", _unfenced),
    PlantedFault("claim-epoch", "a claim does not raise the epoch", _claim_without_epoch),
    PlantedFault("sweep", "instances of dead workers are not swept", _no_sweep),
    PlantedFault("adoption", "a claim whose answer was lost is never adopted", _no_adoption),
    PlantedFault("early-event", "an event is acknowledged before its commit", _early_acknowledgement),
    PlantedFault("early-start", "a start is acknowledged before its commit", _early_start),
    PlantedFault(
        "early-activity", "an activity begins before the transition that starts it is committed", _activity_before_commit
    ),
    PlantedFault("repetition", "a commit whose outcome is unknown is repeated without a check", _unguarded_repetition),
    PlantedFault("given-up", "a commit that failed is not tried again", _given_up_commit),
    PlantedFault("notifications", "notifications are lost, and workers do not poll", _lose_notifications),
    PlantedFault(
        "release",
        "an instance is released although an item has arrived for it",
        _release_past_arrivals,
        seeds=1200,
        first=345,
    ),
    PlantedFault("unmatched", "an arrival wakes no waiting instance", _wake_no_instance),
    PlantedFault("message-twice", "a consumed message stays available", _keep_consumed_messages),
    PlantedFault("replayed-effects", "every replay emits effects again", _replayed_effects),
    PlantedFault("attempts", "failed attempts are forgotten by a crash", _forgotten_attempts),
    PlantedFault("delivered", "an event that the broker refused counts as delivered", _delivered_in_any_case),
    PlantedFault("outbox-claim", "events claimed by a dead relay stay claimed", _endless_claim),
)
"""Every fault is found by `tests/simulate/test_planted.py`."""

"""Faults planted in the engine, each of which the simulation must find: a list that can be run.

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
from romancy.worker.runner import InstanceRunner
from romancy.worker.worker import Worker, WorkerOptions

Replace = Callable[[object, str, Any], None]


@dataclass(frozen=True)
class Planted:
    """A fault."""

    name: str
    what: str
    """What is broken, in words."""
    plant: Callable[[Replace], None]
    seeds: int = 100
    """So many seeds are enough to find it."""
    first: int = 1
    """The first of them: where a fault shows in one of hundreds, a search begins shortly before one that is known."""


@contextlib.contextmanager
def planted(fault: Planted) -> Iterator[None]:
    """The engine with a fault."""
    with contextlib.ExitStack() as stack:

        def replace_with(where: object, name: str, what: Any) -> None:
            stack.enter_context(mock.patch.object(where, name, what))

        fault.plant(replace_with)
        yield


# --- ownership


def _only_the_long_way(put: Replace) -> None:
    put(database, "is_one_statement", lambda batch: False)
    put(fast_path, "is_step", lambda write: False)
    put(fast_path.SqliteFastPath, "_end", lambda self, write, ending: None)


def _unfenced(put: Replace) -> None:
    _only_the_long_way(put)
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


def _hasty_acknowledgement(put: Replace) -> None:
    accept = App.accept_events

    async def hasty(self: App, events: Sequence[Event]) -> list[AcceptedEvent]:
        asyncio.ensure_future(accept(self, events)).add_done_callback(lambda task: task.cancelled() or task.exception())
        return [AcceptedEvent(event.id, event.source, False, ()) for event in events]

    put(App, "accept_events", hasty)


def _hasty_start(put: Replace) -> None:
    start = App.start_workflow

    async def hasty(self: App, wf: Any, /, *args: Any, **kwargs: Any) -> Any:
        asyncio.ensure_future(start(self, wf, *args, **kwargs)).add_done_callback(lambda task: task.exception())
        return None

    put(App, "start_workflow", hasty)


def _activity_before_commit(put: Replace) -> None:
    take = InstanceRunner.take_transition

    def hasty(self: InstanceRunner) -> Transition | None:
        taken = take(self)
        launching, self._starts_after_commit = self._starts_after_commit, []
        self._launch(launching)
        return taken

    put(InstanceRunner, "take_transition", hasty)


def _unguarded_repetition(put: Replace) -> None:
    """A commit whose outcome is not known is written again as it is."""
    _only_the_long_way(put)
    may_write = transitions.may_write
    put(transitions, "may_write", lambda state, write: may_write(state, write._replace(length=None)))
    put(committers, "_take_transition", _unchecked(committers._take_transition))


def _unchecked(take: Callable[[Any], Transition | None]) -> Callable[[Any], Transition | None]:
    def taken(source: Any) -> Transition | None:
        found = take(source)
        return found if found is None else found._replace(length=None)

    return taken


def _given_up_commit(put: Replace) -> None:
    """A transition that could not be written is forgotten."""
    write = Committer._write

    async def once(self: Committer, calls: Any, pairs: Any) -> None:
        await write(self, calls, pairs)
        self._retries = [pair for pair in self._retries if pair not in pairs]

    put(Committer, "_write", once)


# --- wake-ups


def _deaf(put: Replace) -> None:
    options = App._worker_options

    def never(self: App) -> WorkerOptions:
        return replace(options(self), poll_interval=1e6, horizon=2.0)

    put(App, "_worker_options", never)


def _careless_release(put: Replace) -> None:
    decide = transitions.apply_transition

    def careless(books: unit_of_work.UnitOfWork, write: Transition) -> WriteResult:
        state = books.states.get(write.instance_id)
        answer = decide(books, write if state is None else write._replace(inbox_seen=state.inbox_version))
        return answer._replace(inbox_version=write.inbox_seen) if isinstance(answer, Applied) else answer

    _only_the_long_way(put)
    put(batches, "apply_transition", careless)
    # The hint within the process nearly always comes in time; it is only a hint, and here it is lost.
    put(Worker, "wake", lambda self, ids: None)


def _nobody_called(put: Replace) -> None:
    for module in (events, channels, wakeups):
        put(module, "match_waits", lambda cursor, waits, seq: [])


# --- messages and effects


def _message_for_two(put: Replace) -> None:
    def generous(cursor: Cursor, instance_id: str, channel: str, seq: int) -> None:
        cursor.run("drop_delivery", (instance_id, channel, seq))

    put(channels, "take", generous)


def _replayed_effects(put: Replace) -> None:
    effected = Execution._handle_effect

    def again(self: Execution, issue: Issue, recorded: bool) -> None:
        effected(self, issue, recorded)
        if recorded and issue.detail is not None:
            self.effects.append((issue.op, issue.detail))

    put(Execution, "_handle_effect", again)


def _forgotten_attempts(put: Replace) -> None:
    """An activity that failed before a crash begins again with its first attempt."""
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


def hunt(fault: Planted, first: int | None = None) -> Report | None:
    """The first seed that finds a fault; None if none does."""
    with planted(fault):
        beginning = fault.first if first is None else first
        for seed in range(beginning, beginning + fault.seeds):
            report = simulate(seed)
            if report.faults:
                return report
    return None


FAULTS: Sequence[Planted] = (
    Planted("fencing", "a write under an old epoch is made", _unfenced),
    Planted("claim-epoch", "a claim does not raise the epoch", _claim_without_epoch),
    Planted("sweep", "nobody looks after the instances of the dead", _no_sweep),
    Planted("adoption", "a claim whose answer was lost is never taken up", _no_adoption),
    Planted("hasty-event", "an event is acknowledged before its commit", _hasty_acknowledgement),
    Planted("hasty-start", "a start is acknowledged before its commit", _hasty_start),
    Planted("hasty-activity", "an activity begins before what it follows from is committed", _activity_before_commit),
    Planted("repetition", "a commit whose outcome is unknown is made twice", _unguarded_repetition),
    Planted("given-up", "a commit that failed is not tried again", _given_up_commit),
    Planted("deaf", "notifications are lost, and nobody polls", _deaf),
    Planted("release", "an instance is let go although something has come for it", _careless_release, seeds=1200, first=345),
    Planted("uncalled", "whoever waits is not called", _nobody_called),
    Planted("message-twice", "a message is consumed and stays", _message_for_two),
    Planted("replayed-effects", "what was said is said again by every replay", _replayed_effects),
    Planted("attempts", "failed attempts are forgotten by a crash", _forgotten_attempts),
    Planted("delivered", "an event that the broker refused counts as delivered", _delivered_in_any_case),
    Planted("outbox-claim", "what a dead relay had claimed stays claimed", _endless_claim),
)
"""All of them; each is found by `tests/simulate/test_planted.py`."""

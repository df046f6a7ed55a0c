"""Explanations of why an instance waits."""

from __future__ import annotations

import json
from typing import Any

from tests.admin.test_filters import NOW, row

from romancy import RetryPolicy, Status
from romancy.admin.explain import CandidateEvent, ChannelFacts, Facts, explain, format_span, pending_compensations
from romancy.admin.records import Explanation, Health
from romancy.model.history import AttemptRow, Entry, Kind, Outcome, Role
from romancy.model.instance import StoredInstance, WorkerRow
from romancy.model.messaging import Event
from romancy.model.transition import JournalNote, Wait, WaitKind
from romancy.serde.failure import encode_failure
from romancy.serde.messaging import event_json
from romancy.store.port import JournalEntry

S = 1_000_000
LEASE = 30 * S


def a_worker(*, silent: int = 0, kinds: tuple[str, ...] = ("checkout",)) -> WorkerRow:
    return WorkerRow("w/1", "w", "shop", "host", 1, "3.13", json.dumps([[kind, ""] for kind in kinds]), 0, NOW - silent)


def stored(waits: tuple[Wait, ...] = (), error: bytes | None = None, **more: Any) -> StoredInstance:
    return StoredInstance(row(**more), b"{}", None, error, waits)


def told(instance: StoredInstance, *workers: WorkerRow, **more: Any) -> Explanation:
    return explain(Facts(instance, NOW, LEASE, workers or (a_worker(),), **more))


def paid(data: object = None, *, subject: str | None = None, at: int = NOW - S, **more: Any) -> CandidateEvent:
    return CandidateEvent(at, event_json(Event("e", "/bank", "paid", json.dumps(data).encode(), subject=subject)), **more)


WAIT = Wait("paid:1", WaitKind.EVENT, NOW - S, key="paid", subject="42", match=b'{"order.id": 7}')


def evidence_of(wait: Wait, *seen: CandidateEvent, **more: Any) -> tuple[str, ...]:
    waiting = stored((wait,), status=Status.WAITING_FOR_EVENT)
    return told(waiting, events={"paid": seen}, **more).wakes[0].evidence


def test_a_wait_for_an_event_shows_what_came_near() -> None:
    (subject,) = evidence_of(WAIT, paid({"order": {"id": 7}}, subject="43"))
    assert subject.endswith("its subject is '43', not '42'.")
    (data,) = evidence_of(WAIT, paid({"order": {"id": 8}}, subject="42"))
    assert data.endswith("its order.id is 8, not 7.")
    (missing,) = evidence_of(WAIT, paid({}, subject="42"))
    assert missing.endswith("its order.id is missing, not 7.")
    (other,) = evidence_of(WAIT, paid({}, target="another"))
    assert other.endswith("it was addressed to 'another'.")
    (mine,) = evidence_of(WAIT, paid({}, consumed=True))
    assert mine.endswith("this instance has already consumed it.")
    (early,) = evidence_of(WAIT, paid({}, predates_instance=True))
    assert early.endswith("that was before this instance started.")
    (large,) = evidence_of(WAIT, CandidateEvent(NOW, None))
    assert large.endswith("it is too large to check whether it matches.")


def test_a_wait_for_which_nothing_came() -> None:
    (nothing,) = evidence_of(WAIT)
    assert nothing.startswith("No event of type 'paid' is stored")


def test_a_wait_offers_the_event_that_it_waits_for() -> None:
    found = told(stored((WAIT,), status=Status.WAITING_FOR_EVENT))
    assert found.verdict is Health.HEALTHY
    assert found.because == "Waiting for event 'paid' with subject '42' whose data matches {\"order.id\": 7}."
    send = found.remedies[0]
    assert (send.name, send.values["subject"], send.values["data"]) == ("send_event", "42", {"order": {"id": 7}})


def test_a_wait_without_workers_is_stuck() -> None:
    found = told(stored((WAIT,), status=Status.WAITING_FOR_EVENT), a_worker(silent=LEASE))
    assert found.verdict is Health.STUCK
    assert "no worker is running" in found.because


def test_a_wait_for_a_message_shows_the_channel() -> None:
    waiting = stored((Wait("jobs:1", WaitKind.MESSAGE, NOW, key="jobs"),), status=Status.WAITING_FOR_MESSAGE)
    found = told(waiting, channels={"jobs": ChannelFacts(True, "competing", 0, 3)})
    assert found.wakes[0].evidence == (
        "The channel is in competing mode.",
        "The channel has no unread messages.",
        "3 other subscribers compete for its messages.",
    )


def a_failure(number: int, **more: Any) -> AttemptRow:
    error = encode_failure(TimeoutError("no answer"))
    given: dict[str, Any] = {"ended_at": NOW - S, "next_at": NOW + 8 * S}
    return AttemptRow(
        "charge:1", number, "charge", False, "w/1", 1, "", NOW - 9 * S, NOW - 9 * S, error=error, **(given | more)
    )


def test_backing_off_says_which_attempt_failed_with_what() -> None:
    wait = Wait("charge:1", WaitKind.RETRY, NOW - 9 * S, NOW + 8 * S)
    waiting = stored((wait,), status=Status.WAITING_FOR_TIMER, retrying_since=NOW - 9 * S, wake_at=NOW + 8 * S)
    found = told(waiting, attempts=(a_failure(3),), most_attempts={"charge:1": RetryPolicy().max_attempts})
    assert found.verdict is Health.SLOW
    assert found.because == "Waiting to retry charge:1: attempt 3 of 5 failed with TimeoutError: no answer."
    assert found.wakes[0].due is not None
    running = stored(owner="w/1", retrying_since=NOW - 9 * S)
    held = told(running, attempts=(a_failure(3),))
    assert (held.verdict, held.because) == (
        Health.SLOW,
        "Running on w/1; attempt 3 of charge:1 failed with TimeoutError: no answer.",
    )


def test_running_on_a_worker_that_is_alive_or_silent() -> None:
    running = stored(owner="w/1")
    assert told(running).verdict is Health.HEALTHY
    silent = told(running, a_worker(silent=21 * S))
    assert silent.verdict is Health.STUCK
    assert "silent for 21 s; its lease ends in 9.0 s" in silent.because
    gone = told(running, WorkerRow("other/2", "", "", "", 1, "", "[]", 0, NOW))
    assert "no longer exists" in gone.because


def test_running_much_longer_than_usual() -> None:
    found = told(stored(owner="w/1", started_at=NOW - 3600 * S), usual_duration=10.0)
    assert found.verdict is Health.SLOW
    assert found.because == "Running on w/1 for 1 h; 95% of this workflow's instances end within 10 s."


def test_unclaimed_without_a_worker_or_without_one_that_has_the_workflow() -> None:
    due = stored(status=Status.PENDING, wake_at=NOW - 60 * S)
    assert told(due, a_worker(silent=LEASE)).because == "Ready to run, but no worker is running."
    unknown = told(due, a_worker(kinds=("nap",)))
    assert unknown.verdict is Health.STUCK
    assert unknown.because == "Ready to run, but no running worker has workflow checkout."
    assert unknown.wakes[0].evidence == ("Worker w/1 is alive and does not have the workflow.",)
    full = told(due)
    assert full.verdict is Health.STUCK
    assert "Ready to run for 1 min" in full.because
    assert told(stored(status=Status.PENDING, wake_at=NOW)).verdict is Health.HEALTHY
    assert told(stored(status=Status.WAITING_FOR_TIMER, wake_at=NOW - 2 * S)).verdict is Health.SLOW


def test_paused_and_blocked_say_why() -> None:
    paused = told(stored(status=Status.PAUSED), journal=[JournalEntry(NOW, JournalNote("pause", "holiday"), "ann", 1)])
    assert paused.because.endswith(" by ann: holiday.")
    why = "its worker died 3 times in charge:1, last on w1"
    set_aside = told(stored(status=Status.PAUSED), journal=[JournalEntry(NOW, JournalNote("pause", why), "", 1)])
    assert set_aside.because.endswith(f": {why}.")
    assert [remedy.name for remedy in set_aside.remedies] == ["resume", "cancel"]
    blocked = told(
        stored(status=Status.BLOCKED), journal=[JournalEntry(NOW, JournalNote("blocked", "charge, not ship"), "w", 1)]
    )
    assert blocked.because == "Blocked: charge, not ship."
    assert [one.name for one in blocked.remedies] == ["deploy", "resume", "terminate"]


def test_failed_names_the_operation_and_what_was_undone() -> None:
    error = encode_failure(ValueError("no"))
    entries = (
        Entry(1, Kind.ACTIVITY, "book:1", Outcome.OK, 1, "book"),
        Entry(2, Kind.ACTIVITY, "charge:1", Outcome.ERROR, 2, "charge"),
        Entry(3, Kind.COMPENSATION, "compensate:book:1", Outcome.ERROR, 3, "unbook", Role.OUT_OF_BAND, value=error),
    )
    found = told(stored(error=error, status=Status.FAILED, ended_at=NOW), entries=entries)
    assert (found.verdict, found.because) == (Health.ENDED, "Failed in charge:1: ValueError: no.")
    assert found.wakes[0].evidence == ("book:1 could not be compensated by unbook: ValueError: no.",)
    assert [one.name for one in found.remedies] == ["retry"]


def test_compensating_tells_what_is_left() -> None:
    entries = (
        Entry(1, Kind.ACTIVITY, "book:1", Outcome.OK, 1, "book"),
        Entry(2, Kind.ACTIVITY, "look:1", Outcome.OK, 1, "look"),
        Entry(3, Kind.ACTIVITY, "charge:1", Outcome.OK, 2, "charge"),
        Entry(4, Kind.COMPENSATION, "compensate:charge:1", Outcome.OK, 3, "refund", Role.OUT_OF_BAND),
    )
    with_compensation = frozenset({"book", "charge"})
    assert [entry.op for entry in pending_compensations(entries, with_compensation)] == ["book:1"]
    compensating = stored(status=Status.COMPENSATING, owner="w/1")
    found = told(compensating, entries=entries, compensable=with_compensation)
    assert found.wakes[-1].evidence == ("charge:1 was compensated by refund.", "book:1 is still to be compensated.")


def test_spans_as_people_say_them() -> None:
    assert [format_span(seconds) for seconds in (-1, 2.04, 59, 60, 3700, 90061)] == [
        "0.0 s",
        "2.0 s",
        "59 s",
        "1 min",
        "1 h 1 min",
        "1 d 1 h",
    ]

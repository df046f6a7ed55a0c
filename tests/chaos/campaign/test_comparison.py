"""Tests of the campaign's comparison, on small client logs and database states written by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from tests.chaos.campaign import campaign_workflows
from tests.chaos.campaign.client_log import CallKind, CallRecord, Line, State, call_records
from tests.chaos.campaign.comparison import Sort, compare
from tests.chaos.campaign.database_state import DatabaseState, Instance, Receipt, Row

ORDER = "order-c0-7"
FAILED = "order-c0-8"
WORDS = [f"{ORDER}.{word}#1" for word in ("one", "two", "bye")]


def _call_lines(kind: CallKind, id: str, about: str, at: float, *states: State, why: str = "") -> list[Line]:
    """The lines of one call: a request and an answer for each state."""
    lines: list[Line] = []
    for state in states or (State.DONE,):
        lines += [Line(kind, id, State.ASKED, at, about), Line(kind, id, state, at + 0.5, about, why)]
    return lines


def _client_lines() -> list[Line]:
    """The client logs of a small campaign without faults."""
    lines: list[Line] = []
    for name, number in campaign_workflows.LONG_RUNNING.items():
        for one in range(number):
            lines += _call_lines(CallKind.START, f"{name}-{one}", "", 0)
    for id, fate in ((ORDER, campaign_workflows.OK), (FAILED, campaign_workflows.FAILS)):
        lines += _call_lines(CallKind.START, id, fate, 1)
        lines += _call_lines(CallKind.EVENT, f"paid-{id}", campaign_workflows.PAID, 2)
        for at, word in enumerate(("one", "two", "bye"), 3):
            lines += _call_lines(CallKind.MESSAGE, f"{id}.{word}#1", campaign_workflows.DESK, at)
    lines += _call_lines(CallKind.EVENT, "parcel-c0-1", campaign_workflows.PARCEL, 6)
    lines += _call_lines(CallKind.EVENT, "parcel-c0-1-wrong", "wrong", 6, State.REFUSED, why="400")
    for at in (7, 8):
        lines += _call_lines(CallKind.MESSAGE, f"news-c0.{at}#1", campaign_workflows.NEWS, at)
        lines += _call_lines(CallKind.MESSAGE, f"letters-c0.{at}#1", campaign_workflows.LETTERS, at)
    return lines


def _database() -> DatabaseState:
    """The database of that campaign."""
    found = DatabaseState()
    for name, number in campaign_workflows.LONG_RUNNING.items():
        for one in range(number):
            found.instances[f"{name}-{one}"] = Instance(name, "completed", 2)
    found.instances[ORDER] = Instance("order", "completed", {**campaign_workflows.expected(7), "words": WORDS})
    found.instances[FAILED] = Instance("order", "failed")
    found.instances["some-id"] = Instance(campaign_workflows.PARCEL, "completed", "parcel-c0-1")
    found.events = [("client", f"paid-{ORDER}"), ("client", f"paid-{FAILED}"), ("client", "parcel-c0-1")]
    found.events += [(campaign_workflows.SOURCE, f"finished-{ORDER}")]
    found.consumed = [Receipt(id, "order", campaign_workflows.PAID, f"paid-{id}") for id in (ORDER, FAILED)]
    found.consumed += [Receipt("some-id", campaign_workflows.PARCEL, campaign_workflows.PARCEL, "parcel-c0-1")]
    found.consumed += [Receipt("event_counter-0", "event_counter", campaign_workflows.FINISHED, f"finished-{ORDER}")]
    for id in (ORDER, FAILED):
        found.messages += [Receipt(id, "order", campaign_workflows.DESK, f"{id}.{word}#1") for word in ("one", "two", "bye")]
    for reader in ("reader-0", "reader-1"):
        found.messages += [Receipt(reader, "reader", campaign_workflows.NEWS, f"news-c0.{number}#1") for number in (7, 8)]
    taken = ["letters-c0.7#1", "letters-c0.8#1", f"letter {ORDER}"]
    found.messages += [Receipt("clerk-0", "clerk", campaign_workflows.LETTERS, letter) for letter in taken]
    found.rows = [Row(ORDER, "book", "k1", "book 7"), Row(FAILED, "book", "k2", "book 8"), Row(FAILED, "unbook", "k3", "u")]
    found.rows += [Row("clerk-0", "file", f"f{letter}", letter) for letter in taken]
    found.rows += [Row("some-id", "unpack", "p1", "parcel-c0-1")]
    for ticker in ("ticker-0", "ticker-1"):
        found.rows += [Row(ticker, "tick", f"{ticker}{number}", f"tick {number}") for number in (1, 2)]
    found.recorded = Counter((row.instance, row.name) for row in found.rows)
    return found


def test_a_campaign_without_faults_has_none() -> None:
    assert compare(_client_lines(), _database()) == []


# --- faults in the database

Change = Callable[[DatabaseState], object]


def _replace_instance(id: str, **changes: object) -> Change:
    return lambda found: found.instances.update({id: found.instances[id]._replace(**changes)})  # type: ignore[arg-type]


def _swap_words(found: DatabaseState) -> None:
    position = next(n for n, one in enumerate(found.messages) if one.id == WORDS[0])
    found.messages[position : position + 2] = reversed(found.messages[position : position + 2])


def _lose_row(name: str) -> Change:
    def lose(found: DatabaseState) -> None:
        found.rows.remove(next(row for row in found.rows if row.name == name))

    return lose


def _lose_with_record(name: str) -> Change:
    def lose(found: DatabaseState) -> None:
        row = next(row for row in found.rows if row.name == name)
        found.rows.remove(row)
        del found.recorded[row.instance, row.name]

    return lose


CHANGES: list[tuple[str, Change, Sort]] = [
    ("an instance is missing", lambda found: found.instances.pop("clerk-3"), Sort.LOST),
    ("an order has not ended", _replace_instance(ORDER, status="running"), Sort.LOST),
    ("an order has failed by itself", _replace_instance(ORDER, status="failed"), Sort.WRONG),
    (
        "an order has not failed",
        _replace_instance(FAILED, status="completed", output=campaign_workflows.expected(8)),
        Sort.WRONG,
    ),
    ("an order was cancelled without a request", _replace_instance(ORDER, status="cancelled"), Sort.WRONG),
    ("an order returns something else", _replace_instance(ORDER, output={}), Sort.WRONG),
    ("a long-running workflow has failed", _replace_instance("clerk-1", status="failed"), Sort.WRONG),
    (
        "an instance was started without a request",
        lambda found: found.instances.update(x=Instance("clerk", "completed")),
        Sort.UNASKED,
    ),
    ("an event is missing", lambda found: found.events.pop(0), Sort.LOST),
    ("an event is stored twice", lambda found: found.events.append(found.events[0]), Sort.DOUBLED),
    ("an event was sent by no client", lambda found: found.events.append(("client", "x")), Sort.UNASKED),
    ("an event has another source", lambda found: found.events.append(("x", "paid")), Sort.UNASKED),
    ("an invalid event is stored", lambda found: found.events.append(("client", "parcel-c0-1-wrong")), Sort.REFUSED),
    ("an event was not consumed", lambda found: found.consumed.pop(0), Sort.LOST),
    ("an event was consumed twice", lambda found: found.consumed.append(found.consumed[0]), Sort.DOUBLED),
    (
        "an order was paid by the event of another",
        lambda found: found.consumed.append(Receipt(ORDER, "order", campaign_workflows.PAID, f"paid-{FAILED}")),
        Sort.WRONG,
    ),
    ("a parcel was not started", lambda found: found.instances.pop("some-id"), Sort.LOST),
    ("a parcel has no output", _replace_instance("some-id", output=None), Sort.LOST),
    (
        "a parcel was started twice",
        lambda found: found.instances.update(other=Instance(campaign_workflows.PARCEL, "completed", "parcel-c0-1")),
        Sort.DOUBLED,
    ),
    (
        "a parcel was sent by no client",
        lambda found: found.instances.update(other=Instance(campaign_workflows.PARCEL, "completed", "x")),
        Sort.UNASKED,
    ),
    ("a word was not received", lambda found: found.messages.pop(0), Sort.LOST),
    ("a word was received twice", lambda found: found.messages.append(found.messages[0]), Sort.DOUBLED),
    (
        "a word was received by another order",
        lambda found: found.messages.append(Receipt(ORDER, "order", campaign_workflows.DESK, f"{FAILED}.one#1")),
        Sort.UNASKED,
    ),
    ("words came out of order", _swap_words, Sort.DISORDER),
    ("news were not received by one reader", lambda found: found.messages.remove(_news(found)), Sort.LOST),
    ("news were received twice by one reader", lambda found: found.messages.append(_news(found)), Sort.DOUBLED),
    (
        "news that no client published",
        lambda found: found.messages.append(Receipt("reader-0", "reader", campaign_workflows.NEWS, "news-c0.99#1")),
        Sort.UNASKED,
    ),
    (
        "a letter was received by two clerks",
        lambda found: found.messages.append(Receipt("clerk-1", "clerk", campaign_workflows.LETTERS, "letters-c0.7#1")),
        Sort.DOUBLED,
    ),
    (
        "a letter that no client published",
        lambda found: found.messages.append(Receipt("clerk-1", "clerk", campaign_workflows.LETTERS, "letters-c0.99#1")),
        Sort.UNASKED,
    ),
    (
        "an order's letter was received twice",
        lambda found: found.messages.append(Receipt("clerk-1", "clerk", campaign_workflows.LETTERS, f"letter {ORDER}")),
        Sort.DOUBLED,
    ),
    ("an order's letter is missing", lambda found: found.messages.pop(), Sort.LOST),
    (
        "a failed order has published a letter",
        lambda found: found.messages.append(Receipt("clerk-1", "clerk", campaign_workflows.LETTERS, f"letter {FAILED}")),
        Sort.UNASKED,
    ),
    (
        "a letter of no order",
        lambda found: found.messages.append(Receipt("clerk-1", "clerk", campaign_workflows.LETTERS, "letter order-x-1")),
        Sort.UNASKED,
    ),
    ("a report was not sent", lambda found: found.events.pop(), Sort.LOST),
    ("a report was not counted", lambda found: found.consumed.pop(), Sort.LOST),
    ("a row is missing", _lose_row("file"), Sort.LOST),
    ("a row is stored twice", lambda found: found.rows.append(found.rows[0]), Sort.DOUBLED),
    (
        "a letter was filed twice",
        lambda found: found.rows.append(Row("clerk-1", "file", "another key", "letters-c0.7#1")),
        Sort.DOUBLED,
    ),
    ("a booking was never made", _lose_with_record("book"), Sort.WRONG),
    ("a booking was not compensated", _lose_with_record("unbook"), Sort.LOST),
    ("a tick is missing", _lose_with_record("tick"), Sort.LOST),
    ("a tick too many", lambda found: found.rows.append(Row("ticker-0", "tick", "new", "tick 3")), Sort.UNASKED),
    ("a tick came twice", lambda found: found.rows.append(Row("ticker-0", "tick", "new", "tick 2")), Sort.DOUBLED),
    ("a violated invariant", lambda found: found.broken.append("recorded twice"), Sort.BROKEN),
]


def _news(found: DatabaseState) -> Receipt:
    return next(one for one in found.messages if one.about == campaign_workflows.NEWS)


@pytest.mark.parametrize(("change", "sort"), [pytest.param(*rest, id=name) for name, *rest in CHANGES])
def test_a_fault_is_found(change: Change, sort: Sort) -> None:
    found = _database()
    change(found)
    assert sort in {fault.sort for fault in compare(_client_lines(), found)}


# --- what clients know


def _sorts(lines: list[Line], found: DatabaseState) -> set[Sort]:
    return {fault.sort for fault in compare(lines, found)}


def test_a_request_of_unknown_outcome_may_be_done_or_not() -> None:
    found = _database()
    unknown = _call_lines(CallKind.MESSAGE, "news-c0.5#1", campaign_workflows.NEWS, 5, State.UNKNOWN)
    unknown += _call_lines(CallKind.EVENT, "parcel-c0-5", campaign_workflows.PARCEL, 5, State.UNKNOWN)
    unknown += _call_lines(CallKind.START, "order-c0-99", campaign_workflows.OK, 5, State.UNKNOWN)
    assert _sorts([*_client_lines(), *unknown], found) == set()
    found.messages.insert(0, Receipt("reader-0", "reader", campaign_workflows.NEWS, "news-c0.5#1"))
    found.events.append(("client", "parcel-c0-5"))
    found.instances["another"] = Instance(campaign_workflows.PARCEL, "completed", "parcel-c0-5")
    assert _sorts([*_client_lines(), *unknown], found) == set()
    found.messages.insert(0, Receipt("reader-0", "reader", campaign_workflows.NEWS, "news-c0.5#1"))
    assert _sorts([*_client_lines(), *unknown], found) == {Sort.DOUBLED}


def test_what_was_asked_for_and_never_answered_is_unknown() -> None:
    lines = [Line(CallKind.EVENT, "e", State.ASKED, 1, campaign_workflows.PAID)]
    assert call_records(lines)[CallKind.EVENT, "e"].unknown
    assert call_records([*lines, Line(CallKind.EVENT, "e", State.REFUSED, 2, campaign_workflows.PAID, "503")])[
        CallKind.EVENT, "e"
    ].cannot_be


def test_what_was_refused_and_then_done_is_done() -> None:
    lines = _call_lines(CallKind.EVENT, "e", campaign_workflows.PAID, 1, State.REFUSED, State.DONE, why="503")
    assert call_records(lines)[CallKind.EVENT, "e"] == CallRecord(
        CallKind.EVENT, "e", campaign_workflows.PAID, 1, 1.5, False, "503"
    )
    assert not call_records(lines)[CallKind.EVENT, "e"].cannot_be


@pytest.mark.parametrize(
    ("kind", "id", "about"),
    [
        (CallKind.START, "order-c0-9", campaign_workflows.OK),
        (CallKind.EVENT, "paid-order-c0-9", campaign_workflows.PAID),
        (CallKind.MESSAGE, "order-c0-9.one#1", campaign_workflows.DESK),
        (CallKind.CANCEL, "order-c0-9", ""),
    ],
)
def test_what_was_refused_must_not_be_done(kind: CallKind, id: str, about: str) -> None:
    found, started = _database(), _call_lines(CallKind.START, "order-c0-9", campaign_workflows.OK, 1)
    found.instances["order-c0-9"] = Instance("order", "cancelled")
    found.events.append(("client", "paid-order-c0-9"))
    found.messages.append(Receipt("order-c0-9", "order", campaign_workflows.DESK, "order-c0-9.one#1"))
    refused = _call_lines(kind, id, about, 1, State.REFUSED, why="503")
    assert Sort.REFUSED in _sorts([*_client_lines(), *(refused if kind is CallKind.START else [*started, *refused])], found)


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_a_cancellation_that_was_acknowledged_happens(status: str) -> None:
    found = _database()
    found.instances[ORDER] = found.instances[ORDER]._replace(status=status)
    assert Sort.LOST in _sorts([*_client_lines(), *_call_lines(CallKind.CANCEL, ORDER, "", 9)], found)


@pytest.mark.parametrize("status", ["completed", "cancelled"])
def test_a_cancellation_of_unknown_outcome_may_happen(status: str) -> None:
    found = _database()
    found.instances[ORDER] = found.instances[ORDER]._replace(status=status)
    unknown = _call_lines(CallKind.CANCEL, ORDER, "", 9, State.UNKNOWN, State.REFUSED, why="409")
    found.rows += [Row(ORDER, "unbook", "k9", "u")] if status == "cancelled" else []
    found.recorded = Counter((row.instance, row.name) for row in found.rows)
    assert _sorts([*_client_lines(), *unknown], found) == set()


@pytest.mark.parametrize(
    ("kind", "id", "about"),
    [
        (CallKind.START, "clerk-0", ""),
        (CallKind.EVENT, f"paid-{ORDER}", campaign_workflows.PAID),
        (CallKind.MESSAGE, WORDS[0], campaign_workflows.DESK),
        (CallKind.MESSAGE, "news-c0.7#1", campaign_workflows.NEWS),
    ],
)
def test_a_valid_request_must_not_be_refused(kind: CallKind, id: str, about: str) -> None:
    refused = _call_lines(kind, id, about, 9, State.REFUSED, why="409 no")
    assert Sort.WRONG in _sorts([*_client_lines(), *refused], _database())


def test_an_invalid_event_must_not_be_accepted() -> None:
    assert Sort.WRONG in _sorts(
        [*_client_lines(), *_call_lines(CallKind.EVENT, "parcel-c0-2-wrong", "wrong", 9)], _database()
    )


def test_concurrent_messages_have_no_order() -> None:
    found = _database()
    _swap_words(found)
    together = [
        Line(line.kind, line.id, line.state, 3.1 if line.state is State.ASKED else 3.2, line.about)
        if line.id in WORDS
        else line
        for line in _client_lines()
    ]
    assert compare(together, found) == []

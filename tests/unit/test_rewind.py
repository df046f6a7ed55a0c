"""The roles that a retry of an instance gives to its entries."""

from __future__ import annotations

from itertools import product

import pytest

from romancy.core.rewind import Rewind, rewind
from romancy.model.history import EFFECTS, STORE_CALLS, TIMEOUT_TIMER, Entry, Kind, Outcome, Role

OK, ERROR, CANCELLED = Outcome.OK, Outcome.ERROR, Outcome.CANCELLED
FED, OUT_OF_BAND, KEPT, UNDONE = Role.FED, Role.OUT_OF_BAND, Role.RETAINED, Role.DISCARDED


def activity(seq: int, outcome: Outcome = OK, *, role: Role = FED, op: str = "") -> Entry:
    return Entry(seq, Kind.ACTIVITY, op or f"op-{seq}", outcome, seq, role=role)


def other(seq: int, kind: Kind, *, op: str = "", outcome: Outcome = OK, role: Role = FED) -> Entry:
    return Entry(seq, kind, op or f"op-{seq}", outcome, seq, role=role)


def undo(seq: int, of: str, outcome: Outcome = OK, *, role: Role = OUT_OF_BAND) -> Entry:
    return other(seq, Kind.COMPENSATION, op=f"compensate:{of}", outcome=outcome, role=role)


def test_nothing_happened() -> None:
    assert rewind([]) == Rewind((), compensated=False)


@pytest.mark.parametrize("kind", [Kind.ACTIVITY, Kind.TIMER, *sorted(STORE_CALLS)])
def test_code_that_failed_by_itself_is_given_what_it_was_fed_last(kind: Kind) -> None:
    rewound = other(5, Kind.PUBLISH, role=OUT_OF_BAND)
    history = [other(1, Kind.START), activity(2), other(3, Kind.TIMER), other(4, kind), rewound]
    history.append(other(6, Kind.REGISTRATION, role=OUT_OF_BAND))
    assert rewind(history) == Rewind(((4, KEPT), (5, KEPT), (6, UNDONE)), compensated=False)


def test_code_that_failed_at_once() -> None:
    assert rewind([other(1, Kind.PUBLISH, role=OUT_OF_BAND)]) == Rewind(((1, KEPT),), compensated=False)


def test_a_limit_that_was_exceeded_is_a_failure() -> None:
    limit = other(3, Kind.TIMER)._replace(name=TIMEOUT_TIMER)
    history = [activity(1, ERROR), activity(2), limit, activity(4, CANCELLED, role=OUT_OF_BAND), activity(5)]
    assert rewind(history) == Rewind(((3, UNDONE), (4, UNDONE), (5, KEPT)), compensated=False)


def test_the_timeout_of_the_workflow_is_taken_back_with_what_it_led_to() -> None:
    history = [activity(1, ERROR), activity(2), other(3, Kind.TIMEOUT), activity(4), activity(5, ERROR)]
    assert rewind(history) == Rewind(((3, UNDONE), (4, KEPT), (5, UNDONE)), compensated=False)


def test_a_timeout_before_the_first_compensated_is_taken_back() -> None:
    history = [activity(1), other(2, Kind.TIMEOUT), activity(3), undo(4, "op-3")]
    assert rewind(history) == Rewind(((2, UNDONE), (3, UNDONE), (4, UNDONE)), compensated=True)


def test_the_failed_activity_is_tried_again() -> None:
    assert rewind([other(1, Kind.START), activity(2), activity(3, ERROR)]) == Rewind(((3, UNDONE),), compensated=False)


def test_the_last_failure_counts_the_ones_before_were_handled() -> None:
    history = [activity(1, ERROR), activity(2), activity(3, ERROR), activity(4)]
    assert rewind(history) == Rewind(((3, UNDONE), (4, KEPT)), compensated=False)


def test_a_failure_beside_the_run_is_no_cut() -> None:
    assert rewind([activity(1, ERROR, role=OUT_OF_BAND), activity(2)]) == Rewind(((2, KEPT),), compensated=False)


@pytest.mark.parametrize("kind", [Kind.TIMER, Kind.CANCEL, Kind.RETRY, Kind.REGISTRATION])
def test_what_follows_the_cut_and_is_no_result_is_set_aside(kind: Kind) -> None:
    history = [other(1, kind), activity(2, ERROR), other(3, kind), activity(4, CANCELLED)]
    assert rewind(history) == Rewind(((2, UNDONE), (3, UNDONE), (4, UNDONE)), compensated=False)


@pytest.mark.parametrize("kind", sorted(STORE_CALLS))
def test_answers_of_the_store_are_kept(kind: Kind) -> None:
    history = [other(1, kind), activity(2, ERROR), other(3, kind), activity(4, CANCELLED), other(5, kind)]
    assert rewind(history) == Rewind(((2, UNDONE), (3, KEPT), (4, UNDONE), (5, KEPT)), compensated=False)


@pytest.mark.parametrize("kind", sorted(EFFECTS - {Kind.REGISTRATION}))
def test_what_was_said_is_kept(kind: Kind) -> None:
    history = [other(1, kind, role=OUT_OF_BAND), activity(2, ERROR), other(3, kind, role=OUT_OF_BAND)]
    assert rewind(history) == Rewind(((2, UNDONE), (3, KEPT)), compensated=False)


@pytest.mark.parametrize("kind", sorted(STORE_CALLS))
def test_an_ask_that_failed_is_asked_again(kind: Kind) -> None:
    history = [activity(1, ERROR), activity(2), other(3, kind, outcome=ERROR)]
    assert rewind(history) == Rewind(((3, UNDONE),), compensated=False)


def test_results_that_were_not_compensated_are_kept() -> None:
    history = [activity(1), activity(2), activity(3, ERROR), undo(4, "op-1")]
    expected = ((1, UNDONE), (2, KEPT), (3, UNDONE), (4, UNDONE))
    assert rewind(history) == Rewind(expected, compensated=True)


def test_the_cut_is_the_earliest_thing_compensated_whatever_the_order_of_compensations() -> None:
    history = [activity(1), activity(2), activity(3), undo(4, "op-3"), undo(5, "op-2")]
    expected = ((2, UNDONE), (3, UNDONE), (4, UNDONE), (5, UNDONE))
    assert rewind(history) == Rewind(expected, compensated=True)


def test_a_failure_before_the_first_compensated_activity_is_tried_again_too() -> None:
    history = [activity(1, ERROR), activity(2), undo(3, "op-2")]
    assert rewind(history) == Rewind(((1, UNDONE), (2, UNDONE), (3, UNDONE)), compensated=True)


def test_a_compensation_that_failed_counts() -> None:
    assert rewind([activity(1), undo(2, "op-1", ERROR)]) == Rewind(((1, UNDONE), (2, UNDONE)), compensated=True)


def test_a_compensation_that_was_cancelled_before_it_ran_does_not_count() -> None:
    history = [activity(1), activity(2, ERROR), undo(3, "op-1", CANCELLED)]
    assert rewind(history) == Rewind(((2, UNDONE), (3, UNDONE)), compensated=False)


def test_a_registration_can_be_the_cut() -> None:
    history = [activity(1), other(2, Kind.REGISTRATION, op="reg"), activity(3), undo(4, "reg")]
    assert rewind(history) == Rewind(((2, UNDONE), (3, KEPT), (4, UNDONE)), compensated=True)


def test_a_result_beside_the_run_is_kept_too() -> None:
    history = [activity(1, ERROR), activity(2, OK, role=OUT_OF_BAND)]
    assert rewind(history) == Rewind(((1, UNDONE), (2, KEPT)), compensated=False)


def test_what_an_earlier_retry_set_aside_stays_as_it_is() -> None:
    history = [activity(1, role=UNDONE, op="a"), activity(2, role=KEPT), undo(3, "a", role=UNDONE), activity(4, op="a")]
    assert rewind(history) == Rewind(((4, KEPT),), compensated=False)


def test_a_second_retry_looks_at_the_second_round_only() -> None:
    first = [activity(1, role=UNDONE, op="a"), activity(2, ERROR, role=UNDONE, op="b"), undo(3, "a", role=UNDONE)]
    second = [activity(4, op="a"), activity(5, ERROR, op="b"), undo(6, "a")]
    assert rewind(first + second) == Rewind(((4, UNDONE), (5, UNDONE), (6, UNDONE)), compensated=True)


def test_an_operation_whose_name_begins_like_a_compensation() -> None:
    history = [activity(1, op="compensate:x"), undo(2, "compensate:x")]
    assert rewind(history) == Rewind(((1, UNDONE), (2, UNDONE)), compensated=True)


def test_the_start_is_never_touched() -> None:
    history = [activity(1, ERROR), other(2, Kind.START)]
    assert rewind(history) == Rewind(((1, UNDONE),), compensated=False)


@pytest.mark.parametrize("choices", list(product(range(4), repeat=4)))
def test_every_short_story_keeps_the_rules(choices: tuple[int, ...]) -> None:
    history = _history(choices)
    verdict = rewind(history)
    roles = dict(verdict.roles)
    by_seq = {entry.seq: entry for entry in history}
    undone = {entry.op.removeprefix("compensate:") for entry in history if entry.kind is Kind.COMPENSATION}
    cut = min(roles, default=len(history) + 1)
    assert sorted(roles) == list(range(cut, len(history) + 1)), "only entries from the cut on get a role"
    for seq, role in roles.items():
        entry = by_seq[seq]
        result = entry.kind is Kind.ACTIVITY or (entry.kind is Kind.TIMER and seq == cut)
        stands = result and entry.outcome is OK and entry.op not in undone
        assert role is (KEPT if stands else UNDONE)
    assert verdict.compensated == bool(undone)
    again = rewind(_with_roles(history, roles))
    assert all(seq < cut for seq, _ in again.roles), "the next retry leaves discarded and retained entries alone"


def _history(choices: tuple[int, ...]) -> list[Entry]:
    history: list[Entry] = []
    for seq, choice in enumerate(choices, 1):
        history.append([activity(seq), activity(seq, ERROR), other(seq, Kind.TIMER), _undo_first(seq, history)][choice])
    return history


def _undo_first(seq: int, before: list[Entry]) -> Entry:
    done = [entry for entry in before if entry.kind is Kind.ACTIVITY]
    return undo(seq, done[0].op) if done else activity(seq)


def _with_roles(history: list[Entry], roles: dict[int, Role]) -> list[Entry]:
    return [Entry(e.seq, e.kind, e.op, e.outcome, e.at, role=roles.get(e.seq, e.role)) for e in history]

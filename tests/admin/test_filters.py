"""The filter grammar: its meaning, and what it refuses."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from romancy import ConfigurationError, Status
from romancy.admin.filters import ALL, LONGEST, MOST_TERMS, Filter, FilterTerm, _fits_pattern, json_meanings, parse, quoted
from romancy.model.instance import InstanceRow
from romancy.model.transition import Wait, WaitKind

NOW = 1_800_000_000_000_000
HOUR = 3600 * 1_000_000


def row(**more: Any) -> InstanceRow:
    given: dict[str, Any] = {
        "instance_id": "order-42",
        "workflow": "checkout",
        "version": "",
        "status": Status.RUNNING,
        "generation": 1,
        "round": 0,
        "epoch": 1,
        "owner": None,
        "wake_at": None,
        "inbox_version": 0,
        "length": 0,
        "deadline_at": None,
        "created_at": NOW,
        "started_at": NOW,
        "updated_at": NOW,
        "ended_at": None,
    }
    return InstanceRow(**(given | more))


def fits(line: str, *waits: Wait, **more: Any) -> bool:
    return parse(line, now=NOW).fits(row(**more), waits, NOW)


def test_an_empty_line_fits_everything() -> None:
    assert parse("  ", now=NOW) == Filter()
    assert fits("")


def test_of_one_key_any_value_is_enough_and_of_all_keys_each_must_fit() -> None:
    assert fits("status:running status:failed workflow:checkout")
    assert fits("status:failed,running")
    assert not fits("status:failed workflow:checkout")
    assert not fits("status:running workflow:nap")


def test_a_minus_turns_a_term_round() -> None:
    assert fits("-status:failed -workflow:nap -id:order-1")
    assert not fits("-workflow:checkout")
    assert not fits("status:live -status:running")


def test_words_for_several_statuses() -> None:
    waiting = {Status.WAITING_FOR_EVENT, Status.WAITING_FOR_MESSAGE, Status.WAITING_FOR_TIMER}
    assert parse("status:waiting", now=NOW).statuses == waiting
    assert parse("status:live", now=NOW).statuses | parse("status:ended", now=NOW).statuses == ALL


def test_names_are_whole_unless_they_have_a_star() -> None:
    assert fits("workflow:checkout")
    assert not fits("workflow:check")
    assert fits("workflow:check*")
    assert fits("id:*-4*")
    assert not fits("id:*-5*")


def test_a_bare_word_is_the_beginning_of_an_id_or_a_part_of_a_name() -> None:
    assert fits("order-4")
    assert fits("heck")
    assert not fits("42")


def test_a_worker_by_its_label_or_its_whole_id() -> None:
    assert fits("worker:w3", owner="w3/1a2b")
    assert fits("worker:w3/1a2b", owner="w3/1a2b")
    assert not fits("worker:w", owner="w3/1a2b")
    assert not fits("worker:w3")


def test_what_is_waited_for() -> None:
    wait = Wait("paid:1", WaitKind.EVENT, NOW, key="paid")
    assert fits("waits:paid", wait)
    assert not fits("waits:sent", wait)
    assert not fits("waits:paid")
    assert fits("-waits:paid")


def test_ages_are_spans_or_times() -> None:
    assert fits("older:1h", created_at=NOW - HOUR)
    assert not fits("older:1h", created_at=NOW - HOUR + 1)
    assert fits("newer:1h30m", created_at=NOW - HOUR)
    assert fits("older:2099-01-01 newer:2001-02-03T04:05:06+01:00")
    assert fits("-older:1h")


def test_flags() -> None:
    assert fits("retrying", retrying_since=1)
    assert fits("-retrying")
    assert fits("overdue", wake_at=NOW - HOUR)
    assert not fits("overdue", wake_at=NOW - HOUR, owner="w")
    assert fits("-overdue", wake_at=NOW + 1)


@pytest.mark.parametrize("value", ["42", 42, 42.0])
def test_a_value_fits_as_text_and_as_number(value: object) -> None:
    assert parse("input.order.id:42", now=NOW).fits_content({"order": {"id": value}}, "")


def test_values_of_content() -> None:
    wanted = parse('input.a:true input.b:null input.c:"two words" -input.d:1 error:time', now=NOW)
    assert wanted.by_content
    assert wanted.fits_content({"a": True, "b": None, "c": "two words", "d": 2}, "TimeoutError: late")
    assert not wanted.fits_content({"a": 1, "b": None, "c": "two words"}, "TimeoutError: late")
    assert not wanted.fits_content({"a": True, "c": "two words"}, "TimeoutError: late")
    assert not wanted.fits_content({"a": True, "b": None, "c": "two words", "d": 1}, "TimeoutError: late")
    assert not wanted.fits_content({"a": True, "b": None, "c": "two words"}, "ValueError: bad")
    assert not wanted.fits_content("damaged", "TimeoutError: late")


def test_a_path_begins_at_a_parameter_or_inside_the_only_one() -> None:
    assert parse("input.customer.id:c1", now=NOW).fits_content({"order": {"customer": {"id": "c1"}}}, "")
    assert parse("input.order.customer.id:c1", now=NOW).fits_content({"order": {"customer": {"id": "c1"}}}, "")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("statsu:failed", "character 1.*no key 'statsu'.*Did you mean status"),
        ("workflow:a status:wrong", "character 12.*'wrong' is not a status; use one of pending"),
        ("older:soon", "90s, 5m"),
        ("older:1x", "90s, 5m"),
        ("workflow:", "the value is missing"),
        ("-", "the minus directly before"),
        ('workflow:"open', "quotation marks must enclose"),
        ('wo"rd', "quotation marks must enclose"),
        ("input.:1", "no key 'input.'"),
        ("a" * (LONGEST + 1), "the maximum is 4096"),
        ("a " * (MOST_TERMS + 1), "more than 200 terms"),
        (f"input{'.a' * 101}:1", "at most 100 parts"),
        (f"older:{'9' * 4000}", "90s, 5m"),
    ],
)
def test_what_is_wrong_is_told(line: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        parse(line, now=NOW)


@given(st.text(max_size=80))
def test_any_line_is_read_or_refused_in_words(line: str) -> None:
    with suppress(ConfigurationError):
        parse(line, now=NOW)


@given(st.text(' ":\\\\-*\n\u2028a.', max_size=40))
def test_no_part_of_a_line_is_passed_over(line: str) -> None:
    """If a term were ignored, a bulk action would apply to more instances than meant."""
    try:
        read = parse(line, now=NOW)
    except ConfigurationError:
        return
    assert bool(line.strip()) == (read != Filter(text=read.text))


@given(st.text("ab*", max_size=12), st.text("ab\n", max_size=12))
def test_stars_stand_for_any_text(pattern: str, value: str) -> None:
    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), value, re.DOTALL) is not None
    assert _fits_pattern(pattern, value) == expected


@pytest.mark.timeout(20)
def test_a_pattern_of_many_stars_takes_no_longer_than_others() -> None:
    """As a regular expression, it would need exponential time."""
    assert not fits(f"id:{'*a' * 1000}*b", instance_id="a" * 3000)
    assert fits(f"id:{'*a' * 1000}*b", instance_id="a" * 3000 + "b")


@given(st.text(min_size=1, max_size=40).filter(lambda text: text.strip()))
def test_any_value_can_be_said_in_quotes(value: str) -> None:
    assert parse(f"id:{quoted(value)}", now=NOW).id == FilterTerm((value,))
    assert parse(quoted(value), now=NOW).words == FilterTerm((value,))
    if "*" not in value:
        assert fits(f"id:{quoted(value)}", instance_id=value)


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(min_size=1))
def test_any_value_is_found_by_how_it_is_written(value: Any) -> None:
    assert value in json_meanings(value if isinstance(value, str) else repr(value))

"""Tests of the verdicts on samples."""

from __future__ import annotations

import pytest
from tests.soak.samples import of_times
from tests.soak.trend import BOUNDS, judge

NAMES = ["memory_mb", "threads", "files", "p50_ms", "p99_ms", "rows:romancy_events", "kb:file"]


@pytest.mark.parametrize("name", NAMES)
def test_a_constant_column_is_flat(name: str) -> None:
    samples = [{name: 100.0 + number % 3} for number in range(40)]
    assert [verdict.is_flat for verdict in judge(samples)] == [True]


@pytest.mark.parametrize("name", NAMES)
def test_growth_is_found(name: str) -> None:
    samples = [{name: 100.0 * number} for number in range(40)]
    (verdict,) = judge(samples)
    assert not verdict.is_flat
    assert str(verdict).startswith(f"GROWS  {name}: ")


def test_high_values_at_the_start_are_ignored() -> None:
    samples = [{"threads": 90.0 if number < 10 else 5.0} for number in range(40)]
    assert judge(samples)[0].before == 5.0


def test_one_high_sample_is_ignored() -> None:
    samples = [{"threads": 90.0 if number == 39 else 5.0} for number in range(40)]
    assert judge(samples)[0].is_flat


def test_a_little_more_is_allowed() -> None:
    bound = BOUNDS["rows"]
    samples = [{"rows:x": 1000.0 if number < 20 else 1000.0 * bound.times + bound.more} for number in range(40)]
    assert judge(samples)[0].is_flat


def test_a_table_that_appears_later_had_no_rows() -> None:
    samples = [{"threads": 1.0} if number < 20 else {"threads": 1.0, "rows:new": 500.0} for number in range(40)]
    assert [verdict.name for verdict in judge(samples) if not verdict.is_flat] == ["rows:new"]


def test_a_sample_without_times_is_ignored_for_times() -> None:
    samples = [{"p50_ms": 8.0, "threads": 1.0} if number % 3 else {"threads": 1.0} for number in range(40)]
    assert {verdict.name: verdict.after for verdict in judge(samples)} == {"threads": 1.0, "p50_ms": 8.0}


def test_a_column_without_a_bound_is_not_judged() -> None:
    assert judge([{"at_s": float(number)} for number in range(40)]) == []


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="3 samples are too few"):
        judge([{"threads": 1.0}] * 3)


def test_percentiles_of_times() -> None:
    assert of_times([number / 1000 for number in range(100)]) == {"p50_ms": 50.0, "p99_ms": 99.0}
    assert of_times([]) == {}

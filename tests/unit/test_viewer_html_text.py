"""Users' texts and values on pages: shown exactly, and never as markup."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from romancy.admin.records import ChartPoint
from romancy.viewer import formatters, html_text, values
from romancy.viewer.charts import sparkline
from romancy.viewer.pages.instance import user_frame

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(st.text(st.characters()))
def test_a_line_is_only_text(given: str) -> None:
    shown = html_text.line(given)
    assert re.fullmatch(
        r"<bdi>[^<>\x00-\x1f\u202e\ud800-\udfff]*</bdi>(<span class=\"cut\">… \([\d,]+ characters\)</span>)?", shown
    )
    shown.encode()


def test_what_cannot_be_seen_is_shown() -> None:
    assert html_text.visible("a\0b\u202ec\ud800\n") == "a\\x00b\\u202ec\\ud800\n"
    assert html_text.line("one\ntwo") == "<bdi>one\\ntwo</bdi>"
    assert html_text.line("x" * 400).endswith("… (400 characters)</span>")


@given(JSON)
def test_the_json_of_a_value_can_be_read_off_the_page(value: Any) -> None:
    shown = str(values.show(value).markup).replace(" open>", ">")
    assert _value_in(ET.fromstring(f"<li>{shown}</li>")) == value


def _value_in(item: ET.Element) -> Any:
    shown = item[-1]
    if shown.tag == "bdi":
        return _read(shown)
    parts = shown.findall("ul/li")
    if (shown.findtext("summary") or "").startswith("["):
        return [_value_in(part) for part in parts]
    return {_read(part[0]): _value_in(part) for part in parts}


def _read(shown: ET.Element) -> Any:
    return json.loads(shown.text or "")


def test_values_are_folded_below_two_levels_and_cut() -> None:
    deep = {"a": {"b": {"c": {"d": 1}}}}
    assert str(values.show(deep).markup).count('<details class="json" open>') == 2
    assert str(values.show(deep).markup).count("<details") == 4
    long = values.show({"text": "x" * 1_000_000})
    assert long.cut
    assert long.length > 1_000_000
    assert len(long.markup) < 70_000
    many = values.show(list(range(100_000)))
    assert many.cut
    assert len(many.markup) < 1_500_000


def test_large_integers_and_halves_of_characters_stay_exact() -> None:
    assert "12345678901234567890123" in values.show(12345678901234567890123).markup
    assert values.plain("\ud800") == '"\\ud800"'
    values.plain({"\ud800": 1}).encode()


def test_a_value_nested_beyond_reason_is_still_shown() -> None:
    value: Any = 1
    for _ in range(200):
        value = [value]
    assert values.show(value).markup


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.00042, "0.42 ms"),
        (0.85, "850 ms"),
        (1.234, "1.2 s"),
        (2.0, "2 s"),
        (12.4, "12 s"),
        (185, "3 min 5 s"),
        (75600, "21 h"),
        (93600 + 86400 * 3, "4 d 2 h"),
        (86400 * 400, "400 d"),
        (-5, "−5 s"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float, said: str) -> None:
    assert formatters.duration(seconds) == said


def test_rough_lengths_have_one_unit() -> None:
    assert [formatters.rough(one) for one in (500, 30_700, 1_500_000, 5_400_000_000, 30 * 86_400_000_000)] == [
        "500 µs",
        "31 ms",
        "1.5 s",
        "1.5 h",
        "30 d",
    ]


def test_the_last_line_of_the_users_own_code_is_found() -> None:
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/srv/shop.py", line 3, in checkout\n    await pay(ctx)\n'
        '  File "/srv/money.py", line 9, in pay\n    raise Broke(1)\n          ^^^^^^\n'
        '  File "/usr/lib/python3.11/json/decoder.py", line 1, in decode\n    raise x\n'
        '  File "/venv/site-packages/lib.py", line 1, in lib\n    raise x\n'
        "money.Broke: 1\n"
    )
    assert user_frame(trace) == 'File "/srv/money.py", line 9, in pay\n    raise Broke(1)'
    assert user_frame("no frames here") == ""


def test_sparklines_have_a_bar_for_each_minute_with_something_in_it() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    drawn = sparkline([ChartPoint(at, 0, 0), ChartPoint(at, 3, 1), ChartPoint(at, 0, 2)], "Ended")
    assert drawn.count("<rect") == 3
    assert 'aria-label="Ended: 6 ended, including 3 failed"' in drawn
    assert "<rect" not in sparkline([ChartPoint(at, 5, 0)], "Failed", failures=True)
    assert "<rect" not in sparkline([], "Nothing")

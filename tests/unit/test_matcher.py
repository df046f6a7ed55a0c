"""Matching by dotted paths."""

from __future__ import annotations

from typing import Any

import pytest

from romancy.core.matcher import input_matches, matches

DATA: dict[str, Any] = {
    "customer": {"id": "c1", "vip": True, "note": None},
    "items": [{"sku": "x", "n": 1}, {"sku": "y", "n": 2.0}],
    "a.b": {"c": 7},
}


@pytest.mark.parametrize(
    "wanted",
    [
        {"customer.id": "c1"},
        {"customer.vip": True},
        {"customer.note": None},
        {"items.0.sku": "x", "items.1.sku": "y"},
        {"items.0.n": 1.0, "items.1.n": 2},
        {"a.b.c": 7},
        {},
    ],
)
def test_it_matches(wanted: dict[str, Any]) -> None:
    assert matches(DATA, wanted)


@pytest.mark.parametrize(
    "wanted",
    [
        {"customer.id": "c2"},
        {"customer.vip": 1},
        {"customer.vip": "true"},
        {"items.0.n": True},
        {"items.0.n": "1"},
        {"customer.missing": None},
        {"items.2.sku": "x"},
        {"items.x": 1},
        {"items.-1.sku": "y"},
        {"customer.id.more": "c1"},
        {"customer.id": "c1", "items.0.sku": "z"},
    ],
)
def test_it_does_not_match(wanted: dict[str, Any]) -> None:
    assert not matches(DATA, wanted)


def test_a_sole_object_argument_may_be_looked_into_without_its_name() -> None:
    assert input_matches({"order": {"id": 7}}, {"id": 7})
    assert input_matches({"order": {"id": 7}}, {"order.id": 7})
    assert not input_matches({"order": {"id": 7}, "express": False}, {"id": 7})
    assert not input_matches({"order": [1]}, {"0": 1})

"""No event and no message is lost, doubled or out of order, whoever comes first: who speaks or who listens."""

from __future__ import annotations

import os

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.explore.search import (
    Case,
    many,
    one_to_one,
    several,
    try_chance,
    try_orders,
    with_a_timeout,
    with_an_activity,
)
from tests.property.hypothesis_settings import examples, unhurried

SMALL = [*one_to_one(), *with_a_timeout(), *with_an_activity(), *several()]
MANY = [*many()] if "ROMANCY_EXAMPLES" in os.environ else []
"""Thousands of orders each: for a longer search."""


@pytest.mark.parametrize("case", [*SMALL, *MANY], ids=str)
def test_every_order_of_a_small_cast(case: Case) -> None:
    assert try_orders(case).fault is None


# Not shrunk: a smaller number is another cast in another order.
@settings(unhurried(examples(40)), phases=[Phase.generate])
@given(st.integers(0, 2**32))
def test_any_order_of_a_large_cast(seed: int) -> None:
    assert try_chance(seed, 20).fault is None

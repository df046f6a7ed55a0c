"""No event or message is lost, duplicated or out of order, whether the sender or the listener comes first."""

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
    try_all_orders,
    try_random_orders,
    with_a_timeout,
    with_an_activity,
)
from tests.property.hypothesis_settings import examples, unhurried

SMALL = [*one_to_one(), *with_a_timeout(), *with_an_activity(), *several()]
MANY = [*many()] if "ROMANCY_EXAMPLES" in os.environ else []
"""Scenarios with thousands of orders each, for a longer search."""


@pytest.mark.parametrize("case", [*SMALL, *MANY], ids=str)
def test_every_order_of_a_small_scenario(case: Case) -> None:
    assert try_all_orders(case).fault is None


# Not shrunk: a smaller seed is an unrelated scenario.
@settings(unhurried(examples(40)), phases=[Phase.generate])
@given(st.integers(0, 2**32))
def test_random_orders_of_large_scenarios(seed: int) -> None:
    assert try_random_orders(seed, 20).fault is None

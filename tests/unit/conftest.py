"""Fixtures of the unit tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from tests.unit.instance_driver import Body, Drive, InstanceDriver

from romancy.model.history import Entry


@pytest.fixture
def drive() -> Iterator[Drive]:
    """A function that makes driven instances, whose runs are evicted at the end of the test."""
    drivers: list[InstanceDriver] = []

    def make(body: Body, *args: Any, history: Iterable[Entry] = ()) -> InstanceDriver:
        drivers.append(InstanceDriver(body, *args, history=history))
        return drivers[-1]

    yield make
    assert [complaint for driver in drivers for complaint in driver.run.evict()] == []

"""Fixtures of the unit tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from tests.unit.instance_driver import Body, Story, Tell

from romancy.model.history import Entry


@pytest.fixture
def tell() -> Iterator[Tell]:
    """Stories whose runs are evicted at the end of the test."""
    told: list[Story] = []

    def make(body: Body, *args: Any, history: Iterable[Entry] = ()) -> Story:
        told.append(Story(body, *args, history=history))
        return told[-1]

    yield make
    assert [complaint for story in told for complaint in story.run.evict()] == []

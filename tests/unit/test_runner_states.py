"""The table of a runner's states and inputs."""

from __future__ import annotations

from typing import get_args

import pytest

from romancy.worker.runner.runner import InstanceRunner
from romancy.worker.runner.state import GONE, STATES, TABLE, Claimed, Discarded, Input, RunnerState


def test_the_table_has_each_input() -> None:
    assert list(TABLE) == list(get_args(Input))


def test_each_state_has_the_handlers_of_its_column() -> None:
    for column, state in enumerate(STATES):
        expected = {kind: f"_{row[column]}" for kind, row in TABLE.items() if row[column]}
        assert {kind: handler.__name__ for kind, handler in state.handlers.items()} == expected
        assert all(getattr(InstanceRunner, name) is state.handlers[kind] for kind, name in expected.items())


def test_every_state_can_be_left() -> None:
    assert all(state.handlers[Discarded].__name__ == "_discard" for state in STATES if state is not GONE)


@pytest.mark.parametrize("state", [one for one in STATES if Claimed not in one.handlers], ids=repr)
def test_an_input_that_cannot_come_in_a_state_is_an_error(state: RunnerState) -> None:
    runner = object.__new__(InstanceRunner)
    runner.instance_id, runner.state = "order-1", state
    with pytest.raises(AssertionError, match=f"Claimed came to 'order-1' while it was {state.name}"):
        runner.handle(Claimed(2))

"""Whatever a program does, and in whatever order things happen to it: a replay does the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.property.asyncio_programs import Node, programs
from tests.property.hypothesis_settings import examples, unhurried
from tests.property.replay_check import check


@unhurried(examples(800))
@given(programs, st.integers(0, 2**32))
def test_every_prefix_of_every_history_replays(program: Node, seed: int) -> None:
    check(program, seed)

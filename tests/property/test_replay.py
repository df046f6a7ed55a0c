"""A replay repeats what a program did, for any program and any order of resolutions."""

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

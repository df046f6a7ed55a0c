"""Nothing is lost or done twice, whatever the crash and the order of completion."""

from __future__ import annotations

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.databases import Lend
from tests.property.crashes.crash_check import check
from tests.property.crashes.workflow_programs import Node, programs
from tests.property.hypothesis_settings import examples, unhurried


# Not shrunk: each stuck program takes its full time limit, and smaller ones are not easier to read.
@settings(unhurried(examples(80)), phases=[Phase.generate])
@given(programs, st.integers(0, 2**32))
def test_any_program_survives_any_crash(program: Node, order: int) -> None:
    check(program, order)


@settings(unhurried(examples(10)), phases=[Phase.generate])
@given(programs, st.integers(0, 2**32))
def test_any_program_survives_a_pause(program: Node, order: int) -> None:
    check(program, order, crashes=0, pauses=True)


def test_some_programs_survive_some_crashes_on_every_database(new_database: Lend) -> None:
    @settings(unhurried(examples(6)), phases=[Phase.generate])
    @given(programs, st.integers(0, 2**32))
    def crashing(program: Node, order: int) -> None:
        check(program, order, crashes=8, orders=4, database=new_database())

    crashing()

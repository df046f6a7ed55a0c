"""The simulation finds the faults it is there for: each is planted, and must be seen."""

from __future__ import annotations

import pytest
from tests.simulate.planted_faults import FAULTS, Planted, hunt


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found(fault: Planted) -> None:
    assert hunt(fault) is not None, f"{fault.seeds} seeds did not find that {fault.what}"


def test_each_fault_has_a_name_of_its_own() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)

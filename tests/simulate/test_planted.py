"""The simulation finds each fault that is planted in the engine."""

from __future__ import annotations

import pytest
from tests.simulate.planted_faults import FAULTS, PlantedFault, find_seed


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found(fault: PlantedFault) -> None:
    assert find_seed(fault) is not None, f"{fault.seeds} seeds did not find that {fault.what}"


def test_fault_names_are_unique() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)

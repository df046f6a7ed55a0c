"""The planted faults fit the code, and two of them are planted here; `make mutants` plants all."""

from __future__ import annotations

import pytest
from tests.mutants.faults import BY_NAME, FAULTS, Fault
from tests.mutants.project_copy import ROOT, caught, garden, sound, spoilt

QUICK = [BY_NAME["undo-reversed"], BY_NAME["ack-before-commit"]]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_fits_the_code(fault: Fault) -> None:
    text = (ROOT / "src/romancy" / fault.file).read_text(encoding="utf-8")
    assert spoilt(text, fault) != text


def test_each_has_a_name_of_its_own() -> None:
    assert len(BY_NAME) == len(FAULTS)


@pytest.mark.parametrize("old", ["", "no such text"])
def test_one_that_does_not_fit_is_told(old: str) -> None:
    with pytest.raises(ValueError, match="not once"):
        spoilt("text", Fault("x", "", "x.py", old, "", ()))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_of_them_are_caught() -> None:
    with garden() as place:
        assert sound(place, QUICK) is None
        assert [caught(place, fault) for fault in QUICK] == [None, None]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_change_that_is_no_fault_survives() -> None:
    """And one that breaks the tests themselves is not taken for caught."""
    undo = BY_NAME["undo-reversed"]
    harmless = Fault("harmless", "", undo.file, undo.old, undo.old + "\n", undo.tests)
    broken = Fault("broken", "", undo.file, undo.old, undo.old + "(\n", undo.tests)
    with garden() as place:
        assert "SURVIVED" in str(caught(place, harmless))
        assert "could not run" in str(caught(place, broken))

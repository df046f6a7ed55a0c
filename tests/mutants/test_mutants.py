"""The planted faults fit the code, and two of them are planted and caught; `make mutants` plants all."""

from __future__ import annotations

import pytest
from tests.mutants.faults import BY_NAME, FAULTS, Fault
from tests.mutants.project_copy import ROOT, baseline_failure, copy_project, escape_reason, with_fault

QUICK = [BY_NAME["compensation-reversed"], BY_NAME["ack-before-commit"]]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_fits_the_code(fault: Fault) -> None:
    text = (ROOT / "src/romancy" / fault.file).read_text(encoding="utf-8")
    assert with_fault(text, fault) != text


def test_fault_names_are_unique() -> None:
    assert len(BY_NAME) == len(FAULTS)


@pytest.mark.parametrize("old", ["", "no such text"])
def test_a_fault_that_does_not_fit_is_reported(old: str) -> None:
    with pytest.raises(ValueError, match="not once"):
        with_fault("text", Fault("x", "", "x.py", old, "", ()))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_of_them_are_caught() -> None:
    with copy_project() as copy:
        assert baseline_failure(copy, QUICK) is None
        assert [escape_reason(copy, fault) for fault in QUICK] == [None, None]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_change_that_is_no_fault_survives() -> None:
    """A fault that breaks the tests themselves does not count as caught either."""
    fault = BY_NAME["compensation-reversed"]
    harmless = Fault("harmless", "", fault.file, fault.old, fault.old + "\n", fault.tests)
    broken = Fault("broken", "", fault.file, fault.old, fault.old + "(\n", fault.tests)
    with copy_project() as copy:
        assert "SURVIVED" in str(escape_reason(copy, harmless))
        assert "could not run" in str(escape_reason(copy, broken))

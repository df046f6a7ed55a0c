"""The loads under which the engines are compared: a number of activities in a workflow, and of workflows at once."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Case:
    """One load. Every activity adds one to a number."""

    name: str
    label: str
    activities: int
    at_once: int
    unit: str
    target: float | None = None
    """The target: how many times as fast as DBOS romancy should be."""

    @property
    def weight(self) -> int:
        """How many of the case's units one workflow is."""
        return self.activities if self.unit == "activities" else 1


CASES = (
    Case("twenty", "one activity, 20 at once", 1, 20, "workflows", target=40),
    Case("two_hundred", "one activity, 200 at once", 1, 200, "workflows"),
    Case("singly", "one activity, one after another", 1, 1, "workflows", target=6),
    Case("sequence", "500 activities in a row, one workflow", 500, 1, "activities"),
    Case("ten", "ten activities, 20 at once", 10, 20, "activities", target=40),
)
BY_NAME = {case.name: case for case in CASES}

ON_POSTGRES = (
    replace(BY_NAME["twenty"], target=25),
    replace(BY_NAME["ten"], target=40),
    replace(BY_NAME["sequence"], label="activities in a row, one workflow", target=5),
)
"""The same loads on a server, where a commit costs a round trip too."""

"""Whether the code asks for what was recorded, when digests alone say that it does not."""

from __future__ import annotations

from collections.abc import Sequence

from romancy.core.commands import Issue
from romancy.core.execution import is_effect
from romancy.model.history import Entry, Kind
from romancy.serde.equivalence import Difference, difference_of_calls, difference_of_data


class Comparison:
    """Compares what is asked for with what a history has recorded, as today's types read both."""

    def __init__(self, history: Sequence[Entry], *, hidden: bool) -> None:
        self._history = history
        self._hidden = hidden
        """Values are encrypted, and must not be shown in messages."""

    def __call__(self, issue: Issue, entry: Entry | None) -> str | None:
        """Where they differ, in words; None if they mean the same."""
        if entry is None:
            entry = next(one for one in self._history if one.op == issue.op and is_effect(one))
        found = _difference(issue, entry)
        return None if found is None else found.describe(hidden=self._hidden)


def _difference(issue: Issue, entry: Entry) -> Difference | None:
    recorded, given = entry.input, issue.input
    if recorded is None or given is None:
        return Difference(why="its arguments were not recorded")
    if issue.kind is Kind.ACTIVITY:
        return difference_of_calls(issue.detail.codec, recorded, given)
    if issue.kind is Kind.REGISTRATION:
        return difference_of_calls(issue.compensation.codec, recorded, given)
    return difference_of_data(recorded, given, issue.values)

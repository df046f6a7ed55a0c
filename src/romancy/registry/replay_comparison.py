"""The comparison of arguments in a replay, for calls whose digest differs from the recorded one."""

from __future__ import annotations

from collections.abc import Sequence

from romancy.core.commands import Issue
from romancy.core.execution import is_effect
from romancy.model.history import Entry, Kind
from romancy.serde.equivalence import Difference, difference_of_calls, difference_of_data


class Comparison:
    """The comparison of issued arguments with those of a history, after today's types have decoded both."""

    def __init__(self, history: Sequence[Entry], *, hidden: bool) -> None:
        self._history = history
        self._hidden = hidden
        """Whether payloads are encrypted, so that their values must not appear in messages."""

    def __call__(self, issue: Issue, entry: Entry | None) -> str | None:
        """Return a description of the difference, or None if the arguments are equivalent."""
        if entry is None:
            entry = next(effect for effect in self._history if effect.op == issue.op and is_effect(effect))
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

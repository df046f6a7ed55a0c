"""The rows of the timeline: one for each operation, in the order in which the workflow started them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from romancy.admin.records import TimelineSpan

FOLD = 5
"""More rows than this with the same name are folded into one."""
_NOTABLE_OUTCOMES = ("error", "open")


@dataclass(frozen=True, slots=True)
class OperationRow:
    """The spans of one operation."""

    key: str
    name: str
    kind: str
    spans: tuple[TimelineSpan, ...]

    @property
    def attempts(self) -> int:
        """The number of attempts."""
        return max((span.attempt for span in self.spans), default=0)

    @property
    def outcome(self) -> str:
        """The outcome of the last span that is not a back-off or a stay in the queue."""
        real = [span for span in self.spans if span.kind not in ("backoff", "queue")] or list(self.spans)
        return real[-1].outcome

    @property
    def backing_off(self) -> bool:
        """Whether the operation waits for its next attempt."""
        return bool(self.spans) and self.spans[-1].kind == "backoff" and self.spans[-1].end is None


@dataclass(frozen=True, slots=True)
class FoldedRows:
    """Many rows with the same name, folded into one."""

    name: str
    kind: str
    rows: tuple[OperationRow, ...]

    @property
    def outcome(self) -> str:
        """The worst outcome of the rows."""
        found = {row.outcome for row in self.rows}
        return next((one for one in (*_NOTABLE_OUTCOMES, "cancelled") if one in found), "ok")

    def count(self, outcome: str) -> int:
        """Return how many rows have this outcome."""
        return sum(row.outcome == outcome for row in self.rows)


def rows_of(spans: Iterable[TimelineSpan]) -> list[OperationRow]:
    """Group spans into rows, in the order in which their operations started."""
    found: dict[str, list[TimelineSpan]] = {}
    for span in spans:
        found.setdefault(span.row, []).append(span)
    return [_row(key, sorted(own, key=lambda one: (one.start, one.attempt))) for key, own in found.items()]


def _row(key: str, spans: Sequence[TimelineSpan]) -> OperationRow:
    main = next((one for one in spans if one.kind not in ("backoff", "queue")), spans[0])
    kind = main.kind if main.kind not in ("backoff", "queue") else "activity"
    return OperationRow(key, main.name, kind, tuple(spans))


def fold_rows(rows: Sequence[OperationRow]) -> list[OperationRow | FoldedRows]:
    """Fold rows whose name occurs often, at the position of the first one; failed and open rows come first within a fold."""
    groups: dict[tuple[str, str], list[OperationRow]] = {}
    for row in rows:
        groups.setdefault((row.name, row.kind), []).append(row)
    shown: list[OperationRow | FoldedRows] = []
    for row in rows:
        group = groups[row.name, row.kind]
        if len(group) <= FOLD:
            shown.append(row)
        elif row is group[0]:
            shown.append(
                FoldedRows(row.name, row.kind, tuple(sorted(group, key=lambda one: one.outcome not in _NOTABLE_OUTCOMES)))
            )
    return shown


def split_compensations(rows: Sequence[OperationRow]) -> tuple[list[OperationRow], list[OperationRow]]:
    """Split the rows into operations and compensations."""
    return [row for row in rows if row.kind != "compensation"], [row for row in rows if row.kind == "compensation"]

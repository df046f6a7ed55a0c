"""The source line by line, with the state of each line: for the view that shows where an instance is in its code."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from romancy.model.instance import AttemptEntry, HistoryEntry, WaitingFor
from romancy.model.source import Section, split_sections
from romancy.viewer.diagram.marks import Mark, MarkState, call_site_chain, collect_marks
from romancy.viewer.diagram.source_location import locate_sections
from romancy.viewer.diagram.svg import clean

_LONGEST = 2_000
"""Longer lines are truncated."""


@dataclass(frozen=True, slots=True)
class LinePart:
    """A part of a line."""

    text: str
    state: str = ""
    """State of the operation that begins here: taken, failed, waiting, running; empty for other text."""


@dataclass(frozen=True, slots=True)
class CodeLine:
    """One line of the source. Its text is not escaped: the template does that."""

    number: int
    parts: tuple[LinePart, ...]
    state: str = ""
    """The most urgent state of its operations: running, waiting, failed, taken; `through` for a helper call; or empty."""
    count: int = 0
    """How often the workflow started operations of this line."""
    notes: tuple[str, ...] = ()
    seqs: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """The text of the whole line."""
        return "".join(part.text for part in self.parts)


@dataclass(frozen=True, slots=True)
class Listing:
    """The lines of one function."""

    module: str
    lines: tuple[CodeLine, ...]


def list_source(
    source: str | None, entries: Sequence[HistoryEntry], *, open: Iterable[WaitingFor | AttemptEntry] = ()
) -> tuple[Listing, ...]:
    """Return the stored functions line by line, the workflow first; empty if there is no source."""
    marks = collect_marks(entries, open)
    sections, _ = locate_sections(split_sections(source or ""), marks)
    by_line = _by_line(marks)
    callers = _callers(marks)
    return tuple(_listed(section, by_line, callers) for section in sections)


_Columns = Mapping[int, Mark]


def _by_line(marks: Mapping[str, Mark]) -> Mapping[tuple[str, int], dict[int, Mark]]:
    found: dict[tuple[str, int], dict[int, Mark]] = defaultdict(dict)
    for site, mark in marks.items():
        for module, line, column in call_site_chain(site)[:1]:
            into = found[module, line].setdefault(column, Mark())
            for observation in mark.observations.values():
                into.add(observation)
    return found


def _callers(marks: Mapping[str, Mark]) -> Mapping[tuple[str, int], MarkState]:
    """Return the lines that call a helper in which an operation was started, with its most urgent state."""
    found: dict[tuple[str, int], MarkState] = {}
    for site, mark in marks.items():
        for module, line, _ in call_site_chain(site)[1:]:
            found[module, line] = _more_urgent(found.get((module, line), MarkState.UNTAKEN), mark.state)
    return found


_URGENCY = (MarkState.UNTAKEN, MarkState.MAYBE, MarkState.TAKEN, MarkState.FAILED, MarkState.WAITING, MarkState.RUNNING)


def _more_urgent(one: MarkState, other: MarkState) -> MarkState:
    return max(one, other, key=_URGENCY.index)


def _listed(
    section: Section, marks_by_line: Mapping[tuple[str, int], _Columns], callers: Mapping[tuple[str, int], MarkState]
) -> Listing:
    first = max(section.line, 1)
    texts = re.split(r"\r?\n", section.text.rstrip("\r\n"))
    lines = [
        _line(first + at, text, marks_by_line.get((section.module, first + at), {}), (section.module, first + at) in callers)
        for at, text in enumerate(texts)
    ]
    return Listing(section.module, tuple(lines))


def _line(number: int, text: str, columns: _Columns, through: bool) -> CodeLine:
    marks = list(columns.values())
    state = MarkState.UNTAKEN
    for mark in marks:
        state = _more_urgent(state, mark.state)
    word = state.value if marks else "through" if through else ""
    notes = dict.fromkeys(clean(one.note) for mark in marks for one in mark.observations.values() if one.note)
    seqs = sorted(seq for mark in marks for seq in mark.seqs)
    return CodeLine(
        number, _parts(text, columns), word, sum(mark.count for mark in marks), tuple(notes)[:3], tuple(seqs)[:100]
    )


def _parts(text: str, columns: _Columns) -> tuple[LinePart, ...]:
    """Split a line before each operation. Columns count bytes."""
    raw = text.encode(errors="replace")
    starts = sorted(column - 1 for column in columns if 1 < column <= len(raw))
    parts: list[LinePart] = []
    for start, end in zip([0, *starts], [*starts, len(raw)], strict=True):
        state = columns[start + 1].state.value if start + 1 in columns and start in starts else ""
        piece = clean(raw[start:end].decode(errors="replace").replace("\t", "    "))[:_LONGEST]
        if piece:
            parts.append(LinePart(piece, state))
    return tuple(parts)

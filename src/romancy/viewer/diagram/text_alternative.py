"""The diagram as text: the accessible name of each part, and an outline of the whole."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from romancy.viewer.diagram.marks import Mark, MarkState
from romancy.viewer.diagram.svg import clean
from romancy.viewer.diagram.tree import Branch, End, Fork, Frame, Item, Lane, Node, Seq

_STATES = {
    MarkState.UNTAKEN: "not reached",
    MarkState.MAYBE: "possibly reached (its helper is called from several places)",
    MarkState.TAKEN: "completed",
    MarkState.FAILED: "failed",
    MarkState.WAITING: "waiting",
    MarkState.RUNNING: "running",
}


_LONGEST = 300


@dataclass(frozen=True, slots=True)
class Outline:
    """One line of the outline, and the lines below it."""

    text: str
    state: str
    below: tuple[Outline, ...] = ()


def describe_operation(node: Node, mark: Mark) -> str:
    """Describe an operation: `charge(order.total), line 12, completed, 3 times`."""
    words = [f"{node.label}({node.detail})" if node.kind != "compensation" else node.label]
    words += [f"line {node.line}"] if node.line else []
    words.append(_STATES[mark.state])
    words += [f"{mark.count} times"] if mark.count > 1 else []
    words += [f"{mark.failed} failed"] if 0 < mark.failed < mark.count else []
    words += [f"{mark.attempts} attempts"] if mark.attempts > 1 else []
    words += [shortened(f"compensated by {', '.join(dict.fromkeys(mark.compensations))}")] if mark.compensations else []
    notes = dict.fromkeys(one.note for one in mark.observations.values() if one.note)
    return clean(": ".join([", ".join(words), *(shortened(one) for one in list(notes)[:3])]))


def shortened(text: str) -> str:
    """Truncate a long text."""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def badge(mark: Mark) -> str:
    """Return the text of the badge at the corner of a node."""
    signs = {MarkState.FAILED: "✕", MarkState.WAITING: "●", MarkState.RUNNING: "▶", MarkState.MAYBE: "?"}
    words = [signs.get(mark.state, "")]
    words += [f"×{mark.count}"] if mark.count > 1 else []
    words += [f"try {mark.attempts}"] if mark.attempts > 1 else []
    words += ["↩"] if mark.compensations else []
    return " ".join(word for word in words if word)


class OutlineWriter:
    """Writes a tree as an outline."""

    def __init__(self, marks: Mapping[Node, Mark], taken: Collection[object]) -> None:
        self._marks = marks
        self._taken = taken

    def lines(self, seq: Seq) -> tuple[Outline, ...]:
        """Return one line for each part."""
        return tuple(line for one in seq.items for line in self._line(one))

    def name(self, item: Item | Lane) -> str:
        """Return the name of one part."""
        match item:
            case Node():
                return describe_operation(item, self._marks.get(item, Mark()))
            case End() | Lane() | Frame():
                return clean(f"{item.label}, {self._way(item)}")
            case Fork():
                return f"concurrently, {self._way(item)}"
            case Seq() | Branch():
                return self._way(item)

    def _way(self, item: object) -> str:
        return "taken" if item in self._taken else "not taken"

    def _line(self, item: Item) -> tuple[Outline, ...]:
        match item:
            case Node():
                return (Outline(self.name(item), self._marks.get(item, Mark()).state.value),)
            case End():
                return (self._outline(item, ()),)
            case Seq():
                return self.lines(item)
            case Branch():
                return tuple(self._outline(lane, self.lines(lane.body)) for lane in item.lanes)
            case Fork():
                return (self._outline(item, tuple(line for lane in item.lanes for line in self.lines(lane.body))),)
            case Frame():
                return (self._outline(item, self.lines(item.body)),)

    def _outline(self, item: Item | Lane, below: tuple[Outline, ...]) -> Outline:
        return Outline(self.name(item), "taken" if item in self._taken else "untaken", below)


def as_text(lines: tuple[Outline, ...], depth: int = 0) -> str:
    """Return the outline as indented lines."""
    return "".join(f"{'  ' * depth}{one.text}\n{as_text(one.below, depth + 1)}" for one in lines)

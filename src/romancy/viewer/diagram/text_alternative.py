"""The same in words: what each part is called, and the whole as lines, for those who do not see the picture."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from romancy.viewer.diagram.marks import Mark, MarkState
from romancy.viewer.diagram.svg import clean
from romancy.viewer.diagram.tree import Branch, End, Fork, Frame, Item, Lane, Node, Seq

_STATES = {
    MarkState.UNTAKEN: "not reached",
    MarkState.MAYBE: "perhaps: its helper is called from several places",
    MarkState.TAKEN: "done",
    MarkState.FAILED: "failed",
    MarkState.WAITING: "waiting now",
    MarkState.RUNNING: "running now",
}


_LONGEST = 300


@dataclass(frozen=True, slots=True)
class Outline:
    """A line of the drawing in words, and the lines below it."""

    text: str
    state: str
    below: tuple[Outline, ...] = ()


def describe_operation(node: Node, mark: Mark) -> str:
    """An operation: `charge(order.total), line 12, done, 3 times`."""
    words = [f"{node.label}({node.detail})" if node.kind != "compensation" else node.label]
    words += [f"line {node.line}"] if node.line else []
    words.append(_STATES[mark.state])
    words += [f"{mark.count} times"] if mark.count > 1 else []
    words += [f"{mark.failed} failed"] if 0 < mark.failed < mark.count else []
    words += [f"{mark.attempts} attempts"] if mark.attempts > 1 else []
    words += [shortened(f"undone by {', '.join(dict.fromkeys(mark.undone))}")] if mark.undone else []
    notes = dict.fromkeys(one.note for one in mark.observations.values() if one.note)
    return clean(": ".join([", ".join(words), *(shortened(one) for one in list(notes)[:3])]))


def shortened(text: str) -> str:
    """A text of some lines at most."""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def badge(mark: Mark) -> str:
    """The little sign at the corner of a node."""
    signs = {MarkState.FAILED: "✕", MarkState.WAITING: "●", MarkState.RUNNING: "▶", MarkState.MAYBE: "?"}
    words = [signs.get(mark.state, "")]
    words += [f"×{mark.count}"] if mark.count > 1 else []
    words += [f"try {mark.attempts}"] if mark.attempts > 1 else []
    words += ["↩"] if mark.undone else []
    return " ".join(word for word in words if word)


class OutlineWriter:
    """Puts a tree into words."""

    def __init__(self, marks: Mapping[Node, Mark], taken: Collection[object]) -> None:
        self._marks = marks
        self._taken = taken

    def lines(self, seq: Seq) -> tuple[Outline, ...]:
        """One line for each part."""
        return tuple(line for one in seq.items for line in self._line(one))

    def name(self, item: Item | Lane) -> str:
        """What one part is called."""
        match item:
            case Node():
                return describe_operation(item, self._marks.get(item, Mark()))
            case End() | Lane() | Frame():
                return clean(f"{item.label}, {self._way(item)}")
            case Fork():
                return f"at once, {self._way(item)}"
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
    """Lines, those below others indented."""
    return "".join(f"{'  ' * depth}{one.text}\n{as_text(one.below, depth + 1)}" for one in lines)

"""The layout of the diagram. Each part is measured, then placed below or beside its neighbours, without any search."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TypeAlias

from romancy.viewer.diagram.tree import Branch, End, Fork, Frame, Item, Lane, Node, Seq

CHARACTER = 7.25
"""The width of a character of the 12 pixel fixed-width font. Characters of the small font are a tenth narrower."""
SMALL = 6.65
_GAP = 24
_BESIDE = 28
_PAD = 16
_HEADER = 30
_MOST = 28
"""Longer labels are truncated; the title has the full text."""


@dataclass(frozen=True, slots=True)
class Connector:
    """A connector: its points, and whether the path taken runs along it."""

    points: tuple[tuple[float, float], ...]
    taken: bool
    arrow: bool = True
    kind: str = "edge"


@dataclass(frozen=True, slots=True)
class Box:
    """A part with a position and a size."""

    item: Item | Lane
    kind: str
    x: float
    y: float
    width: float
    height: float
    text: str = ""
    small: str = ""
    full: str = ""
    taken: bool = False
    badge: str = ""


@dataclass(slots=True)
class DiagramCanvas:
    """The parts to draw, from back to front."""

    frames: list[Box] = field(default_factory=list[Box])
    lines: list[Connector] = field(default_factory=list[Connector])
    boxes: list[Box] = field(default_factory=list[Box])
    width: float = 0
    height: float = 0


@dataclass(frozen=True, slots=True)
class Block:
    """A measured part: its width left and right of its axis, its height, and a function that places it."""

    left: float
    right: float
    height: float
    put: Callable[[DiagramCanvas, float, float], None]
    """Place it with its axis at x and its top at y."""
    open: bool = True
    """The control flow continues below it."""
    taken: bool = False

    @property
    def width(self) -> float:
        """The width of the part."""
        return self.left + self.right


Badge: TypeAlias = Callable[[Node], str]


def columns(text: str) -> int:
    """Return how many columns of a fixed-width font a text takes."""
    return sum(0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text)


def cut(text: str, most: int = _MOST) -> str:
    """Truncate a text to a number of columns."""
    if columns(text) <= most:
        return text
    shown, room = "", most - 1
    for one in text:
        room -= columns(one)
        if room < 0:
            break
        shown += one
    return shown.rstrip() + "…"


class Measure:
    """Measures a tree; `taken` are the parts that the path runs through."""

    def __init__(self, taken: Collection[object], badge: Badge) -> None:
        self._taken = taken
        self._badge = badge

    def block(self, item: Item) -> Block:
        """Measure one part."""
        match item:
            case Node():
                return self._node(item)
            case End():
                return self._end(item)
            case Seq():
                return self._sequence(item)
            case Branch():
                return self._lanes(item, item.lanes, forked=False)
            case Fork():
                return self._lanes(item, item.lanes, forked=True)
            case Frame():
                return self._frame(item)

    # -- single boxes

    def _node(self, node: Node) -> Block:
        text, small, badge = cut(node.label), cut(node.detail, 28), self._badge(node)
        wide = max(columns(text) * CHARACTER + 34, columns(small) * SMALL + 34) + 8
        width, height = max(wide, 112.0), 46.0 if small else 34.0
        taken = node in self._taken

        def put(canvas: DiagramCanvas, x: float, y: float) -> None:
            canvas.boxes.append(
                Box(
                    node,
                    node.kind,
                    x - width / 2,
                    y,
                    width,
                    height,
                    text,
                    small,
                    f"{node.label}({node.detail})",
                    taken,
                    badge,
                )
            )

        hanging = columns(badge) * SMALL / 2 + 6 if badge else 0  # the badge sits on the right upper corner
        return Block(width / 2, width / 2 + hanging, height, put, taken=taken)

    def _end(self, end: End) -> Block:
        text = cut(end.label, 28)
        width, height = columns(text) * SMALL + 24, 24.0
        taken = end in self._taken

        def put(canvas: DiagramCanvas, x: float, y: float) -> None:
            canvas.boxes.append(Box(end, f"end {end.kind}", x - width / 2, y, width, height, text, "", end.label, taken))

        return Block(width / 2, width / 2, height, put, open=False, taken=taken)

    # -- one below the other

    def _sequence(self, seq: Seq) -> Block:
        blocks = [self.block(one) for one in seq.items]
        if not blocks:
            return Block(8, 8, 0, lambda canvas, x, y: None, taken=seq in self._taken)
        height = sum(one.height for one in blocks) + _GAP * (len(blocks) - 1)

        def put(canvas: DiagramCanvas, x: float, y: float) -> None:
            before: Block | None = None
            for one in blocks:
                if before is not None:
                    if before.open:
                        canvas.lines.append(Connector(((x, y), (x, y + _GAP)), before.taken and one.taken))
                    y += _GAP
                one.put(canvas, x, y)
                y += one.height
                before = one

        left, right = max(one.left for one in blocks), max(one.right for one in blocks)
        return Block(
            left, right, height, put, open=blocks[-1].open, taken=seq in self._taken or any(b.taken for b in blocks)
        )

    # -- side by side

    def _lanes(self, item: Branch | Fork, lanes: list[Lane], *, forked: bool) -> Block:
        blocks = [self._lane(lane, forked) for lane in lanes]
        wide = sum(one.width for one in blocks) + _BESIDE * (len(blocks) - 1)
        tall = max(one.height for one in blocks)
        rail, taken = 14.0, item in self._taken
        axes: list[float] = []
        at = -wide / 2
        for one in blocks:
            axes.append(at + one.left)
            at += one.width + _BESIDE
        opened = any(one.open for one in blocks)
        height = tall + rail + (rail if opened else 0)

        def put(canvas: DiagramCanvas, x: float, y: float) -> None:
            if forked:
                bar = (x + min(axes) - 24, x + max(axes) + 24)
                self._bar(canvas, item, bar, y, y + height, taken)
            for axis, one in zip(axes, blocks, strict=True):
                self._connect(canvas, x, x + axis, y, y + rail, y + height, one, forked)
                one.put(canvas, x + axis, y + rail)

        return Block(wide / 2, wide / 2, height, put, open=opened, taken=taken)

    def _bar(
        self, canvas: DiagramCanvas, item: Item, span: tuple[float, float], top: float, bottom: float, taken: bool
    ) -> None:
        for y in (top, bottom):
            canvas.lines.append(Connector(((span[0], y), (span[1], y)), taken, arrow=False, kind="bar"))

    def _connect(
        self,
        canvas: DiagramCanvas,
        x: float,
        axis: float,
        top: float,
        first: float,
        bottom: float,
        lane: Block,
        forked: bool,
    ) -> None:
        down = ((axis, top), (axis, first)) if forked else ((x, top), (axis, top), (axis, first))
        canvas.lines.append(Connector(down, lane.taken, arrow=False))
        if not lane.open:
            return
        end = first + lane.height
        up = ((axis, end), (axis, bottom)) if forked else ((axis, end), (axis, bottom), (x, bottom))
        canvas.lines.append(Connector(up, lane.taken, arrow=False))

    def _lane(self, lane: Lane, forked: bool) -> Block:
        body = self.block(lane.body)
        taken = lane in self._taken
        if forked:
            return Block(body.left, body.right, body.height, body.put, body.open, taken)
        text = cut(lane.label, 28)
        width, chip = columns(text) * SMALL + 20, 22.0
        gap = _GAP if lane.body.items else 0

        def put(canvas: DiagramCanvas, x: float, y: float) -> None:
            canvas.boxes.append(Box(lane, "lane", x - width / 2, y, width, chip, text, "", lane.label, taken))
            if gap:
                canvas.lines.append(Connector(((x, y + chip), (x, y + chip + gap)), taken and body.taken))
            body.put(canvas, x, y + chip + gap)

        return Block(max(body.left, width / 2), max(body.right, width / 2), chip + gap + body.height, put, body.open, taken)

    # -- around

    def _frame(self, frame: Frame) -> Block:
        body = self.block(frame.body)
        taken = frame in self._taken
        text = cut(frame.label, 44)
        loop = frame.kind == "loop"
        pad_left = _PAD + (18 if loop else 0)
        header = columns(text) * SMALL + 28
        left, right = body.left + pad_left, body.right + _PAD
        missing = max(0.0, header - left - right)
        left, right = left + missing / 2, right + missing / 2
        entry = 20 if loop else 12
        height = _HEADER + entry + body.height + _PAD + (6 if loop else 0)

        def put(canvas: DiagramCanvas, x: float, y: float) -> None:
            canvas.frames.append(
                Box(frame, f"frame {frame.kind}", x - left, y, left + right, height, text, "", frame.label, taken)
            )
            top = y + _HEADER + entry
            bottom = top + body.height
            canvas.lines.append(Connector(((x, y + _HEADER - 4), (x, top)), taken and body.taken))  # below the header
            if loop:
                side = x - left + 14
                back = ((x, bottom), (x, bottom + 12), (side, bottom + 12), (side, top - 12), (x - 2, top - 12))
                canvas.lines.append(Connector(back, taken, kind="edge back"))
            elif body.open:
                canvas.lines.append(Connector(((x, bottom), (x, y + height)), taken and body.taken, arrow=False))
            body.put(canvas, x, top)

        return Block(left, right, height, put, open=body.open or loop or frame.kind in ("try", "helper"), taken=taken)

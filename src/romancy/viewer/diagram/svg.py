"""Renders the diagram as SVG: shapes, classes and escaped text. Scripts and colours come from the page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from html import escape

from romancy.viewer.diagram.layout import SMALL, Box, Connector, DiagramCanvas, columns
from romancy.viewer.diagram.marks import Mark
from romancy.viewer.diagram.tree import Node

GLYPHS = {
    "activity": "▸",
    "event": "✉",
    "message": "✉",
    "timer": "◷",
    "effect": "↗",
    "compensation": "↩",
    "recur": "↻",
    "call": "ƒ",
}
_ODD = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\ud800-\\udfff\\ufffe\\uffff"
    "\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]"  # direction marks, which can make one name look like another
)


def clean(text: str) -> str:
    """Replace characters that a page cannot show, or that change how the rest of the text is shown."""
    return _ODD.sub(_sign, text)


def _sign(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else "\ufffd"


def attribute(text: str) -> str:
    """Escape a text for an attribute or an element."""
    return escape(clean(text), quote=True)


def render(
    canvas: DiagramCanvas,
    *,
    title: str,
    description: str,
    prefix: str,
    names: Callable[[Box], str],
    marks: Mapping[Node, Mark],
) -> str:
    """Render the diagram. `names` returns the accessible name of each part."""
    size = f"{_number(canvas.width)} {_number(canvas.height)}"
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="diagram" role="group" viewBox="0 0 {size}" '
        f'width="{_number(canvas.width)}" height="{_number(canvas.height)}" '
        f'aria-labelledby="{attribute(prefix)}-title" aria-describedby="{attribute(prefix)}-desc">'
        f'<title id="{attribute(prefix)}-title">{attribute(title)}</title>'
        f'<desc id="{attribute(prefix)}-desc">{attribute(description)}</desc>'
    )
    parts = [opening]
    parts += [_frame(one, names(one)) for one in canvas.frames]
    ordered = sorted(canvas.lines, key=lambda one: one.taken)  # the path taken is drawn last, above the others
    parts += [part for one in ordered for part in _line(one)]
    parts += [_box(one, names(one), marks) for one in canvas.boxes]
    return "\n".join([*parts, "</svg>"])


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _rect(box: Box, radius: float) -> str:
    geometry = " ".join(
        f'{name}="{_number(value)}"'
        for name, value in (("x", box.x), ("y", box.y), ("width", box.width), ("height", box.height), ("rx", radius))
    )
    return f"<rect {geometry}/>"


def _frame(box: Box, name: str) -> str:
    kind = box.kind.removeprefix("frame ")
    words = f'<text class="head" x="{_number(box.x + 12)}" y="{_number(box.y + 18)}">{attribute(box.text)}</text>'
    badge = _badge(box) if box.badge else ""
    return (
        f'<g class="frame {attribute(kind)} {_way(box.taken)}" role="img" aria-label="{attribute(name)}">'
        f"<title>{attribute(box.full)}</title>{_rect(box, 10)}{words}{badge}</g>"
    )


def _way(taken: bool) -> str:
    return "taken" if taken else "untaken"


def _line(line: Connector) -> Iterator[str]:
    path = "M" + " L".join(f"{_number(x)} {_number(y)}" for x, y in line.points)
    yield f'<path class="{line.kind} {_way(line.taken)}" d="{_rounded(line) if len(line.points) > 2 else path}"/>'
    if line.arrow:
        yield f'<path class="head {_way(line.taken)}" d="{_arrow(line)}"/>'


def _rounded(line: Connector) -> str:
    """Return a path with rounded corners."""
    points = line.points
    path = f"M{_number(points[0][0])} {_number(points[0][1])}"
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        start, end = _towards(corner, before), _towards(corner, after)
        path += f" L{_pair(start)} Q{_pair(corner)} {_pair(end)}"
    return path + f" L{_pair(points[-1])}"


def _towards(corner: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    across, down = other[0] - corner[0], other[1] - corner[1]
    length = max(abs(across) + abs(down), 0.001)
    share = min(6.0, length / 2) / length
    return corner[0] + across * share, corner[1] + down * share


def _pair(point: tuple[float, float]) -> str:
    return f"{_number(point[0])} {_number(point[1])}"


def _arrow(line: Connector) -> str:
    (x0, y0), (x, y) = line.points[-2:]
    if abs(x - x0) > abs(y - y0):
        back = -5.0 if x > x0 else 5.0
        return f"M{_pair((x + back, y - 3.5))} L{_pair((x, y))} L{_pair((x + back, y + 3.5))} Z"
    return f"M{_pair((x - 3.5, y - 6))} L{_pair((x, y))} L{_pair((x + 3.5, y - 6))} Z"


def _box(box: Box, name: str, marks: Mapping[Node, Mark]) -> str:
    if isinstance(box.item, Node):
        return _operation(box, box.item, name, marks.get(box.item, Mark()))
    middle = f'x="{_number(box.x + box.width / 2)}" y="{_number(box.y + box.height / 2 + 4)}"'
    return (
        f'<g class="{attribute(box.kind)} {_way(box.taken)}" role="img" aria-label="{attribute(name)}">'
        f"<title>{attribute(box.full)}</title>{_rect(box, box.height / 2)}"
        f'<text class="small middle" {middle}>{attribute(box.text)}</text></g>'
    )


def _operation(box: Box, node: Node, name: str, mark: Mark) -> str:
    first = box.y + (19 if box.small else 21)
    glyph = GLYPHS.get(node.kind, "▸")
    words = f'<text class="glyph" x="{_number(box.x + 12)}" y="{_number(first)}" aria-hidden="true">{glyph}</text>'
    words += f'<text class="label" x="{_number(box.x + 30)}" y="{_number(first)}">{attribute(box.text)}</text>'
    if box.small:
        words += f'<text class="small" x="{_number(box.x + 30)}" y="{_number(box.y + 36)}">{attribute(box.small)}</text>'
    classes = ["node", node.kind, mark.state.value, *(["compensated"] if mark.compensations else [])]
    seqs = " ".join(str(one) for one in mark.seqs[:100])
    return (
        f'<g class="{" ".join(classes)}" role="img" tabindex="0" aria-label="{attribute(name)}" '
        f'data-line="{node.line}" data-seqs="{seqs}">'
        f"<title>{attribute(name)}</title>{_rect(box, 7)}{words}{_badge(box) if box.badge else ''}</g>"
    )


def _badge(box: Box) -> str:
    width = columns(box.badge) * SMALL + 12
    x, y = box.x + box.width - width / 2 - 2, box.y - 9
    shape = f'<rect class="badge" x="{_number(x)}" y="{_number(y)}" width="{_number(width)}" height="18" rx="9"/>'
    middle = f'x="{_number(x + width / 2)}" y="{_number(y + 13)}"'
    return f'{shape}<text class="badge middle" {middle} aria-hidden="true">{attribute(box.badge)}</text>'

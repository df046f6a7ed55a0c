"""Makes a diagram from the source and the history."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from romancy.model.instance import AttemptEntry, HistoryEntry, WaitingFor
from romancy.model.source import split_sections
from romancy.viewer.diagram.layout import CHARACTER, SMALL, Box, Connector, DiagramCanvas, Measure, columns, cut
from romancy.viewer.diagram.marks import Mark, MarkState, Observation, assign, call_site_chain, collect_marks
from romancy.viewer.diagram.parser import Function, Reader, parse
from romancy.viewer.diagram.path_inference import Path
from romancy.viewer.diagram.source_location import locate_sections
from romancy.viewer.diagram.svg import clean, render
from romancy.viewer.diagram.text_alternative import Outline, OutlineWriter, as_text, badge, describe_operation, shortened
from romancy.viewer.diagram.tree import End, Frame, Item, Node, Seq, nodes

_MARGIN = 20.0
_MOST_ROWS = 200
_KINDS = {"event": "event", "message": "message", "timer": "timer", "retry": "activity", "registration": "compensation"}


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """One operation of a drawing."""

    label: str
    kind: str
    state: str
    """untaken, maybe, taken, failed, waiting, running."""
    count: int
    """How often the workflow started it."""
    line: int
    text: str
    """Its description as text."""
    seqs: tuple[int, ...] = ()
    """The sequence numbers of its entries in the history."""
    runtime: bool = False
    """The operation is in the history but was not found in the source."""


@dataclass(frozen=True, slots=True)
class Diagram:
    """A workflow with the path that one instance took through it."""

    svg: str
    text: str
    outline: tuple[Outline, ...]
    nodes: tuple[DrawnNode, ...]
    from_source: bool
    """False: there is no readable source, and the diagram shows the history alone."""
    exact: bool = True
    """False: the source was stored without its position in the file, which was found by comparison with the history."""


def draw(
    source: str | None,
    entries: Sequence[HistoryEntry],
    *,
    open: Iterable[WaitingFor | AttemptEntry] = (),
    status: str = "",
    title: str = "",
    prefix: str = "diagram",
) -> Diagram:
    """Draw a workflow and the path that one of its instances took.

    `source` is the stored source text, `entries` the history, `open` the open waits and the attempts that are not in the
    history yet, `status` the status of the instance. `prefix` begins the ids inside the SVG. No content of these arguments
    makes it raise.
    """
    marks = collect_marks(entries, open)
    try:
        return _drawn(_recurred(_read(source or "", marks), status), status, title, prefix)
    except RecursionError:  # code that is nested more deeply than Python can traverse
        return _drawn(_column(marks), status, title, prefix)


@dataclass(frozen=True, slots=True)
class _DiagramModel:
    tree: Seq
    aside: list[Item]
    """Operations that ran but are not in the control flow of the workflow."""
    marks: Mapping[Node, Mark]
    name: str
    runtime: frozenset[Node]
    from_source: bool
    exact: bool = True


def _read(source: str, marks: Mapping[str, Mark]) -> _DiagramModel:
    sections, exact = locate_sections(split_sections(source), marks)
    functions = [made for made in map(parse, sections) if made is not None]
    if not functions:
        return _column(marks)
    reader = Reader(functions, {call_site for site in marks for call_site in call_site_chain(site)})
    tree = reader.read(functions[0])
    aside = _elsewhere(reader, functions[1:], marks)
    given, unexplained = assign(Seq([tree, *aside]), marks)
    runtime = _runtime(unexplained)
    if runtime:
        aside.append(Frame("runtime", "only in the history", Seq(list(runtime))))
    marked = {**given, **runtime}
    return _DiagramModel(tree, aside, marked, functions[0].definition.name, frozenset(runtime), True, exact)


def _recurred(picture: _DiagramModel, status: str) -> _DiagramModel:
    """Mark the `recur` that ended the generation. The history has no entry for it, so the code must have just one."""
    found = [node for node in nodes(picture.tree) if node.kind == "recur"]
    if status != "recurred" or len(found) != 1:
        return picture
    mark = Mark()
    mark.add(Observation("recur", "recur", "recur", "", MarkState.TAKEN))
    return replace(picture, marks={**picture.marks, found[0]: mark})


def _elsewhere(reader: Reader, helpers: Sequence[Function], marks: Mapping[str, Mark]) -> list[Item]:
    """Return the helpers that ran although the code has no visible call: under another name, or through a variable."""
    firsts = {chain[0] for site in marks if (chain := call_site_chain(site))}
    found: list[Item] = []
    for one in helpers:
        if any(one is drawn for drawn in reader.inlined):
            continue
        body = reader.read(one)
        if any(node.call_sites & firsts for node in nodes(body)):
            found.append(Frame("helper", f"{one.definition.name}()", body))
    return found


def _runtime(unexplained: Mapping[str, Mark]) -> dict[Node, Mark]:
    return {_runtime_node(site, mark): mark for site, mark in list(unexplained.items())[:_MOST_ROWS] if mark.observations}


def _runtime_node(site: str, mark: Mark) -> Node:
    names = list(dict.fromkeys(one.name for one in mark.observations.values()))
    kinds = [one.kind for one in mark.observations.values()]
    kind = _KINDS.get(kinds[0], "activity" if kinds[0] == "activity" else "effect")
    nearest = site.partition("|")[0] if not site.startswith("?") else ""
    chain = call_site_chain(nearest)
    where = ":".join(nearest.split(":")[1:3]) if chain else ""
    return Node(kind, shortened(", ".join(names)), shortened(where), line=chain[0][1] if chain else 0)


def _column(marks: Mapping[str, Mark]) -> _DiagramModel:
    """Return the model without a source: one column of operations, in the order of the history."""
    shown = _runtime(marks)
    items: list[Item] = list(shown)
    if len(marks) > _MOST_ROWS:
        more = len(marks) - _MOST_ROWS
        items.append(End("more", f"… {more} more operation{'' if more == 1 else 's'}"))
    return _DiagramModel(Seq(items), [], shown, "", frozenset(shown), from_source=False)


# -- drawing


def _drawn(picture: _DiagramModel, status: str, title: str, prefix: str) -> Diagram:
    taken = Path(picture.tree, picture.marks, completed=status == "completed", failed=status == "failed").taken
    taken |= Path(Seq(picture.aside), picture.marks, completed=False).taken
    writer = OutlineWriter(picture.marks, taken)
    lines = writer.lines(Seq([picture.tree, *picture.aside]))
    heading = shortened(title) or (f"Workflow {picture.name}" if picture.name else "History")
    svg = render(
        _canvas(picture, taken, status),
        title=heading,
        description=_summary(picture, status),
        prefix=prefix,
        names=lambda box: writer.name(box.item) if box.kind.partition(" ")[0] not in ("begin", "finish") else box.full,
        marks=picture.marks,
    )
    return Diagram(svg, as_text(lines), lines, _nodes(picture), picture.from_source, picture.exact)


def _nodes(picture: _DiagramModel) -> tuple[DrawnNode, ...]:
    found: list[DrawnNode] = []
    for node in nodes(Seq([picture.tree, *picture.aside])):
        mark = picture.marks.get(node, Mark())
        unseen = node in picture.runtime
        found.append(
            DrawnNode(
                clean(node.label),
                node.kind,
                mark.state.value,
                mark.count,
                node.line,
                describe_operation(node, mark),
                tuple(mark.seqs),
                unseen,
            )
        )
    return tuple(found)


def _summary(picture: _DiagramModel, status: str) -> str:
    states = [picture.marks.get(node, Mark()).state.value for node in nodes(Seq([picture.tree, *picture.aside]))]
    reached = sum(one not in ("untaken", "maybe") for one in states)
    words = [f"{len(states)} operation{'' if len(states) == 1 else 's'}, {reached} reached"]
    words += [f"{states.count(name)} {name}" for name in ("failed", "waiting", "running") if name in states]
    words += [status.replace("_", " ")] if status else []
    words += [] if picture.from_source else ["drawn from the history, because no source code is stored"]
    words += [] if picture.exact else ["operations are matched by comparison with the history"]
    return "; ".join(words)


def _canvas(picture: _DiagramModel, taken: Collection[object], status: str) -> DiagramCanvas:
    measure = Measure(taken, lambda node: badge(picture.marks.get(node, Mark())))
    block, aside = measure.block(picture.tree), [measure.block(one) for one in picture.aside]
    first, last = cut(picture.name or "start", 40), _last_words(status)
    half = max(columns(first), columns(last)) * CHARACTER / 2 + 18
    left, right = (
        max(sizes) for sizes in zip((half, half), *((one.left, one.right) for one in (block, *aside)), strict=True)
    )
    canvas = DiagramCanvas(width=left + right + 2 * _MARGIN)
    x, y = left + _MARGIN, _MARGIN
    begun, ended = picture.tree in taken, status in ("completed", "recurred")
    y = _pill(canvas, "begin", first, x, y, taken=begun, full=f"{picture.name or 'start'}: start")
    canvas.lines.append(Connector(((x, y), (x, y + 24)), begun and block.taken))
    block.put(canvas, x, y + 24)
    y += 24 + block.height
    final = picture.tree.items[-1] if picture.tree.items else None
    if block.open or (isinstance(final, End) and final.kind == "return"):
        canvas.lines.append(Connector(((x, y), (x, y + 24)), ended and (final is None or final in taken)))
    y = _pill(canvas, f"finish {status}" if status else "finish", last, x, y + 24, taken=ended, full=last)
    for one in aside:
        one.put(canvas, x, y + 24)
        y += 24 + one.height
    canvas.height = y + _MARGIN
    return canvas


def _last_words(status: str) -> str:
    return status.replace("_", " ") if status in ("completed", "failed", "cancelled", "terminated", "recurred") else "end"


def _pill(canvas: DiagramCanvas, kind: str, text: str, x: float, y: float, *, taken: bool, full: str) -> float:
    width, height = columns(text) * SMALL + 28, 26.0
    canvas.boxes.append(Box(End(kind, text), kind, x - width / 2, y, width, height, text, "", full, taken))
    return y + height

"""From source and history to a drawing."""

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
    """How often it was asked for."""
    line: int
    text: str
    """What it is called for those who do not see it."""
    seqs: tuple[int, ...] = ()
    """The entries of the history that it stands for."""
    runtime: bool = False
    """History knows it, the source does not show it."""


@dataclass(frozen=True, slots=True)
class Diagram:
    """A workflow with the path that one instance took through it."""

    svg: str
    text: str
    outline: tuple[Outline, ...]
    nodes: tuple[DrawnNode, ...]
    from_source: bool
    """False: there was no source that could be read, and history alone is drawn."""
    exact: bool = True
    """False: the source was stored without its place in its file, which was found by comparing it with history."""


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

    `source` is the text stored for its code, `entries` its history, `open` what it waits for and the attempts that are not
    in the history yet, `status` the instance's. `prefix` begins the ids inside the picture. Never raises for what they
    contain.
    """
    marks = collect_marks(entries, open)
    try:
        return _drawn(_recurred(_read(source or "", marks), status), status, title, prefix)
    except RecursionError:  # code that is nested deeper than Python can follow
        return _drawn(_column(marks), status, title, prefix)


@dataclass(frozen=True, slots=True)
class _DiagramModel:
    tree: Seq
    aside: list[Item]
    """What ran, but is not in the flow of the code."""
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
    reader = Reader(functions, {place for site in marks for place in call_site_chain(site)})
    tree = reader.read(functions[0])
    aside = _elsewhere(reader, functions[1:], marks)
    given, unexplained = assign(Seq([tree, *aside]), marks)
    runtime = _runtime(unexplained)
    if runtime:
        aside.append(Frame("runtime", "seen at run time", Seq(list(runtime))))
    marked = {**given, **runtime}
    return _DiagramModel(tree, aside, marked, functions[0].definition.name, frozenset(runtime), True, exact)


def _recurred(picture: _DiagramModel, status: str) -> _DiagramModel:
    """A generation that has ended by `recur` has no entry for it: if there is but one in the code, it was that."""
    found = [node for node in nodes(picture.tree) if node.kind == "recur"]
    if status != "recurred" or len(found) != 1:
        return picture
    mark = Mark()
    mark.add(Observation("recur", "recur", "recur", "", MarkState.TAKEN))
    return replace(picture, marks={**picture.marks, found[0]: mark})


def _elsewhere(reader: Reader, helpers: Sequence[Function], marks: Mapping[str, Mark]) -> list[Item]:
    """Helpers that ran, though no call of them is seen in the code: under another name, or by way of a variable."""
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
    place = site.partition("|")[0] if not site.startswith("?") else ""
    chain = call_site_chain(place)
    where = ":".join(place.split(":")[1:3]) if chain else ""
    return Node(kind, shortened(", ".join(names)), shortened(where), line=chain[0][1] if chain else 0)


def _column(marks: Mapping[str, Mark]) -> _DiagramModel:
    """No source: what happened, in order."""
    shown = _runtime(marks)
    items: list[Item] = list(shown)
    if len(marks) > _MOST_ROWS:
        items.append(End("more", f"… {len(marks) - _MOST_ROWS} more places"))
    return _DiagramModel(Seq(items), [], shown, "", frozenset(shown), from_source=False)


# -- drawing


def _drawn(picture: _DiagramModel, status: str, title: str, prefix: str) -> Diagram:
    taken = Path(picture.tree, picture.marks, completed=status == "completed", failed=status == "failed").taken
    taken |= Path(Seq(picture.aside), picture.marks, completed=False).taken
    teller = OutlineWriter(picture.marks, taken)
    lines = teller.lines(Seq([picture.tree, *picture.aside]))
    heading = shortened(title) or (f"Workflow {picture.name}" if picture.name else "History")
    svg = render(
        _canvas(picture, taken, status),
        title=heading,
        description=_summary(picture, status),
        prefix=prefix,
        names=lambda box: teller.name(box.item) if box.kind.partition(" ")[0] not in ("begin", "finish") else box.full,
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
    words = [f"{len(states)} operations, {reached} reached"]
    words += [f"{states.count(name)} {name}" for name in ("failed", "waiting", "running") if name in states]
    words += [status.replace("_", " ")] if status else []
    words += [] if picture.from_source else ["no source is stored: drawn from history"]
    words += [] if picture.exact else ["its lines were found by comparing them with history"]
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
    y = _pill(canvas, "begin", first, x, y, taken=begun, full=f"{picture.name or 'start'}: it begins")
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

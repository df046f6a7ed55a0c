"""The model of a diagram: the operations of a workflow, nested like its control flow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

CallSite: TypeAlias = tuple[str, int, int]
"""Module, line and column, both from 1: the position at which an operation was started, as in the history."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a helper."""

    call_sites: frozenset[CallSite]
    awaited: bool
    """Its caller awaits it directly. Otherwise it may run as a task, and the history does not contain its caller."""


@dataclass(eq=False, slots=True)
class Node:
    """One operation in the code."""

    kind: str
    """activity, event, message, timer, effect, compensation, recur, call."""
    label: str
    detail: str = ""
    call_sites: frozenset[CallSite] = frozenset()
    line: int = 0
    """The line of the file, or of the stored text if that is unknown."""
    around: frozenset[CallSite] = frozenset()
    """Call sites that Python reports while an operation inside of this call is started."""
    path: tuple[Call, ...] = ()
    """The helper calls that lead here, the nearest first."""
    loose: bool = False
    """A timer that its own task starts: the history has no call site for it."""


@dataclass(eq=False, slots=True)
class End:
    """A statement that leaves its sequence: return, raise, break, continue."""

    kind: str
    label: str


@dataclass(eq=False, slots=True)
class Seq:
    """Items that run one after another."""

    items: list[Item] = field(default_factory=list["Item"])


@dataclass(eq=False, slots=True)
class Lane:
    """One of several paths side by side."""

    label: str
    body: Seq


@dataclass(eq=False, slots=True)
class Branch:
    """Lanes of which one is taken."""

    lanes: list[Lane]
    on_error: bool = False
    """The lanes after the first are for errors."""


@dataclass(eq=False, slots=True)
class Fork:
    """Lanes that are all taken, concurrently."""

    lanes: list[Lane]
    label: str = ""


@dataclass(eq=False, slots=True)
class Frame:
    """A part with a name: a loop, a `try`, a `with`, a helper."""

    kind: str
    """loop, try, finally, with, group, helper, else, runtime."""
    label: str
    body: Seq
    endless: bool = False
    """`while True`: its body runs at least once."""


Item: TypeAlias = Node | End | Seq | Branch | Fork | Frame


def children(item: Item) -> list[Seq]:
    """Return the sequences inside an item."""
    match item:
        case Branch() | Fork():
            return [lane.body for lane in item.lanes]
        case Frame():
            return [item.body]
        case Seq():
            return [item]
        case _:
            return []


def walk(item: Item) -> Iterator[Item]:
    """Yield the item and everything inside it, in the order of the code."""
    yield item
    inside = item.items if isinstance(item, Seq) else children(item)
    for one in inside:
        yield from walk(one)


def nodes(item: Item) -> list[Node]:
    """Return the operations inside an item."""
    return [one for one in walk(item) if isinstance(one, Node)]


def has_nodes(item: Item) -> bool:
    """Return whether there is an operation inside an item."""
    return any(isinstance(one, Node) for one in walk(item))


def has_content(item: Item) -> bool:
    """Return whether there is anything to draw inside an item."""
    return any(isinstance(one, Node | End) for one in walk(item))

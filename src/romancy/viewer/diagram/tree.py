"""What is drawn: a workflow's operations, nested as its control flow is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

CallSite: TypeAlias = tuple[str, int, int]
"""Module, line and column, both from 1: where history says that an operation was asked for."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a helper."""

    call_sites: frozenset[CallSite]
    awaited: bool
    """At once, by its caller; otherwise it may begin as a task, and history does not know its caller."""


@dataclass(eq=False, slots=True)
class Node:
    """One operation in the code."""

    kind: str
    """activity, event, message, timer, effect, compensation, recur, call."""
    label: str
    detail: str = ""
    call_sites: frozenset[CallSite] = frozenset()
    line: int = 0
    """The line of the file, or of the stored text where that is not known."""
    around: frozenset[CallSite] = frozenset()
    """Where Python is while something inside of this call is asked for."""
    path: tuple[Call, ...] = ()
    """The calls of helpers that lead here, the nearest first."""
    loose: bool = False
    """A timer that a task of its own starts: history has no place for it."""


@dataclass(eq=False, slots=True)
class End:
    """Here the path leaves its sequence: return, raise, break, continue."""

    kind: str
    label: str


@dataclass(eq=False, slots=True)
class Seq:
    """One after another."""

    items: list[Item] = field(default_factory=list["Item"])


@dataclass(eq=False, slots=True)
class Lane:
    """One of several ways that stand side by side."""

    label: str
    body: Seq


@dataclass(eq=False, slots=True)
class Branch:
    """One of the lanes is taken."""

    lanes: list[Lane]
    on_error: bool = False
    """The lanes after the first are for errors."""


@dataclass(eq=False, slots=True)
class Fork:
    """All lanes are taken, at once."""

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
    """`while True`: its body is run at least once."""


Item: TypeAlias = Node | End | Seq | Branch | Fork | Frame


def children(item: Item) -> list[Seq]:
    """The sequences inside an item."""
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
    """The item and everything inside, in the order of the code."""
    yield item
    inside = item.items if isinstance(item, Seq) else children(item)
    for one in inside:
        yield from walk(one)


def nodes(item: Item) -> list[Node]:
    """The operations inside."""
    return [one for one in walk(item) if isinstance(one, Node)]


def has_nodes(item: Item) -> bool:
    """There is an operation inside."""
    return any(isinstance(one, Node) for one in walk(item))


def has_content(item: Item) -> bool:
    """There is something to draw inside."""
    return any(isinstance(one, Node | End) for one in walk(item))

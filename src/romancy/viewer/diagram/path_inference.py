"""Infers the path that an instance took. The history shows its operations; the rest follows from what came before and after.

An operation that is not in the history was not passed. If only one lane of a branch can be passed without such operations,
that lane was taken. If the workflow has ended, and only an early return explains that, it returned there. If several paths
explain the same history, none of them is marked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum, auto

from romancy.viewer.diagram.marks import Mark, MarkState
from romancy.viewer.diagram.tree import Branch, End, Fork, Frame, Item, Lane, Node, Seq, children, walk


class PathExit(Enum):
    """How the path leaves an item."""

    FALLS = auto()
    """It continues with the next item."""
    ENDS = auto()
    """It ends the function."""
    UNKNOWN = auto()


class Path:
    """The parts of a tree that the instance passed."""

    def __init__(self, root: Seq, marks: Mapping[Node, Mark], *, completed: bool, failed: bool = False) -> None:
        self._marks = marks
        self._recorded: set[object] = set()
        """Parts that contain an operation of the history."""
        self._failed_branches: set[Branch] = set()
        """Branches for errors of a body in which an operation failed."""
        self._loops = 0
        """Number of loops around the item that is being resolved."""
        self._mark_recorded(root)
        raises = sum(isinstance(one, End) and one.kind == "raise" for one in walk(root))
        # The workflow failed but no operation did, and its code has only one `raise`: so that was taken.
        raised = failed and raises == 1 and not any(mark.failed for mark in marks.values())
        self._end = "raise" if raised else "return"
        self.taken: set[object] = set(self._recorded)
        if completed or raised or self._recorded:
            self.taken.add(root)
            self._resolve(root, PathExit.ENDS if completed or raised else PathExit.UNKNOWN)

    def _mark_recorded(self, item: Item) -> bool:
        if isinstance(item, Node):
            mark = self._marks.get(item)
            hot = mark is not None and mark.state not in (MarkState.UNTAKEN, MarkState.MAYBE)
        elif isinstance(item, Seq):
            hot = bool([one for one in item.items if self._mark_recorded(one)])  # a list, because every item must be visited
        elif isinstance(item, Branch | Fork):
            hot = bool([lane for lane in item.lanes if self._mark_recorded_lane(lane)])
        else:
            hot = bool([one for one in children(item) if self._mark_recorded(one)])
        if hot:
            self._recorded.add(item)
        return hot

    def _mark_recorded_lane(self, lane: Lane) -> bool:
        hot = self._mark_recorded(lane.body)
        if hot:
            self._recorded.add(lane)
        return hot

    # -- which exits are possible without further operations in the history

    def _can_fall(self, item: Item) -> bool:
        match item:
            case Node():
                return item in self._recorded or item in self._marks
            case End():
                return False
            case Seq():
                return all(self._can_fall(one) for one in item.items)
            case Branch():
                return any(self._can_fall(lane.body) for lane in item.lanes)
            case Fork():
                return all(self._can_fall(lane.body) for lane in item.lanes)
            case Frame():
                if item.kind in _PERHAPS and not item.endless:
                    return True
                handled = self._handled(item)
                if handled is not None:
                    return any(self._can_fall(lane.body) for lane in handled)
                returned = item.kind == "helper" and self._can_end(item.body)
                broken = item.endless and any(isinstance(one, End) and one.kind == "break" for one in walk(item.body))
                return returned or (broken and item in self._recorded) or self._can_fall(item.body)

    def _can_end(self, item: Item) -> bool:
        match item:
            case End():
                return item.kind == self._end
            case Seq():
                return next(self._stops(item.items), None) is not None
            case Node() | Fork():
                return False
            case Frame():
                handled = self._handled(item)
                if handled is not None:
                    return any(self._can_end(lane.body) for lane in handled)
                return item.kind != "helper" and self._can_end(item.body)
            case Branch():
                return any(self._can_end(lane.body) for lane in item.lanes)

    def _handled(self, frame: Frame) -> list[Lane] | None:
        """Return the handlers of a `try` whose body has failed; None if the history shows no failure."""
        items = frame.body.items
        branch = next((one for one in items if isinstance(one, Branch) and one.on_error), None)
        if frame.kind != "try" or branch is None or not self._has_failed(items[0], branch):
            return None
        return [lane for lane in branch.lanes[1:] if lane in self._recorded] or branch.lanes[1:]

    def _stops(self, items: list[Item]) -> Iterator[int]:
        """Yield the indexes of the items at which the function can have ended."""
        for at, one in enumerate(items):
            if self._can_end(one):
                yield at
            if not self._can_fall(one):
                return

    # -- resolving the path from the exits

    def _resolve(self, item: Item, left: PathExit) -> None:
        match item:
            case Seq():
                self._sequence(item.items, left)
            case Branch():
                self._branch(item, left)
            case Fork():
                for lane in item.lanes:
                    if lane in self._recorded or (left is PathExit.FALLS and self._can_fall(lane.body)):
                        self._take(lane, left)
            case Frame():
                self._frame(item, left)
            case Node() | End():
                return

    def _frame(self, frame: Frame, left: PathExit) -> None:
        match frame.kind:
            case "helper":  # a helper always returns to its caller
                self._take_body(frame.body, PathExit.UNKNOWN if left is PathExit.UNKNOWN else PathExit.ENDS)
            case "loop":
                self._loop(frame, left)
            case "try":
                self._try(frame, left)
            case _:
                self._take_body(frame.body, left)

    def _loop(self, loop: Frame, left: PathExit) -> None:
        rounds = max(
            (self._marks[one].count for one in loop.body.items if isinstance(one, Node) and one in self._marks), default=0
        )
        ends = left is PathExit.ENDS and self._can_end(loop.body)
        repeated = rounds > 1 and not self._loops  # with nested loops it is unknown which one repeated
        self._loops += 1
        self._take_body(loop.body, PathExit.ENDS if ends else PathExit.FALLS if repeated else PathExit.UNKNOWN)
        self._loops -= 1
        breaks = list(_ways_to_break(loop.body))
        if loop.endless and left is PathExit.FALLS and len(breaks) == 1:
            self.taken.update(breaks[0])

    def _try(self, frame: Frame, left: PathExit) -> None:
        self.taken.add(frame.body)
        guarded = [one for one in frame.body.items if not (isinstance(one, Frame) and one.kind == "finally")]
        for final in frame.body.items[len(guarded) :]:  # it always runs, so it shows nothing about the body
            self._pass(final, PathExit.UNKNOWN if left is PathExit.UNKNOWN else PathExit.FALLS)
        branch = next((one for one in guarded if isinstance(one, Branch) and one.on_error), None)
        if branch is None or not self._has_failed(guarded[0], branch):
            self._sequence(guarded, left)
            return
        self._failed_branches.add(branch)
        if guarded[0] in self._recorded:
            self._pass(guarded[0], PathExit.UNKNOWN)
        self._pass(branch, left)

    def _has_failed(self, body: Item, branch: Branch) -> bool:
        caught = any(lane in self._recorded for lane in branch.lanes[1:])
        return caught or (body is not branch and _failed_in(body, self._marks))

    def _take(self, lane: Lane, left: PathExit) -> None:
        self.taken.add(lane)
        self._take_body(lane.body, left)

    def _take_body(self, body: Seq, left: PathExit) -> None:
        self.taken.add(body)
        self._resolve(body, left)

    def _sequence(self, items: list[Item], left: PathExit) -> None:
        last = max((at for at, one in enumerate(items) if one in self._recorded), default=-1)
        for one in items[: max(last, 0)]:
            self._pass(one, PathExit.FALLS)
        tail = items[max(last, 0) :]
        if left is PathExit.FALLS:
            for one in tail:
                self._pass(one, PathExit.FALLS)
        elif left is PathExit.ENDS:
            self._ending(tail)
        elif tail and tail[0] in self._recorded:
            self._pass(tail[0], PathExit.UNKNOWN)

    def _ending(self, tail: list[Item]) -> None:
        """Resolve the last items of a function that has ended, at one of them or after the last one."""
        stops = list(self._stops([*tail, End("return", "")]))
        if len(stops) != 1:
            if tail and tail[0] in self._recorded:
                self._pass(tail[0], PathExit.UNKNOWN)
            return
        for one in tail[: stops[0]]:
            self._pass(one, PathExit.FALLS)
        if stops[0] < len(tail):
            self._pass(tail[stops[0]], PathExit.ENDS)

    def _pass(self, item: Item, left: PathExit) -> None:
        if isinstance(item, Node):
            return  # only the history shows whether an operation was started
        possible = {PathExit.FALLS: self._can_fall, PathExit.ENDS: self._can_end}.get(left)
        if item not in self._recorded and possible is not None and not possible(item):
            return  # an operation in it was cancelled before it was recorded, or an error skipped it
        if isinstance(item, Frame) and item not in self._recorded and item.kind in _PERHAPS:
            return  # it may have been passed without entering it
        self.taken.add(item)
        self._resolve(item, left)

    def _branch(self, branch: Branch, left: PathExit) -> None:
        hot = [lane for lane in branch.lanes if lane in self._recorded]
        for lane in hot:
            self._take(lane, left if len(hot) == 1 else PathExit.UNKNOWN)
        if hot:
            return
        possible = self._possible(branch, left)
        if len(possible) == 1:
            self._take(possible[0], left)

    def _possible(self, branch: Branch, left: PathExit) -> list[Lane]:
        if left is PathExit.UNKNOWN:
            return []
        lanes = branch.lanes
        if branch.on_error:
            lanes = lanes[1:] if branch in self._failed_branches else lanes[:1]
        can = self._can_fall if left is PathExit.FALLS else self._can_end
        return [lane for lane in lanes if can(lane.body)]


_PERHAPS = ("loop", "else", "runtime")
"""Kinds of frames that can be passed without entering them."""


def _ways_to_break(item: Item) -> Iterator[list[object]]:
    """Yield the parts that lead to each `break` of a loop."""
    match item:
        case End():
            if item.kind == "break":
                yield [item]
        case Seq():
            yield from ([item, *way] for one in item.items for way in _ways_to_break(one))
        case Branch():
            yield from ([item, lane, *way] for lane in item.lanes for way in _ways_to_break(lane.body))
        case Frame():
            if item.kind not in ("loop", "helper"):
                yield from ([item, *way] for way in _ways_to_break(item.body))
        case Node() | Fork():
            return


def _failed_in(item: Item, marks: Mapping[Node, Mark]) -> bool:
    """Return whether an operation in the item has failed outside of an inner `try`."""
    match item:
        case Node():
            return item in marks and marks[item].failed > 0
        case Seq():
            return any(_failed_in(one, marks) for one in item.items)
        case Frame():
            return item.kind != "try" and _failed_in(item.body, marks)
        case Branch() | Fork():
            return any(_failed_in(lane.body, marks) for lane in item.lanes)
        case End():
            return False

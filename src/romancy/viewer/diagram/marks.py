"""The state of each operation of the code, by the history. Operations are matched by call site, never by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from romancy.model.instance import AttemptEntry, HistoryEntry, WaitingFor
from romancy.viewer.diagram.tree import Branch, CallSite, End, Fork, Frame, Item, Node, Seq, nodes

_KINDS_WITHOUT_SITE = {"start", "cancel", "timeout", "retry"}
"""Kinds of entries that have no call site."""


_NO_COLUMN = 1
"""The column of a call site if Python keeps none: no operation in a function can begin there."""


class MarkState(StrEnum):
    """The state of an operation in the code."""

    UNTAKEN = "untaken"
    MAYBE = "maybe"
    TAKEN = "taken"
    FAILED = "failed"
    WAITING = "waiting"
    RUNNING = "running"


@dataclass(frozen=True, slots=True)
class Observation:
    """The state of one operation, taken from a history entry, an open wait or an attempt."""

    op: str
    kind: str
    name: str
    site: str
    state: MarkState
    seq: int = 0
    attempt: int = 0
    note: str = ""


@dataclass(slots=True)
class Mark:
    """All observations of one call site."""

    observations: dict[str, Observation] = field(default_factory=dict[str, Observation])
    """The latest observation by operation."""
    compensations: list[str] = field(default_factory=list[str])
    """Names of the compensations that ran for it."""
    seqs: list[int] = field(default_factory=list[int])
    unsure: bool = False

    @property
    def count(self) -> int:
        """How often the workflow started it."""
        return len(self.observations)

    @property
    def failed(self) -> int:
        """How many of the operations failed."""
        return sum(one.state is MarkState.FAILED for one in self.observations.values())

    @property
    def attempts(self) -> int:
        """The most attempts of one operation."""
        return max((one.attempt for one in self.observations.values()), default=0)

    @property
    def state(self) -> MarkState:
        """The state to show: running or waiting before failed before completed."""
        if not self.observations:
            return MarkState.UNTAKEN
        if self.unsure:
            return MarkState.MAYBE
        states = {one.state for one in self.observations.values()}
        return next(
            one for one in (MarkState.RUNNING, MarkState.WAITING, MarkState.FAILED, MarkState.TAKEN) if one in states
        )

    def add(self, new: Observation) -> None:
        """Add an observation. It replaces the earlier one of its operation, except for the number of attempts."""
        before = self.observations.get(new.op)
        attempt = max(new.attempt, before.attempt if before is not None else 0)
        merged = new if attempt == new.attempt else Observation(*_fields(new)[:6], attempt, new.note)
        self.observations[new.op] = merged
        if new.seq:
            self.seqs.append(new.seq)


def _fields(one: Observation) -> tuple[str, str, str, str, MarkState, int, int, str]:
    return one.op, one.kind, one.name, one.site, one.state, one.seq, one.attempt, one.note


def collect_marks(entries: Iterable[HistoryEntry], open: Iterable[WaitingFor | AttemptEntry]) -> dict[str, Mark]:
    """Return the marks by call site, in the order of the history."""
    marks: dict[str, Mark] = defaultdict(Mark)
    ended: set[str] = set()
    for one in entries:
        if one.kind == "compensation":
            marks[one.site or f"?{one.name}"].compensations.append(one.name)
        elif one.kind not in _KINDS_WITHOUT_SITE:
            ended.add(one.activity_id)
            marks[one.site or f"?{one.name}"].add(_observe_entry(one))
    for entry in _open_last(open):
        if entry.activity_id not in ended:
            observation = _opened(entry)
            marks[observation.site or f"?{observation.name}"].add(observation)
    return dict(marks)


def _open_last(open: Iterable[WaitingFor | AttemptEntry]) -> list[WaitingFor | AttemptEntry]:
    """Sort failed attempts before what is open now, because the last observation of an operation counts."""
    return sorted(open, key=lambda one: (isinstance(one, WaitingFor), getattr(one, "open", True)))


def _observe_entry(one: HistoryEntry) -> Observation:
    state = MarkState.FAILED if one.outcome == "error" else MarkState.TAKEN
    note = str(one.error) if one.error is not None else ("cancelled" if one.outcome == "cancelled" else "")
    return Observation(one.activity_id, one.kind, one.name, one.site, state, one.seq, one.attempt, note)


def _opened(one: WaitingFor | AttemptEntry) -> Observation:
    if isinstance(one, AttemptEntry):
        state = MarkState.RUNNING if one.open else MarkState.FAILED
        note = str(one.error) if one.error is not None else ""
        return Observation(one.activity_id, "activity", one.name, one.site, state, 0, one.attempt, note)
    return Observation(one.activity_id, one.kind, one.key, one.site, MarkState.WAITING, 0, 0, _awaited(one))


def _awaited(one: WaitingFor) -> str:
    words = f"{one.kind} {one.key}" + (f", subject {one.subject}" if one.subject else "")
    if one.kind == "retry":
        words = "next attempt"
    elif one.kind == "timer":
        words = "timer"
    due = f", due {one.due:%Y-%m-%d %H:%M:%S} UTC" if one.due is not None else ""
    return words + due


def parse_call_site(site: str) -> CallSite | None:
    """Return module, line and column of a call site; None if it is malformed."""
    parts = site.rsplit(":", 2)
    if len(parts) != 3 or not (parts[1].isdecimal() and parts[2].isdecimal()):
        return None
    return parts[0].partition(":")[0], int(parts[1]), int(parts[2])


def call_site_chain(site: str) -> list[CallSite]:
    """Return the call site of an operation and those of the helper calls that led there, the nearest first."""
    return [parsed for one in site.split("|") if (parsed := parse_call_site(one)) is not None]


def assign(tree: Item, marks: Mapping[str, Mark]) -> tuple[dict[Node, Mark], dict[str, Mark]]:
    """Return the marks by node, and the marks for which there is no node."""
    index = _Index(tree)
    given: dict[Node, Mark] = {}
    unexplained: dict[str, Mark] = {}
    for site, mark in marks.items():
        found = index.find(site, mark)
        shares = _shares(mark, found, index)
        for node, share in shares:
            _merge(given.setdefault(node, Mark()), share)
        if not found:
            unexplained[site] = mark
    return given, unexplained


class _Index:
    """The nodes of a tree by call site."""

    def __init__(self, tree: Item) -> None:
        self.lanes = {node: lane for lane, node in _parallel(tree)}
        self._exact: dict[CallSite, list[Node]] = defaultdict(list)
        self._around: dict[CallSite, list[Node]] = defaultdict(list)
        self._lines: dict[CallSite, list[Node]] = defaultdict(list)
        all_nodes = nodes(tree)
        self._loose = [node for node in all_nodes if node.loose]
        for node in all_nodes:
            for call_site in node.call_sites:
                self._exact[call_site].append(node)
                self._lines[*call_site[:2], _NO_COLUMN].append(node)
            for place in node.around:
                self._around[place].append(node)

    def find(self, site: str, mark: Mark) -> list[Node]:
        """The nodes that this site can mean: one, unless a helper was begun as a task from several places."""
        chain = call_site_chain(site)
        if not chain:
            only_timers = all(one.kind == "timer" and one.name in ("timer", "timeout") for one in mark.observations.values())
            return self._loose if len(self._loose) == 1 and only_timers else []
        found = _led_by(self._exact.get(chain[0], []) or self._lines.get(chain[0], []), chain[1:])
        for level in range(1, len(chain)):  # the source of the helper is unknown: use the call of it
            found = found or _led_by(self._around.get(chain[level], []), chain[level + 1 :])
        return found


def _led_by(candidates: list[Node], callers: list[CallSite]) -> list[Node]:
    """Return the nodes whose helper calls match the recorded ones, as far as both are known."""
    fitting = [node for node in candidates if all(a in b.call_sites for a, b in zip(callers, node.path, strict=False))]
    # The recorded calls end where a task begins, because the call that created the task was not awaited.
    begun = [node for node in fitting if len(callers) >= len(node.path) or not node.path[len(callers)].awaited]
    return begun or fitting


def _parallel(item: Item, lane: tuple[int, int] | None = None) -> Iterator[tuple[tuple[int, int], Node]]:
    """Yield the operations that run whenever their fork does, with their lane."""
    match item:
        case Node():
            if lane is not None:
                yield lane, item
        case Fork():
            for number, way in enumerate(item.lanes):
                yield from _parallel(way.body, (id(item), number))
        case Seq():
            for one in item.items:
                yield from _parallel(one, lane)
        case Frame():
            yield from _parallel(item.body, None if item.kind == "loop" else lane)
        case Branch():
            for way in item.lanes:
                yield from _parallel(way.body)
        case End():
            return


def _shares(mark: Mark, found: list[Node], index: _Index) -> list[tuple[Node, Mark]]:
    if len(found) < 2:
        return [(node, mark) for node in found]
    lanes = [index.lanes.get(node) for node in found]
    forks = {lane[0] if lane is not None else None for lane in lanes}
    if len(mark.observations) == len(found) == len(set(lanes)) and len(forks) == 1 and None not in forks:
        return [(node, _single_mark(observation)) for node, observation in zip(found, _by_number(mark), strict=True)]
    return [(node, replace(mark, unsure=True)) for node in found]


def _by_number(mark: Mark) -> list[Observation]:
    """Sort observations in the order in which the operations started: `charge:2` before `charge:10`."""
    return sorted(mark.observations.values(), key=lambda one: (len(one.op), one.op))


def _single_mark(observation: Observation) -> Mark:
    mark = Mark()
    mark.add(observation)
    return mark


def _merge(into: Mark, mark: Mark) -> None:
    for observation in mark.observations.values():
        into.add(observation)
    into.compensations += mark.compensations
    into.unsure = into.unsure or mark.unsure

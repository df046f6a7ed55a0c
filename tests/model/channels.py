"""Reference model of channels and groups, without a database, a worker or a crash.

A `ModelState` holds everything that matters: subscriptions, unread messages, waits, live instances. An `Action` changes it.
Concurrent actions may have happened in any order, and after a crash the caller does not know whether its call took effect.
So several states are possible, and `possible_states` returns those that agree with what was observed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

ActionKind: TypeAlias = Literal[
    "start", "subscribe", "unsubscribe", "publish", "send_to", "send_to_group", "join", "leave", "members", "receive",
    "withdraw", "recur", "complete", "fail", "cancel", "terminate", "advance",
]  # fmt: skip
DONE = "done"
LIVE = "live"
SECOND = 1_000_000
_ENDS = {"complete": "completed", "fail": "failed", "cancel": "cancelled", "terminate": "terminated"}


@dataclass(frozen=True)
class Action:
    """One action, of an instance, of one of its activities, or of a client."""

    number: int
    """The number of the action; the message that it sends contains it."""
    kind: ActionKind
    by: str = ""
    """The instance that acts; empty for a client."""
    channel: str = ""
    mode: str = ""
    group: str = ""
    target: str = ""
    """The instance that is acted on."""
    seconds: float | None = None
    activity: bool = False
    failures: int = 0
    """How many attempts of the activity fail, each after sending; it has two attempts."""


class Unread(NamedTuple):
    """A message that has not been read by all of its recipients."""

    number: int
    at: int
    recipients: frozenset[str] | None
    """None: the first competing subscriber that takes it."""


class Wait(NamedTuple):
    """A `receive` that has not returned."""

    instance: str
    channel: str
    due: int | None


@dataclass
class ModelState:
    """One possible state."""

    now: int = 0
    instances: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    """Each instance's state (`live`, or how it ended) and generation."""
    modes: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """The mode in which an instance has subscribed to a channel."""
    unread: dict[str, tuple[Unread, ...]] = field(default_factory=dict[str, tuple[Unread, ...]])
    """The unread messages of a channel, oldest first."""
    members: frozenset[tuple[str, str]] = frozenset()
    waits: dict[int, Wait] = field(default_factory=dict[int, Wait])

    def copy(self) -> ModelState:
        """A copy that can be changed."""
        return ModelState(
            self.now, dict(self.instances), dict(self.modes), dict(self.unread), self.members, dict(self.waits)
        )

    @property
    def key(self) -> object:
        """Equal for equal states."""
        unread = frozenset((channel, found) for channel, found in self.unread.items() if found)
        instances, modes, waits = (frozenset(one.items()) for one in (self.instances, self.modes, self.waits))
        return self.now, instances, modes, unread, self.members, waits

    def is_live(self, instance: str) -> bool:
        """Whether the instance exists and has not ended."""
        return self.instances.get(instance, ("", 0))[0] == LIVE

    def after(self, action: Action) -> tuple[ModelState, str | None]:
        """The state after an action, and the outcome that the actor gets; None if there is no outcome yet."""
        state = self.copy()
        return state, state._do(action)

    def _do(self, action: Action) -> str | None:
        if action.kind == "send_to" and not self.is_live(action.target):
            return "InvalidWorkflowStateError" if action.target in self.instances else "WorkflowNotFoundError"
        if action.failures > 1:
            return "RetryExhaustedError"
        match action.kind:
            case "start":
                self.instances.setdefault(action.target, (LIVE, 1))
            case "subscribe":
                return self._subscribe(action.by, action.channel, action.mode)
            case "unsubscribe":
                if self.modes.pop((action.by, action.channel), None) is not None:
                    self._drop_unread([action.channel], action.by)
            case "publish":
                self._put(action, self._broadcast_recipients(action.channel))
            case "send_to":
                self._put(action, frozenset({action.target}))
            case "send_to_group":
                self._put(action, frozenset(one for group, one in self.members if group == action.group))
            case "join":
                self.members |= {(action.group, action.by)}
            case "leave":
                return self._leave(action.group, action.by)
            case "members":
                return " ".join(["members", *sorted(one for group, one in self.members if group == action.group)])
            case "receive":
                due = None if action.seconds is None else self.now + round(action.seconds * SECOND)
                self.waits[action.number] = Wait(action.by, action.channel, due)
                return None
            case "withdraw":
                self._stop_waiting(action.by, action.channel)
            case "recur":
                self._stop_waiting(action.by)
                self.instances[action.by] = (LIVE, self.instances[action.by][1] + 1)
            case "complete" | "fail":
                self._end(action.by, _ENDS[action.kind])
            case "cancel" | "terminate":
                return self._stop(action)
            case "advance":
                self.now += round((action.seconds or 0) * SECOND)
        return DONE

    def _subscribe(self, instance: str, channel: str, mode: str) -> str:
        own = self.modes.get((instance, channel))
        others = {used for (_, where), used in self.modes.items() if where == channel and used != "direct"}
        if (own is not None and own != mode) or (mode != "direct" and others - {mode}):
            return "ChannelModeConflictError"
        self.modes[instance, channel] = mode
        return DONE

    def _broadcast_recipients(self, channel: str) -> frozenset[str] | None:
        listening = frozenset(one for (one, where), mode in self.modes.items() if where == channel and mode == "broadcast")
        return listening or None

    def _put(self, action: Action, recipients: frozenset[str] | None) -> None:
        if recipients != frozenset():
            self.unread[action.channel] = (*self.unread.get(action.channel, ()), Unread(action.number, self.now, recipients))

    def _leave(self, group: str, instance: str) -> str:
        if (group, instance) not in self.members:
            return "GroupNotJoinedError"
        self.members -= {(group, instance)}
        return DONE

    def _stop(self, action: Action) -> str:
        if self.is_live(action.target):
            self._end(action.target, _ENDS[action.kind])
            return DONE
        if action.target not in self.instances:
            return "WorkflowNotFoundError"
        return "WorkflowNotCancellableError" if action.kind == "cancel" else "InvalidWorkflowStateError"

    def _end(self, instance: str, how: str) -> None:
        self.instances[instance] = (how, self.instances[instance][1])
        self.modes = {pair: mode for pair, mode in self.modes.items() if pair[0] != instance}
        self.members = frozenset(pair for pair in self.members if pair[1] != instance)
        self._stop_waiting(instance)
        self._drop_unread(list(self.unread), instance)

    def _stop_waiting(self, instance: str, channel: str | None = None) -> None:
        own = [number for number, wait in self.waits.items() if wait[0] == instance and channel in (None, wait[1])]
        for number in own:
            del self.waits[number]

    def _drop_unread(self, channels: Iterable[str], instance: str) -> None:
        """Remove an instance from the recipients of unread messages."""
        for channel in channels:
            self.unread[channel] = tuple(_without(self.unread.get(channel, ()), instance))

    # --- waits

    def outcome_of(self, wait: Wait) -> str | None:
        """The outcome of a wait in this state; None if it continues."""
        mode = self.modes.get((wait.instance, wait.channel))
        if mode is None:
            return "ChannelNotSubscribedError"
        first = self._first(wait, mode)
        if first is not None and (wait.due is None or first.at < wait.due):
            return f"got {first.number}"
        return "ChannelMessageTimeoutError" if wait.due is not None and wait.due <= self.now else None

    def _first(self, wait: Wait, mode: str) -> Unread | None:
        for message in self.unread.get(wait.channel, ()):
            pooled = message.recipients is None and mode == "competing"
            if pooled or (message.recipients is not None and wait.instance in message.recipients):
                return message
        return None

    def without(self, number: int) -> ModelState:
        """The state after a wait has received its outcome."""
        state = self.copy()
        wait = state.waits.pop(number)
        first = state._first(wait, state.modes.get((wait.instance, wait.channel), ""))
        if first is not None and (self.outcome_of(wait) or "").startswith("got"):
            state._read(wait, first)
        return state

    def _read(self, wait: Wait, read: Unread) -> None:
        left = [message for message in self.unread[wait.channel] if message != read]
        if read.recipients is not None:
            left = list(_without(self.unread[wait.channel], wait.instance, read.number))
        self.unread[wait.channel] = tuple(left)


def _without(messages: Iterable[Unread], instance: str, number: int | None = None) -> Iterator[Unread]:
    """The messages without an instance as recipient: of all of them, or of one."""
    for message in messages:
        if message.recipients is None or instance not in message.recipients or number not in (None, message.number):
            yield message
        elif left := message.recipients - {instance}:
            yield message._replace(recipients=left)


@dataclass(frozen=True)
class Observed:
    """The outcomes that were observed for concurrent actions."""

    reported: Mapping[int, str]
    """Outcomes by the number of the action."""
    unknown: Collection[int] = ()
    """Actions of clients that got no answer: they may have taken effect or not."""
    crashed: bool = False
    """Whether the process died meanwhile."""


class _SearchNode(NamedTuple):
    """A node of the search: the state, the progress in each row of actions, and the waits that were answered."""

    state: ModelState
    done: tuple[int, ...]
    reported: frozenset[int]


def possible_states(states: Iterable[ModelState], rows: Sequence[Sequence[Action]], observed: Observed) -> list[ModelState]:
    """The states that can result from rows of actions; each row is sequential, and the rows are concurrent."""
    search = _Search(rows, observed)
    search.todo = [_SearchNode(state, (0,) * len(rows), frozenset()) for state in states]
    return search.run()


class _Search:
    def __init__(self, rows: Sequence[Sequence[Action]], observed: Observed) -> None:
        self._rows = rows
        self._observed = observed
        self._receipts = frozenset(observed.reported) - {
            action.number for row in rows for action in row if action.kind != "receive"
        }
        """The waits that were answered."""
        self._cancelled = {action.target for row in rows for action in row if action.kind == "cancel"}
        self._terminated = {action.target for row in rows for action in row if action.kind == "terminate"}
        leaving = {action.by for row in rows for action in row if action.kind in ("complete", "fail")}
        self._ending = self._cancelled | self._terminated | leaving
        self.todo: list[_SearchNode] = []

    def run(self) -> list[ModelState]:
        seen: set[object] = set()
        found: dict[object, ModelState] = {}
        while self.todo:
            node = self.todo.pop()
            key = node.state.key, node.done, node.reported
            if key not in seen:
                seen.add(key)
                if self._is_end(node):
                    found[node.state.key] = node.state
                self.todo += self._following(node)
        return list(found.values())

    def _is_end(self, node: _SearchNode) -> bool:
        done = all(count == len(row) for count, row in zip(node.done, self._rows, strict=True))
        at_rest = all(node.state.outcome_of(wait) is None for wait in node.state.waits.values())
        return done and at_rest and node.reported == self._receipts

    def _following(self, node: _SearchNode) -> Iterator[_SearchNode]:
        reported = self._report_one(node)
        if reported is not None:
            yield reported
        else:
            yield from self._next_actions(node)
            yield from self._unreported(node)

    def _next_actions(self, node: _SearchNode) -> Iterator[_SearchNode]:
        for index, row in enumerate(self._rows):
            if node.done[index] < len(row):
                action = row[node.done[index]]
                done = tuple(count + (number == index) for number, count in enumerate(node.done))
                for state in self._after(node.state, action):
                    yield _SearchNode(state, done, node.reported)

    def _after(self, state: ModelState, action: Action) -> Iterator[ModelState]:
        reported = self._observed.reported.get(action.number)
        if action.by and not state.is_live(action.by):
            if reported is None or action.by in self._terminated or action.kind == "receive":
                yield state
            return
        if self._may_be_lost(action, reported):
            yield state
        if reported in (DONE, "RetryExhaustedError") and self._is_too_late(state, action):
            yield state
        after, expected = state.after(action)
        if expected is None or reported == expected or (reported is None and self._may_be_silent(action)):
            yield after

    def _may_be_lost(self, action: Action, reported: str | None) -> bool:
        """Whether an action may not have taken effect although it has an outcome, or because its instance was being stopped.

        An instance reports its end and its next generation before they are committed.
        """
        if action.number in self._observed.unknown or action.by in self._terminated:
            return True
        return action.by in self._cancelled and (reported is None or action.kind in ("recur", "complete", "fail"))

    def _may_be_silent(self, action: Action) -> bool:
        return action.number in self._observed.unknown or action.by in self._cancelled | self._terminated

    def _is_too_late(self, state: ModelState, action: Action) -> bool:
        """Whether a message was accepted, but its target ended before the activity committed."""
        return (
            action.kind == "send_to"
            and action.activity
            and action.target in self._ending
            and not state.is_live(action.target)
        )

    def _report_one(self, node: _SearchNode) -> _SearchNode | None:
        """Answer a wait as early as possible: a later action could only take its outcome away."""
        for number, wait in node.state.waits.items():
            reported = self._observed.reported.get(number)
            if reported is not None and reported == node.state.outcome_of(wait):
                return _SearchNode(node.state.without(number), node.done, node.reported | {number})
        return None

    def _unreported(self, node: _SearchNode) -> Iterator[_SearchNode]:
        """A wait may have been answered before a crash without a report, if the instance was terminated afterwards."""
        for number, wait in node.state.waits.items() if self._observed.crashed else ():
            if wait.instance in self._terminated and node.state.outcome_of(wait) is not None:
                yield _SearchNode(node.state.without(number), node.done, node.reported)

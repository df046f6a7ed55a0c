"""What channels and groups promise, as a small model without a database, a worker or a crash.

A `World` is all that can matter: who has subscribed how, what is unread by whom, who waits, who lives. An `Act` changes it.
What happens at the same time may have happened in any order, and the caller of a process that died does not know whether he
was heard: so there are several worlds that can be the real one, and `possible` gives those which fit what was told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

What: TypeAlias = Literal[
    "start", "subscribe", "unsubscribe", "publish", "send_to", "send_to_group", "join", "leave", "members", "receive",
    "withdraw", "recur", "complete", "fail", "cancel", "terminate", "advance",
]  # fmt: skip
DONE = "done"
LIVE = "live"
SECOND = 1_000_000
_ENDS = {"complete": "completed", "fail": "failed", "cancel": "cancelled", "terminate": "terminated"}


@dataclass(frozen=True)
class Act:
    """Something that is done: by an instance, by one of its activities, or from outside."""

    number: int
    """Its own; the message it sends holds it."""
    what: What
    by: str = ""
    """The instance that does it; empty: somebody outside."""
    channel: str = ""
    mode: str = ""
    group: str = ""
    target: str = ""
    """The instance it is done to."""
    seconds: float | None = None
    activity: bool = False
    failures: int = 0
    """So many attempts of the activity fail, each after it has sent; two are made."""


class Unread(NamedTuple):
    """A message that somebody has still to read."""

    number: int
    at: int
    recipients: frozenset[str] | None
    """None: whoever takes it first."""


class Wait(NamedTuple):
    """A `receive` that has not returned."""

    instance: str
    channel: str
    due: int | None


@dataclass
class World:
    """One way things can stand."""

    now: int = 0
    lives: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    """How each instance is (`live`, or how it ended), and its generation."""
    modes: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """How an instance has subscribed to a channel."""
    unread: dict[str, tuple[Unread, ...]] = field(default_factory=dict[str, tuple[Unread, ...]])
    """The messages of a channel, oldest first."""
    members: frozenset[tuple[str, str]] = frozenset()
    waits: dict[int, Wait] = field(default_factory=dict[int, Wait])

    def copy(self) -> World:
        """Another that can be changed."""
        return World(self.now, dict(self.lives), dict(self.modes), dict(self.unread), self.members, dict(self.waits))

    @property
    def key(self) -> object:
        """Equal for worlds that are equal."""
        unread = frozenset((channel, found) for channel, found in self.unread.items() if found)
        lives, modes, waits = (frozenset(one.items()) for one in (self.lives, self.modes, self.waits))
        return self.now, lives, modes, unread, self.members, waits

    def is_live(self, instance: str) -> bool:
        """It exists and has not ended."""
        return self.lives.get(instance, ("", 0))[0] == LIVE

    def after(self, act: Act) -> tuple[World, str | None]:
        """The world in which this was done, and what its doer is told; None: nothing yet."""
        world = self.copy()
        return world, world._do(act)

    def _do(self, act: Act) -> str | None:
        if act.what == "send_to" and not self.is_live(act.target):
            return "InvalidWorkflowStateError" if act.target in self.lives else "WorkflowNotFoundError"
        if act.failures > 1:
            return "RetryExhaustedError"
        match act.what:
            case "start":
                self.lives.setdefault(act.target, (LIVE, 1))
            case "subscribe":
                return self._subscribe(act.by, act.channel, act.mode)
            case "unsubscribe":
                if self.modes.pop((act.by, act.channel), None) is not None:
                    self._let_go([act.channel], act.by)
            case "publish":
                self._put(act, self._audience(act.channel))
            case "send_to":
                self._put(act, frozenset({act.target}))
            case "send_to_group":
                self._put(act, frozenset(one for group, one in self.members if group == act.group))
            case "join":
                self.members |= {(act.group, act.by)}
            case "leave":
                return self._leave(act.group, act.by)
            case "members":
                return " ".join(["members", *sorted(one for group, one in self.members if group == act.group)])
            case "receive":
                due = None if act.seconds is None else self.now + round(act.seconds * SECOND)
                self.waits[act.number] = Wait(act.by, act.channel, due)
                return None
            case "withdraw":
                self._stop_waiting(act.by, act.channel)
            case "recur":
                self._stop_waiting(act.by)
                self.lives[act.by] = (LIVE, self.lives[act.by][1] + 1)
            case "complete" | "fail":
                self._end(act.by, _ENDS[act.what])
            case "cancel" | "terminate":
                return self._stop(act)
            case "advance":
                self.now += round((act.seconds or 0) * SECOND)
        return DONE

    def _subscribe(self, instance: str, channel: str, mode: str) -> str:
        own = self.modes.get((instance, channel))
        others = {used for (_, where), used in self.modes.items() if where == channel and used != "direct"}
        if (own is not None and own != mode) or (mode != "direct" and others - {mode}):
            return "ChannelModeConflictError"
        self.modes[instance, channel] = mode
        return DONE

    def _audience(self, channel: str) -> frozenset[str] | None:
        listening = frozenset(one for (one, where), mode in self.modes.items() if where == channel and mode == "broadcast")
        return listening or None

    def _put(self, act: Act, recipients: frozenset[str] | None) -> None:
        if recipients != frozenset():
            self.unread[act.channel] = (*self.unread.get(act.channel, ()), Unread(act.number, self.now, recipients))

    def _leave(self, group: str, instance: str) -> str:
        if (group, instance) not in self.members:
            return "GroupNotJoinedError"
        self.members -= {(group, instance)}
        return DONE

    def _stop(self, act: Act) -> str:
        if self.is_live(act.target):
            self._end(act.target, _ENDS[act.what])
            return DONE
        if act.target not in self.lives:
            return "WorkflowNotFoundError"
        return "WorkflowNotCancellableError" if act.what == "cancel" else "InvalidWorkflowStateError"

    def _end(self, instance: str, how: str) -> None:
        self.lives[instance] = (how, self.lives[instance][1])
        self.modes = {pair: mode for pair, mode in self.modes.items() if pair[0] != instance}
        self.members = frozenset(pair for pair in self.members if pair[1] != instance)
        self._stop_waiting(instance)
        self._let_go(list(self.unread), instance)

    def _stop_waiting(self, instance: str, channel: str | None = None) -> None:
        own = [number for number, wait in self.waits.items() if wait[0] == instance and channel in (None, wait[1])]
        for number in own:
            del self.waits[number]

    def _let_go(self, channels: Iterable[str], instance: str) -> None:
        """What an instance has not read is not for it any more."""
        for channel in channels:
            self.unread[channel] = tuple(_without(self.unread.get(channel, ()), instance))

    # --- waiting

    def outcome_of(self, wait: Wait) -> str | None:
        """What a wait would be told now; None: nothing, it goes on."""
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

    def without(self, number: int) -> World:
        """The world in which a wait has been told what it would be told now."""
        world = self.copy()
        wait = world.waits.pop(number)
        first = world._first(wait, world.modes.get((wait.instance, wait.channel), ""))
        if first is not None and (self.outcome_of(wait) or "").startswith("got"):
            world._read(wait, first)
        return world

    def _read(self, wait: Wait, read: Unread) -> None:
        left = [message for message in self.unread[wait.channel] if message != read]
        if read.recipients is not None:
            left = list(_without(self.unread[wait.channel], wait.instance, read.number))
        self.unread[wait.channel] = tuple(left)


def _without(messages: Iterable[Unread], instance: str, number: int | None = None) -> Iterator[Unread]:
    """Messages that are not for an instance any more: all of them, or one."""
    for message in messages:
        if message.recipients is None or instance not in message.recipients or number not in (None, message.number):
            yield message
        elif left := message.recipients - {instance}:
            yield message._replace(recipients=left)


@dataclass(frozen=True)
class Heard:
    """What was told of acts that were done at the same time."""

    told: Mapping[int, str]
    """By the number of the act."""
    unsure: Collection[int] = ()
    """Acts from outside whose caller was not answered: done or not."""
    crashed: bool = False
    """The process died meanwhile."""


class _Place(NamedTuple):
    """How far a search has come: the world, how much of each row of acts was done, and which waits were told."""

    world: World
    done: tuple[int, ...]
    told: frozenset[int]


def possible(worlds: Iterable[World], rows: Sequence[Sequence[Act]], heard: Heard) -> list[World]:
    """The worlds that can have come of rows of acts, each done one after another, and all rows at the same time."""
    search = _Search(rows, heard)
    search.todo = [_Place(world, (0,) * len(rows), frozenset()) for world in worlds]
    return search.run()


class _Search:
    def __init__(self, rows: Sequence[Sequence[Act]], heard: Heard) -> None:
        self._rows = rows
        self._heard = heard
        self._receipts = frozenset(heard.told) - {act.number for row in rows for act in row if act.what != "receive"}
        """Waits that were told something."""
        self._cancelled = {act.target for row in rows for act in row if act.what == "cancel"}
        self._terminated = {act.target for row in rows for act in row if act.what == "terminate"}
        leaving = {act.by for row in rows for act in row if act.what in ("complete", "fail")}
        self._going = self._cancelled | self._terminated | leaving
        self.todo: list[_Place] = []

    def run(self) -> list[World]:
        seen: set[object] = set()
        found: dict[object, World] = {}
        while self.todo:
            place = self.todo.pop()
            key = place.world.key, place.done, place.told
            if key not in seen:
                seen.add(key)
                if self._is_end(place):
                    found[place.world.key] = place.world
                self.todo += self._following(place)
        return list(found.values())

    def _is_end(self, place: _Place) -> bool:
        done = all(count == len(row) for count, row in zip(place.done, self._rows, strict=True))
        at_rest = all(place.world.outcome_of(wait) is None for wait in place.world.waits.values())
        return done and at_rest and place.told == self._receipts

    def _following(self, place: _Place) -> Iterator[_Place]:
        told = self._tell_one(place)
        if told is not None:
            yield told
        else:
            yield from self._acts(place)
            yield from self._untold(place)

    def _acts(self, place: _Place) -> Iterator[_Place]:
        for index, row in enumerate(self._rows):
            if place.done[index] < len(row):
                act = row[place.done[index]]
                done = tuple(count + (number == index) for number, count in enumerate(place.done))
                for world in self._after(place.world, act):
                    yield _Place(world, done, place.told)

    def _after(self, world: World, act: Act) -> Iterator[World]:
        told = self._heard.told.get(act.number)
        if act.by and not world.is_live(act.by):
            if told is None or act.by in self._terminated or act.what == "receive":
                yield world
            return
        if self._may_be_lost(act, told):
            yield world
        if told in (DONE, "RetryExhaustedError") and self._came_too_late(world, act):
            yield world
        after, expected = world.after(act)
        if expected is None or told == expected or (told is None and self._may_be_silent(act)):
            yield after

    def _may_be_lost(self, act: Act, told: str | None) -> bool:
        """An instance that is being stopped need not come to it. A terminated one can tell of what was not written.

        Of its end, and of its next generation, an instance tells before.
        """
        if act.number in self._heard.unsure or act.by in self._terminated:
            return True
        return act.by in self._cancelled and (told is None or act.what in ("recur", "complete", "fail"))

    def _may_be_silent(self, act: Act) -> bool:
        return act.number in self._heard.unsure or act.by in self._cancelled | self._terminated

    def _came_too_late(self, world: World, act: Act) -> bool:
        """It was welcome when it was done; before it had its effect, who it was for had ended."""
        return act.what == "send_to" and act.activity and act.target in self._going and not world.is_live(act.target)

    def _tell_one(self, place: _Place) -> _Place | None:
        """A wait is told what it was told. At once: what is done before it could only take that away."""
        for number, wait in place.world.waits.items():
            told = self._heard.told.get(number)
            if told is not None and told == place.world.outcome_of(wait):
                return _Place(place.world.without(number), place.done, place.told | {number})
        return None

    def _untold(self, place: _Place) -> Iterator[_Place]:
        """What an instance got before a crash, after which it was terminated, is recorded, but it told nobody."""
        for number, wait in place.world.waits.items() if self._heard.crashed else ():
            if wait.instance in self._terminated and place.world.outcome_of(wait) is not None:
                yield _Place(place.world.without(number), place.done, place.told)

"""What may happen to a store, step by step, as data that hypothesis can make and shrink.

A step says who does what. What it takes to write that (epochs, lengths, numbers of mails) the player knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from hypothesis import strategies as st

# Names that some databases would take for the same.
WHO = ("a", "A", "ä", "b")
CHANNELS = ("x", "X", "x ")
TYPES = ("e", "E", "é")
GROUPS = ("g", "G")
WORKERS = ("w1", "w2")


@dataclass(frozen=True)
class Event:
    """An event: for everybody, or for one; with a subject or without; a new one or the last one again."""

    type: str
    to: str | None = None
    subject: str | None = None
    again: bool = False


@dataclass(frozen=True)
class Message:
    """A message: `how` is publish, send or group."""

    how: str
    to: str
    channel: str


@dataclass(frozen=True)
class Bond:
    """`how` is join or unsubscribe."""

    how: str
    what: str


@dataclass(frozen=True)
class Wait:
    """A wait for an event, or for a message if there is a channel; one that is pending already, or a new one."""

    key: str
    message: bool = False
    subject: str | None = None
    match: bool = False
    due: int | None = None


@dataclass(frozen=True)
class Question:
    """`how` is subscribe (with a mode), leave, members or send."""

    how: str
    what: str
    mode: str = "broadcast"


Deed: TypeAlias = Event | Message | Bond
Ask: TypeAlias = Wait | Question


@dataclass(frozen=True)
class Start:
    """A new instance."""

    who: str
    owner: str | None = "w1"
    broken: bool = False
    other: bool = False
    """With other arguments than usual."""


@dataclass(frozen=True)
class Go:
    """A run goes on."""

    who: str
    deeds: tuple[Deed, ...] = ()
    asks: tuple[Ask, ...] = ()
    entries: int = 0
    release: bool = False
    unseen: bool = False
    """It has not looked at what arrived last."""
    consume: bool = False
    withdraw: bool = False
    attempt: str = ""
    """open, failed or closed."""
    timer: bool = False
    slip: str = ""
    """What it is wrong about: epoch, length, worker or generation."""
    then: str = ""
    """complete, fail, cancel, pause, block, compensate, recur, forget (recur, and nothing is kept)."""


@dataclass(frozen=True)
class Tell:
    """Something comes from outside."""

    what: Event | Message


@dataclass(frozen=True)
class Steer:
    """A request: cancel, pause, resume, terminate, retry."""

    who: str
    kind: str


@dataclass(frozen=True)
class Hold:
    """A worker enlists, claims (everything, one, or what is blocked), releases or is swept; kinds are stranded."""

    how: str
    worker: str = "w1"
    who: str | None = None


@dataclass(frozen=True)
class Clean:
    """prune, forget or trim what is older than so many steps."""

    how: str
    age: int = 0


@dataclass(frozen=True)
class Handle:
    """Events of a type start workflows of that name from now on, or no more."""

    type: str
    yes: bool = True


@dataclass(frozen=True)
class Together:
    """Several writes in one batch that do not get into each other's way."""

    steps: tuple[Start, ...] | tuple[Go, ...] | tuple[Tell, ...]


Step: TypeAlias = Start | Go | Tell | Steer | Hold | Clean | Handle | Together


def _rarely(value: str, *others: str) -> st.SearchStrategy[str]:
    """The first most of the time."""
    return st.integers(0, 11).map(lambda number: (value, *others)[number] if number < 1 + len(others) else value)


_who = st.sampled_from(WHO)
_channel = st.sampled_from(CHANNELS)
_type = st.sampled_from(TYPES)
_group = st.sampled_from(GROUPS)
_subject = st.sampled_from((None, None, "s"))
_events = st.builds(Event, _type, st.none() | _who, _subject, st.integers(0, 9).map(lambda number: number == 9))
_messages = (
    st.builds(Message, st.just("publish"), st.just(""), _channel)
    | st.builds(Message, st.just("send"), _who, _channel)
    | st.builds(Message, st.just("group"), _group, _channel)
)
_bonds = st.builds(Bond, st.just("join"), _group) | st.builds(Bond, st.just("unsubscribe"), _channel)
_due = st.sampled_from((None, None, None, 0, 15))
_waits = st.builds(Wait, _type, st.just(False), _subject, st.booleans(), _due) | st.builds(
    Wait, _channel, st.just(True), st.none(), st.just(False), _due
)
_modes = st.sampled_from(("broadcast", "competing", "competing", "direct"))
_questions = (
    st.builds(Question, st.just("subscribe"), _channel, _modes)
    | st.builds(Question, st.sampled_from(("leave", "members")), _group)
    | st.builds(Question, st.just("send"), _who)
)
_deeds = st.lists(_messages | _bonds, max_size=2) | st.lists(_events | _bonds, max_size=2)
"""Not events and messages together: which of them came first, nobody says."""
_asks = st.lists(_waits, max_size=2) | st.lists(_questions, max_size=2) | st.lists(_waits | _questions, max_size=3)
_starts = st.builds(
    Start,
    _who,
    st.sampled_from(("w1", "w1", "w2", None)),
    st.integers(0, 9).map(lambda number: number == 9),
    st.integers(0, 9).map(lambda number: number == 9),
)
_runs = st.builds(
    Go,
    _who,
    _deeds.map(tuple),
    _asks.map(tuple),
    st.integers(0, 2),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    _rarely("", "open", "failed", "closed"),
    st.booleans(),
    _rarely("", "epoch", "length", "worker", "generation"),
    _rarely("", "complete", "fail", "cancel", "pause", "block", "compensate", "recur", "forget"),
)
_waiting = st.builds(Go, _who, asks=st.tuples(_waits), release=st.just(True), unseen=st.booleans())
_tells = st.builds(Tell, _events | _messages)
_steers = st.builds(Steer, _who, st.sampled_from(("cancel", "pause", "resume", "terminate", "retry")))
_holds = (
    st.builds(
        Hold, st.sampled_from(("claim", "claim", "claim", "claim blocked")), st.sampled_from(WORKERS), st.none() | _who
    )
    | st.builds(Hold, st.sampled_from(("enlist", "release", "sweep")), st.sampled_from(WORKERS))
    | st.builds(Hold, st.just("strand"))
)
_cleans = st.builds(Clean, st.sampled_from(("prune", "forget", "trim")), st.integers(0, 4))
_plain_events = st.builds(Event, _type, st.none() | _who, _subject, st.booleans())
_plain_waits = st.builds(Wait, _type, st.just(False), _subject, st.just(False), _due)
_crowds = (
    st.lists(_starts, min_size=2, max_size=4, unique_by=lambda step: step.who)
    | st.lists(st.builds(Tell, _plain_events), min_size=2, max_size=4)
    | st.lists(
        st.builds(Go, _who, asks=st.tuples(_plain_waits), release=st.just(True), unseen=st.booleans()),
        min_size=2,
        max_size=4,
        unique_by=lambda step: step.who,
    )
    | st.lists(
        st.builds(Go, _who, entries=st.integers(0, 2), timer=st.booleans(), release=st.booleans(), consume=st.booleans()),
        min_size=2,
        max_size=4,
        unique_by=lambda step: step.who,
    )
)
_together = st.builds(Together, _crowds.map(tuple))
_others = _steers | _cleans | st.builds(Handle, _type, st.booleans())
_each = _starts | _runs | _waiting | _tells | _runs | _waiting | _tells | _holds | _holds | _others | _together
_beginning = st.lists(st.sampled_from((*WORKERS, None)), max_size=3)


def story(owners: list[str | None], rest: list[Step]) -> list[Step]:
    """Some instances, and what happens to them."""
    return [*(Start(who, owner) for who, owner in zip(WHO, owners, strict=False)), *rest]


def stories() -> st.SearchStrategy[list[Step]]:
    """Stories of chance."""
    return st.builds(story, _beginning, st.lists(_each, max_size=25))

"""What may happen to a store, step by step, as data: made by chance, and made shorter when something is wrong.

A step says who does what. What it takes to write that (epochs, lengths, numbers of mails) the player knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, TypeAlias

# Names that some databases would take for the same.
WHO = ("a", "A", "ä", "b")
CHANNELS = ("x", "X", "x ")
TYPES = ("e", "E", "é")
GROUPS = ("g", "G")
WORKERS = ("w1", "w2")
MODES = ("broadcast", "competing", "direct")


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


Effect: TypeAlias = Event | Message | Bond
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
    effects: tuple[Effect, ...] = ()
    store_calls: tuple[Ask, ...] = ()
    entries: int = 0
    release: bool = False
    unseen: bool = False
    """It has not looked at what arrived last."""
    consume: bool = False
    withdraw: bool = False
    attempt: str = ""
    """open, failed or closed."""
    timer: bool = False
    """If it lets go, it is due at some time."""
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


def tell(chance: Random) -> list[Step]:
    """A story of chance: some instances, and what happens to them."""
    owners = [chance.choice(("w1", "w1", "w2", None)) for _ in range(chance.randint(2, len(WHO)))]
    jobs = chance.random() < 0.3
    mode = "competing" if jobs else chance.choice(MODES)
    bound = [_bound(chance, who, mode) for who in WHO[: len(owners)] if chance.random() < 0.8]
    begun: list[Step] = [*map(Start, WHO, owners), *bound]
    if jobs:
        begun += [*(_at_work(go.who) for go in bound), Tell(Message("publish", "", CHANNELS[0]))]
    step = _job if jobs else _step
    return begun + [step(chance) for _ in range(chance.randint(15, 35))]


def _bound(chance: Random, who: str, mode: str) -> Go:
    """It belongs to what the others belong to."""
    effects = (Bond("join", GROUPS[0]),) if chance.random() < 0.3 else ()
    return Go(who, effects, (Question("subscribe", CHANNELS[0], mode),))


def _step(chance: Random) -> Step:
    makes = (_run, _waiting, _tell, _claim, _hold, _steer, _start, _together, _clean, _handle)
    (make,) = chance.choices(makes, (30, 15, 22, 12, 4, 7, 4, 8, 3, 1))
    return make(chance)


def _at_work(who: str) -> Go:
    return Go(who, store_calls=(Wait(CHANNELS[0], message=True),), release=True)


def _job(chance: Random) -> Step:
    """All wait for the same messages, and some do not come for theirs."""
    match chance.choices(range(5), (9, 2, 3, 2, 2))[0]:  # more who wait than messages, or nobody would wait
        case 0:
            return _at_work(_who(chance))
        case 1:
            return Tell(Message("publish", "", CHANNELS[0]))
        case 2:
            then = chance.choice(("complete", "fail", "pause", "block", "recur", ""))
            return Go(_who(chance), unseen=True, withdraw=True, then=then)
        case 3:
            return Steer(_who(chance), chance.choice(("pause", "resume", "terminate")))
        case _:
            return _step(chance)


def _of(chance: Random, names: Sequence[str]) -> str:
    """The first most of the time, so that they meet."""
    return chance.choices(names, [8, 3, 1, 1][: len(names)])[0]


def _who(chance: Random) -> str:
    return chance.choices(WHO, (5, 4, 2, 1))[0]


def _maybe(chance: Random, likely: float, *others: str) -> str:
    return chance.choice(others) if chance.random() < likely else ""


def _event(chance: Random) -> Event:
    to = _who(chance) if chance.random() < 0.2 else None
    return Event(_of(chance, TYPES), to, chance.choice((None, None, "s")), chance.random() < 0.1)


def _message(chance: Random) -> Message:
    channel = _of(chance, CHANNELS)
    match chance.randrange(5):
        case 0:
            return Message("send", _who(chance), channel)
        case 1:
            return Message("group", _of(chance, GROUPS), channel)
        case _:
            return Message("publish", "", channel)


def _wait(chance: Random) -> Wait:
    due = chance.choice((None, None, None, 0, 5, 25))
    if chance.random() < 0.5:
        return Wait(_of(chance, CHANNELS), True, None, False, due)
    return Wait(_of(chance, TYPES), False, chance.choice((None, None, "s")), chance.random() < 0.3, due)


def _question(chance: Random) -> Question:
    match chance.randrange(6):
        case 0:
            return Question("leave", _of(chance, GROUPS))
        case 1:
            return Question("members", _of(chance, GROUPS))
        case 2:
            return Question("send", _who(chance))
        case _:
            return Question("subscribe", _of(chance, CHANNELS), chance.choices(MODES, (2, 4, 1))[0])


def _effects(chance: Random) -> tuple[Effect, ...]:
    """Not events and messages together: which of them came first, nobody says."""
    say = chance.choice((_event, _message))
    effects: list[Effect] = []
    for _ in range(chance.choice((0, 0, 1, 2))):
        bond = Bond("join", _of(chance, GROUPS)) if chance.random() < 0.6 else Bond("unsubscribe", _of(chance, CHANNELS))
        effects.append(say(chance) if chance.random() < 0.6 else bond)
    return tuple(effects)


def _asks(chance: Random) -> tuple[Ask, ...]:
    make = chance.choice((_wait, _wait, _question))
    return tuple(make(chance) for _ in range(chance.choice((0, 1, 1, 2))))


def _run(chance: Random) -> Go:
    effects, store_calls = _effects(chance), _asks(chance)
    if any(isinstance(effect, Event) for effect in effects):
        store_calls = tuple(ask for ask in store_calls if isinstance(ask, Wait) or ask.how != "send")
    return Go(
        _who(chance),
        effects,
        store_calls,
        chance.choice((0, 0, 1, 2)),
        chance.random() < 0.5,
        chance.random() < 0.3,
        chance.random() < 0.3,
        chance.random() < 0.2,
        _maybe(chance, 0.2, "open", "failed", "closed"),
        chance.random() < 0.3,
        _maybe(chance, 0.06, "epoch", "length", "worker", "generation"),
        _maybe(chance, 0.15, "complete", "fail", "cancel", "pause", "block", "compensate", "recur", "forget"),
    )


def _waiting(chance: Random) -> Go:
    return Go(_who(chance), store_calls=(_wait(chance),), release=True, unseen=chance.random() < 0.2)


def _tell(chance: Random) -> Tell:
    return Tell(chance.choice((_event, _message))(chance))


def _claim(chance: Random) -> Hold:
    how = "claim blocked" if chance.random() < 0.2 else "claim"
    return Hold(how, chance.choice(WORKERS), _who(chance) if chance.random() < 0.3 else None)


def _hold(chance: Random) -> Hold:
    return Hold(chance.choice(("enlist", "enlist", "release", "sweep", "strand")), chance.choice(WORKERS))


def _steer(chance: Random) -> Steer:
    return Steer(_who(chance), chance.choice(("cancel", "pause", "resume", "resume", "terminate", "retry", "retry")))


def _start(chance: Random) -> Start:
    owner = chance.choice(("w1", "w2", None))
    return Start(_who(chance), owner, chance.random() < 0.1, chance.random() < 0.1)


def _clean(chance: Random) -> Clean:
    return Clean(chance.choice(("prune", "forget", "trim")), chance.randint(0, 8))


def _handle(chance: Random) -> Handle:
    return Handle(_of(chance, TYPES), chance.random() < 0.7)


def _together(chance: Random) -> Together:
    who = chance.sample(WHO, chance.randint(2, len(WHO)))
    match chance.randrange(4):
        case 0:
            return Together(tuple(replace(_start(chance), who=one) for one in who))
        case 1:
            return Together(tuple(Tell(_event(chance)) for _ in who))
        case 2:
            wait = Wait(_of(chance, TYPES), False, chance.choice((None, "s")), False, chance.choice((None, None, 0, 25)))
            return Together(tuple(Go(one, store_calls=(wait,), release=True, unseen=chance.random() < 0.2) for one in who))
        case _:
            return Together(tuple(_plain(chance, one) for one in who))


def _plain(chance: Random, who: str) -> Go:
    """What concerns nobody else."""
    entries, release, timer = chance.randint(0, 2), chance.random() < 0.4, chance.random() < 0.4
    return Go(who, entries=entries, release=release, timer=timer, consume=chance.random() < 0.3)


# --- a shorter story that ends the same


def shortened(story: Sequence[Step], fails: Callable[[Sequence[Step]], bool]) -> list[Step]:
    """Leave out what is not needed for it to fail."""
    best, size = list(story), len(story) // 2
    while size:
        place = 0
        while place < len(best):
            without = best[:place] + best[place + size :]
            if fails(without):
                best = without
            else:
                place += size
        size //= 2
    for place, step in enumerate(best):
        for plainer in _plainer(step):
            changed = [*best[:place], plainer, *best[place + 1 :]]
            if fails(changed):
                best = changed
    return best


def _plainer(step: Step) -> Iterator[Step]:
    """The same step without one thing after another."""
    if isinstance(step, Go):
        usual: dict[str, Any] = {"effects": (), "store_calls": (), "entries": 0, "attempt": "", "then": "", "slip": ""}
        flags = dict.fromkeys(("release", "unseen", "consume", "withdraw", "timer"), False)
        for name, value in {**usual, **flags}.items():
            if getattr(step, name) != value:
                step = replace(step, **{name: value})
                yield step

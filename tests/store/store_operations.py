"""Random operations on a store as data, and their reduction to a short sequence that still fails.

An operation names an instance and an action. `DifferentialRun` adds what the write needs: epochs, lengths, inbox versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, TypeAlias

# Names that some collations treat as equal.
INSTANCES = ("a", "A", "ä", "b")
CHANNELS = ("x", "X", "x ")
TYPES = ("e", "E", "é")
GROUPS = ("g", "G")
WORKERS = ("w1", "w2")
MODES = ("broadcast", "competing", "direct")


@dataclass(frozen=True)
class Event:
    """An event: for any instance or for one, with a subject or without, new or a duplicate of the last one."""

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
class Membership:
    """A change of memberships: `how` is join or unsubscribe."""

    how: str
    what: str


@dataclass(frozen=True)
class Wait:
    """A wait for an event or a message: a pending one again, or a new one."""

    key: str
    message: bool = False
    subject: str | None = None
    match: bool = False
    due: int | None = None


@dataclass(frozen=True)
class Command:
    """A store call other than a wait: `how` is subscribe (with a mode), leave, members or send."""

    how: str
    what: str
    mode: str = "broadcast"


Effect: TypeAlias = Event | Message | Membership
Call: TypeAlias = Wait | Command


@dataclass(frozen=True)
class Start:
    """A new instance."""

    who: str
    owner: str | None = "w1"
    broken: bool = False
    other: bool = False
    """With arguments that differ from the usual ones."""


@dataclass(frozen=True)
class Advance:
    """A transition of a run."""

    who: str
    effects: tuple[Effect, ...] = ()
    store_calls: tuple[Call, ...] = ()
    entries: int = 0
    release: bool = False
    unseen: bool = False
    """With an inbox version that is one too low."""
    consume: bool = False
    withdraw: bool = False
    attempt: str = ""
    """open, failed or closed."""
    timer: bool = False
    """If the instance is released, it has a timer."""
    mistake: str = ""
    """A wrong field: epoch, length, worker or generation."""
    then: str = ""
    """complete, fail, cancel, pause, block, compensate, recur, forget (recur without an archive)."""


@dataclass(frozen=True)
class SendExternal:
    """An event or a message from outside."""

    what: Event | Message


@dataclass(frozen=True)
class Control:
    """A control request: cancel, pause, resume, terminate, retry."""

    who: str
    kind: str


@dataclass(frozen=True)
class Hold:
    """A worker registers, claims (all, one, or blocked instances), releases or is swept; or kinds are marked unrunnable."""

    how: str
    worker: str = "w1"
    who: str | None = None


@dataclass(frozen=True)
class Prune:
    """Delete what is older than so many steps: prune (instances), forget (messaging) or trim (generations)."""

    how: str
    age: int = 0


@dataclass(frozen=True)
class SetHandler:
    """Events of a type start workflows of that name from now on, or no longer do."""

    type: str
    yes: bool = True


@dataclass(frozen=True)
class Batch:
    """Several independent writes in one batch."""

    steps: tuple[Start, ...] | tuple[Advance, ...] | tuple[SendExternal, ...]


Step: TypeAlias = Start | Advance | SendExternal | Control | Hold | Prune | SetHandler | Batch


def random_steps(rng: Random) -> list[Step]:
    """A random sequence: some new instances, and operations on them."""
    owners = [rng.choice(("w1", "w1", "w2", None)) for _ in range(rng.randint(2, len(INSTANCES)))]
    competing = rng.random() < 0.3
    mode = "competing" if competing else rng.choice(MODES)
    subscriptions = [_join_and_subscribe(rng, who, mode) for who in INSTANCES[: len(owners)] if rng.random() < 0.8]
    begun: list[Step] = [*map(Start, INSTANCES, owners), *subscriptions]
    if competing:
        begun += [*(_receive(go.who) for go in subscriptions), SendExternal(Message("publish", "", CHANNELS[0]))]
    step = _competing_step if competing else _step
    return begun + [step(rng) for _ in range(rng.randint(15, 35))]


def _join_and_subscribe(rng: Random, who: str, mode: str) -> Advance:
    """The instance joins and subscribes as the others do."""
    effects = (Membership("join", GROUPS[0]),) if rng.random() < 0.3 else ()
    return Advance(who, effects, (Command("subscribe", CHANNELS[0], mode),))


def _step(rng: Random) -> Step:
    makes = (_transition, _waiting, _send_external, _claim, _hold, _control, _start, _batch, _prune, _set_handler)
    (make,) = rng.choices(makes, (30, 15, 22, 12, 4, 7, 4, 8, 3, 1))
    return make(rng)


def _receive(who: str) -> Advance:
    return Advance(who, store_calls=(Wait(CHANNELS[0], message=True),), release=True)


def _competing_step(rng: Random) -> Step:
    """An operation among competing subscribers, some of which do not receive their messages."""
    match rng.choices(range(5), (9, 2, 3, 2, 2))[0]:  # more waits than messages, otherwise no instance would wait
        case 0:
            return _receive(_instance(rng))
        case 1:
            return SendExternal(Message("publish", "", CHANNELS[0]))
        case 2:
            then = rng.choice(("complete", "fail", "pause", "block", "recur", ""))
            return Advance(_instance(rng), unseen=True, withdraw=True, then=then)
        case 3:
            return Control(_instance(rng), rng.choice(("pause", "resume", "terminate")))
        case _:
            return _step(rng)


def _mostly_first(rng: Random, names: Sequence[str]) -> str:
    """One of the names, mostly the first, so that the operations meet."""
    return rng.choices(names, [8, 3, 1, 1][: len(names)])[0]


def _instance(rng: Random) -> str:
    return rng.choices(INSTANCES, (5, 4, 2, 1))[0]


def _maybe(rng: Random, likely: float, *others: str) -> str:
    return rng.choice(others) if rng.random() < likely else ""


def _event(rng: Random) -> Event:
    to = _instance(rng) if rng.random() < 0.2 else None
    return Event(_mostly_first(rng, TYPES), to, rng.choice((None, None, "s")), rng.random() < 0.1)


def _message(rng: Random) -> Message:
    channel = _mostly_first(rng, CHANNELS)
    match rng.randrange(5):
        case 0:
            return Message("send", _instance(rng), channel)
        case 1:
            return Message("group", _mostly_first(rng, GROUPS), channel)
        case _:
            return Message("publish", "", channel)


def _wait(rng: Random) -> Wait:
    due = rng.choice((None, None, None, 0, 5, 25))
    if rng.random() < 0.5:
        return Wait(_mostly_first(rng, CHANNELS), True, None, False, due)
    return Wait(_mostly_first(rng, TYPES), False, rng.choice((None, None, "s")), rng.random() < 0.3, due)


def _command(rng: Random) -> Command:
    match rng.randrange(6):
        case 0:
            return Command("leave", _mostly_first(rng, GROUPS))
        case 1:
            return Command("members", _mostly_first(rng, GROUPS))
        case 2:
            return Command("send", _instance(rng))
        case _:
            return Command("subscribe", _mostly_first(rng, CHANNELS), rng.choices(MODES, (2, 4, 1))[0])


def _effects(rng: Random) -> tuple[Effect, ...]:
    """Effects with events or with messages, not both, because their order is not specified."""
    make = rng.choice((_event, _message))
    effects: list[Effect] = []
    for _ in range(rng.choice((0, 0, 1, 2))):
        membership = (
            Membership("join", _mostly_first(rng, GROUPS))
            if rng.random() < 0.6
            else Membership("unsubscribe", _mostly_first(rng, CHANNELS))
        )
        effects.append(make(rng) if rng.random() < 0.6 else membership)
    return tuple(effects)


def _store_calls(rng: Random) -> tuple[Call, ...]:
    make = rng.choice((_wait, _wait, _command))
    return tuple(make(rng) for _ in range(rng.choice((0, 1, 1, 2))))


def _transition(rng: Random) -> Advance:
    effects, store_calls = _effects(rng), _store_calls(rng)
    if any(isinstance(effect, Event) for effect in effects):
        store_calls = tuple(call for call in store_calls if isinstance(call, Wait) or call.how != "send")
    return Advance(
        _instance(rng),
        effects,
        store_calls,
        rng.choice((0, 0, 1, 2)),
        rng.random() < 0.5,
        rng.random() < 0.3,
        rng.random() < 0.3,
        rng.random() < 0.2,
        _maybe(rng, 0.2, "open", "failed", "closed"),
        rng.random() < 0.3,
        _maybe(rng, 0.06, "epoch", "length", "worker", "generation"),
        _maybe(rng, 0.15, "complete", "fail", "cancel", "pause", "block", "compensate", "recur", "forget"),
    )


def _waiting(rng: Random) -> Advance:
    return Advance(_instance(rng), store_calls=(_wait(rng),), release=True, unseen=rng.random() < 0.2)


def _send_external(rng: Random) -> SendExternal:
    return SendExternal(rng.choice((_event, _message))(rng))


def _claim(rng: Random) -> Hold:
    how = "claim blocked" if rng.random() < 0.2 else "claim"
    return Hold(how, rng.choice(WORKERS), _instance(rng) if rng.random() < 0.3 else None)


def _hold(rng: Random) -> Hold:
    return Hold(rng.choice(("register", "register", "release", "sweep", "mark unrunnable")), rng.choice(WORKERS))


def _control(rng: Random) -> Control:
    return Control(_instance(rng), rng.choice(("cancel", "pause", "resume", "resume", "terminate", "retry", "retry")))


def _start(rng: Random) -> Start:
    owner = rng.choice(("w1", "w2", None))
    return Start(_instance(rng), owner, rng.random() < 0.1, rng.random() < 0.1)


def _prune(rng: Random) -> Prune:
    return Prune(rng.choice(("prune", "forget", "trim")), rng.randint(0, 8))


def _set_handler(rng: Random) -> SetHandler:
    return SetHandler(_mostly_first(rng, TYPES), rng.random() < 0.7)


def _batch(rng: Random) -> Batch:
    who = rng.sample(INSTANCES, rng.randint(2, len(INSTANCES)))
    match rng.randrange(4):
        case 0:
            return Batch(tuple(replace(_start(rng), who=one) for one in who))
        case 1:
            return Batch(tuple(SendExternal(_event(rng)) for _ in who))
        case 2:
            wait = Wait(_mostly_first(rng, TYPES), False, rng.choice((None, "s")), False, rng.choice((None, None, 0, 25)))
            return Batch(tuple(Advance(one, store_calls=(wait,), release=True, unseen=rng.random() < 0.2) for one in who))
        case _:
            return Batch(tuple(_independent(rng, one) for one in who))


def _independent(rng: Random, who: str) -> Advance:
    """A transition that does not affect other instances."""
    entries, release, timer = rng.randint(0, 2), rng.random() < 0.4, rng.random() < 0.4
    return Advance(who, entries=entries, release=release, timer=timer, consume=rng.random() < 0.3)


# --- reduction


def reduce(steps: Sequence[Step], fails: Callable[[Sequence[Step]], bool]) -> list[Step]:
    """Leave out all steps that the failure does not need."""
    best, size = list(steps), len(steps) // 2
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
        for simpler in _simpler(step):
            changed = [*best[:place], simpler, *best[place + 1 :]]
            if fails(changed):
                best = changed
    return best


def _simpler(step: Step) -> Iterator[Step]:
    """The same step with one property less each time."""
    if isinstance(step, Advance):
        usual: dict[str, Any] = {"effects": (), "store_calls": (), "entries": 0, "attempt": "", "then": "", "mistake": ""}
        flags = dict.fromkeys(("release", "unseen", "consume", "withdraw", "timer"), False)
        for name, value in {**usual, **flags}.items():
            if getattr(step, name) != value:
                step = replace(step, **{name: value})
                yield step

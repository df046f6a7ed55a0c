"""Channels and groups do what a small model of them says, in any order of acts, crashes and ends."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine
from typing import Any, ClassVar, NamedTuple

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from tests.property.channel_model import Act, What
from tests.property.channel_puppets import Divergence, Stage
from tests.property.settings import examples, unhurried

_USUAL = 4
"""So many instances live at the same time, as long as there are new ones."""
_MOST = 8
"""So many instances are started at most; one more is known to nobody."""
_MANY_WORLDS = 40
"""With so many ways in which things can stand, nothing more is done at the same time."""

CHANNELS = ("news", "work")
INSTANCES = tuple(f"p{number}" for number in range(_MOST + 1))
who = st.integers(0, 3)
"""One of those who live."""
anybody = st.one_of(who, who, st.sampled_from(INSTANCES))
somebody = st.one_of(st.none(), who, who)
"""One of those who live, or somebody outside."""
where = st.sampled_from(CHANNELS)
groups = st.sampled_from(["red", "blue"])
modes = st.sampled_from(["broadcast", "competing", "direct"])
patience = st.sampled_from([None, None, 1.0, 3.0])
at_once = st.booleans()
"""Whether the next act is done at the same time."""
failures = st.sampled_from([None, None, 0, 1, 2])
"""How many attempts of the activity that speaks fail; None: the workflow speaks itself."""


class Talk(NamedTuple):
    """Something that is said or listened for."""

    what: What
    by: int | None
    channel: str
    target: int | str
    group: str
    seconds: float | None
    failures: int | None
    together: bool


_TALKING: tuple[What, ...] = ("publish", "publish", "send_to", "send_to_group", "receive", "receive", "receive", "withdraw")
talks = st.builds(Talk, st.sampled_from(_TALKING), somebody, where, anybody, groups, patience, failures, at_once)


class Channels(RuleBasedStateMachine):
    """Puppets that talk, crash and end."""

    environment: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._numbers = itertools.count(1)
        self._together: list[Act] = []
        self._started = 0
        self._fine = True
        self._stage: Stage | None = None

    @property
    def stage(self) -> Stage:
        assert self._stage is not None
        return self._stage

    # --- acts

    @initialize(seed=st.integers(0, 2**32), used=st.tuples(modes, modes), apart=st.sets(st.tuples(who, where), max_size=3))
    def open(self, seed: int, used: tuple[str, str], apart: set[tuple[int, str]]) -> None:
        """Nearly everybody subscribes to everything."""
        self._stage = Stage(seed, **self.environment)
        self._run(self.stage.open())
        for number in range(_USUAL):
            self._start()
            for channel, mode in zip(CHANNELS, used, strict=True):
                if (number, channel) not in apart:
                    self._act("subscribe", by=number, channel=channel, mode=mode)

    @rule(scene=st.lists(talks, min_size=1, max_size=4))
    def talk(self, scene: list[Talk]) -> None:
        for one in scene:
            match one.what:
                case "receive":
                    self._act(one.what, one.together, by=one.by or 0, channel=one.channel, seconds=one.seconds)
                case "withdraw":
                    self._act(one.what, one.together, by=one.by or 0, channel=one.channel)
                case _:
                    self._send(one)

    def _send(self, one: Talk) -> None:
        activity = {"activity": True, "failures": one.failures} if one.by is not None and one.failures is not None else {}
        address = {"send_to": {"target": one.target}, "send_to_group": {"group": one.group}}.get(one.what, {})
        self._act(one.what, one.together, by=one.by, channel=one.channel, **address, **activity)

    @rule(
        what=st.sampled_from(["subscribe", "subscribe", "unsubscribe", "join", "join", "leave", "members"]),
        by=somebody,
        channel=where,
        mode=modes,
        group=groups,
        together=at_once,
    )
    def belong(self, what: What, by: int | None, channel: str, mode: str, group: str, together: bool) -> None:
        match what:
            case "subscribe":
                self._act(what, together, by=by or 0, channel=channel, mode=mode)
            case "unsubscribe":
                self._act(what, together, by=by or 0, channel=channel)
            case _:
                self._act(what, together, by=by if what == "members" else by or 0, group=group)

    @rule(
        what=st.sampled_from(["recur", "recur", "complete", "fail", "cancel", "terminate"]), whom=anybody, together=at_once
    )
    def end(self, what: What, whom: int | str, together: bool) -> None:
        name = self._name(whom)
        if what not in ("cancel", "terminate"):
            self._act(what, together, by=name)
        else:
            if any(act.target == name and act.what in ("cancel", "terminate") for act in self._together):
                self._flush()  # what the second one is told depends on how far the first one is
            self._act(what, together, target=name)
        if self._started < _MOST and len(self._living()) < _USUAL:
            self._start(together)

    @rule(seconds=st.sampled_from([None, 1.0, 2.0, 5.0]), point=st.one_of(st.none(), st.integers(1, 12), st.integers(1, 12)))
    def meanwhile(self, seconds: float | None, point: int | None) -> None:
        """Time passes; or the process dies, now or at a point that what comes next passes."""
        if point is not None:
            self.stage.crash_soon(point)
        self._flush()
        if seconds is not None:
            self._act("advance", seconds=seconds)
        elif point is None:
            self._run(self.stage.restart())

    # --- how

    def _act(
        self,
        what: What,
        together: bool = False,
        *,
        by: int | str | None = None,
        target: int | str | None = None,
        **details: Any,
    ) -> None:
        names = self._name(by), self._name(target)
        self._together.append(Act(next(self._numbers), what, names[0], target=names[1], **details))
        if not together or len(self._together) >= 4 or len(self.stage.worlds) > _MANY_WORLDS:
            self._flush()

    def _start(self, together: bool = False) -> None:
        self._started += 1
        self._act("start", together, target=INSTANCES[self._started - 1])

    def _name(self, one: int | str | None) -> str:
        """An instance, by its name or its place among those who live."""
        if not isinstance(one, int):
            return one or ""
        living = self._living() or INSTANCES[:1]
        return living[one % len(living)]

    def _living(self) -> list[str]:
        return [name for name in INSTANCES if self.stage.worlds[0].is_live(name)]

    def _flush(self) -> None:
        acts, self._together = self._together, []
        if acts:
            self._run(self.stage.play(acts))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            self._runner.run(work)
        except BaseException:
            self._fine = False
            raise

    def teardown(self) -> None:
        try:
            if self._stage is not None and self._fine:
                self._finish()
        finally:
            if self._stage is not None:
                self._runner.run(self._stage.close())
            self._runner.close()

    def _finish(self) -> None:
        """Read everything that is unread, then end everybody."""
        self._flush()
        while self._read_on():
            pass
        self._act("advance", seconds=10.0)
        self._run(self.stage.check_records())
        for instance in self._living():
            self._act("cancel", target=instance)
        self.stage.check_leftovers()

    def _read_on(self) -> bool:
        """Let everybody read one message; whether anybody did."""
        before = sum(map(len, self.stage.book.received.values()))
        subscribed = {pair for world in self.stage.worlds for pair in world.modes}
        for instance, channel in sorted(subscribed):
            self._act("receive", by=instance, channel=channel, seconds=1.0)
        return sum(map(len, self.stage.book.received.values())) > before


def play(machine: type[Channels], most: int, steps: int = 40) -> None:
    """Try so many plays."""
    # Not shrunk: the story that is printed can be read, and smaller ones would take minutes.
    how = settings(unhurried(most), phases=[Phase.generate], stateful_step_count=steps)
    run_state_machine_as_test(machine, settings=how)


def test_channels_are_as_the_model_says() -> None:
    play(Channels, examples(60))


def test_so_they_are_when_nothing_stays_warm() -> None:
    class Cold(Channels):
        environment: ClassVar[dict[str, Any]] = {"cache_size": 0}

    play(Cold, examples(40))


def test_so_they_are_when_everything_is_replayed() -> None:
    class Replayed(Channels):
        environment: ClassVar[dict[str, Any]] = {"replay_always": True}

    play(Replayed, examples(20))

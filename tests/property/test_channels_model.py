"""Channels and groups do what a small model of them says, in any order of acts, crashes and ends."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from tests.model.channels import Act, What
from tests.property.channel_instances import Stage
from tests.property.hypothesis_settings import examples, unhurried

CHANNELS = ("news", "work")
GROUPS = ("red", "blue")
MODES = ("broadcast", "competing", "direct")
_LEAVING = ("withdraw", "withdraw", "unsubscribe", "recur", "recur", "complete", "fail", "cancel", "terminate")
_USUAL = 4
"""So many instances live at the same time, as long as there are new ones."""
_MOST = 8
INSTANCES = tuple(f"p{number}" for number in range(_MOST + 1))
"""The last one is never started."""
_AT_ONCE = 4
"""So many acts are done at the same time at most."""
_MANY_WORLDS = 40
"""With so many ways in which things can stand, nothing more is done at the same time."""

scenes = st.integers(0, 2**32)
"""Mixed into the chance that scenes are left to: what Hypothesis chooses by itself is too much alike for rare orders."""
SCENES = ("talk", "talk", "belong", "turn", "rush", "end", "pass_time", "crash", "outage")


class Channels(RuleBasedStateMachine):
    """Puppets that talk, crash and end."""

    environment: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._chance = Random()
        self._numbers = itertools.count(1)
        self._together: list[Act] = []
        self._started = 0
        self._fine = True
        self._stage: Stage | None = None

    @property
    def stage(self) -> Stage:
        """Where it is played."""
        assert self._stage is not None
        return self._stage

    # --- scenes

    @initialize(scene=scenes)
    def open(self, scene: int) -> None:
        """Nearly everybody subscribes to everything."""
        self._chance.seed(scene)
        self._stage = Stage(scene, **self.environment)
        self._run(self.stage.open())
        for _ in range(_USUAL):
            self._start()
        for channel in CHANNELS:
            self._subscribe_most(channel)

    @rule(scene=scenes)
    def go_on(self, scene: int) -> None:
        """The next scene: which one, and what happens in it, is left to chance."""
        self.play(self._chance.choice(SCENES), scene)

    def play(self, name: str, scene: int) -> None:
        """A scene of a kind."""
        self._chance.seed(f"{self._chance.random()} {scene}")
        getattr(self, f"_{name}")()

    def _talk(self) -> None:
        """Messages are sent and received."""
        for _ in range(self._chance.randint(2, 6)):
            if self._chance.random() < 0.4:
                self._send()
            elif self._chance.random() < 0.85:
                seconds = self._chance.choice([None, None, 1.0, 3.0])
                self._act("receive", by=self._somebody(), channel=self._channel(), seconds=seconds)
            else:
                self._act("withdraw", by=self._somebody(), channel=self._channel())

    def _belong(self) -> None:
        """Channels and groups are entered and left."""
        for _ in range(self._chance.randint(1, 3)):
            by, group = self._somebody(), self._chance.choice(GROUPS)
            match self._chance.choice(["subscribe", "subscribe", "unsubscribe", "join", "join", "leave", "members"]):
                case "subscribe":
                    self._act("subscribe", by=by, channel=self._channel(), mode=self._chance.choice(MODES))
                case "unsubscribe":
                    self._act("unsubscribe", by=by, channel=self._channel())
                case "members":
                    self._act("members", by=self._chance.choice([by, ""]), group=group)
                case "leave":
                    self._act("leave", by=by, group=group)
                case _:
                    self._act("join", by=by, group=group)

    def _turn(self) -> None:
        """Everybody leaves a channel, and nearly all come back in one mode."""
        channel = self._channel()
        for name in self._living():
            self._act("unsubscribe", by=name, channel=channel)
        self._flush()
        self._subscribe_most(channel)

    def _rush(self) -> None:
        """All wait, or nobody does; one of them goes while messages come."""
        self._flush()
        channel, first = self._channel(), self._living()[:1]
        if self._chance.random() < 0.7:
            for name in self._living():
                self._act("receive", False, by=name, channel=channel)
        messages = self._chance.choice([1, 1, 2])
        going = self._chance.randint(0, messages)
        for turn in range(messages + 1):
            if turn == going:  # often the one who is called first
                self._leave(self._chance.choice([self._somebody(), *first]), channel, True)
            else:
                self._act("publish", True, channel=channel)
        self._flush()
        self._fill_up()

    def _end(self) -> None:
        """One goes, or begins anew."""
        self._leave(self._anybody(), self._channel())
        self._fill_up()

    def _pass_time(self) -> None:
        self._flush()
        self._act("advance", False, seconds=self._seconds())

    def _crash(self) -> None:
        """The process dies at a point that what comes next passes."""
        self.stage.crash_soon(self._chance.randint(1, 12))

    def _outage(self) -> None:
        """The process dies, and until there is another one, time may pass and messages come."""
        self._flush()
        acts: list[Act] = []
        for _ in range(self._chance.randint(0, 3)):
            number = next(self._numbers)
            match self._chance.choice(["advance", "publish", "send_to", "terminate"]):
                case "advance":
                    acts.append(Act(number, "advance", seconds=self._seconds()))
                case "publish":
                    acts.append(Act(number, "publish", channel=self._channel()))
                case "send_to":
                    acts.append(Act(number, "send_to", channel=self._channel(), target=self._anybody()))
                case _:
                    acts.append(Act(number, "terminate", target=self._anybody()))
        self._run(self.stage.restart(acts))
        self._fill_up()

    # --- what scenes are made of

    def _send(self) -> None:
        by = self._chance.choice([self._somebody(), self._somebody(), ""])
        details: dict[str, Any] = {"by": by, "channel": self._channel()}
        if by and self._chance.random() < 0.5:  # one of its activities, the first attempts of which may fail
            details |= {"activity": True, "failures": self._chance.choice([0, 1, 1, 2])}
        match self._chance.choice(["publish", "publish", "send_to", "send_to_group"]):
            case "publish":
                self._act("publish", **details)
            case "send_to":
                self._act("send_to", target=self._anybody(), **details)
            case _:
                self._act("send_to_group", group=self._chance.choice(GROUPS), **details)

    def _leave(self, name: str, channel: str, together: bool | None = None) -> None:
        how = self._chance.choice(_LEAVING)
        match how:
            case "withdraw" | "unsubscribe":
                self._act(how, together, by=name, channel=channel)
            case "recur" | "complete" | "fail":
                self._act(how, together, by=name)
            case "cancel" | "terminate":
                if any(act.target == name and act.what in ("cancel", "terminate") for act in self._together):
                    self._flush()  # what the second one is told depends on how far the first one is
                self._act(how, together, target=name)
            case _:
                raise AssertionError(how)

    def _subscribe_most(self, channel: str) -> None:
        mode = self._chance.choice([*MODES, "competing"])
        for name in self._living():
            if self._chance.random() < 0.8:
                self._act("subscribe", False, by=name, channel=channel, mode=mode)

    def _start(self) -> None:
        self._started += 1
        self._act("start", False, target=INSTANCES[self._started - 1])

    def _fill_up(self) -> None:
        if self._started < _MOST and len(self._living()) < _USUAL:
            self._start()

    def _seconds(self) -> float:
        return self._chance.choice([1.0, 2.0, 5.0])

    def _channel(self) -> str:
        return self._chance.choice(CHANNELS)

    def _somebody(self) -> str:
        """One of those who live."""
        return self._chance.choice(self._living() or INSTANCES[:1])

    def _anybody(self) -> str:
        """As a rule one of those who live."""
        return self._somebody() if self._chance.random() < 0.8 else self._chance.choice(INSTANCES)

    def _living(self) -> list[str]:
        return [name for name in INSTANCES if self.stage.worlds[0].is_live(name)]

    def _act(self, what: What, together: bool | None = None, **details: Any) -> None:
        """Do something: by itself, together with what comes next, or as chance will have it."""
        self._together.append(Act(next(self._numbers), what, **details))
        together = self._chance.random() < 0.5 if together is None else together
        if not together or len(self._together) >= _AT_ONCE or len(self.stage.worlds) > _MANY_WORLDS:
            self._flush()

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

    # --- the end of the play

    def teardown(self) -> None:
        """Look at what is left, and close."""
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
        self._act("advance", False, seconds=10.0)
        self._run(self.stage.check_records())
        # A crash leaves open whether an instance is cancelled: then it is cancelled again.
        while living := [name for name in INSTANCES if any(world.is_live(name) for world in self.stage.worlds)]:
            for instance in living:
                self._act("cancel", False, target=instance)
        self._run(self.stage.check_leftovers())

    def _read_on(self) -> bool:
        """Let everybody read one message; whether anybody did."""
        before = self.stage.book.receipts
        for instance, channel in sorted({pair for world in self.stage.worlds for pair in world.modes}):
            self._act("receive", False, by=instance, channel=channel, seconds=1.0)
        return self.stage.book.receipts > before


def play(machine: type[Channels], most: int) -> None:
    """Try so many plays. They are not shrunk: the story that is printed can be read, and smaller ones would take minutes."""
    how = settings(unhurried(most), phases=[Phase.generate], stateful_step_count=25)
    run_state_machine_as_test(machine, settings=how)


@pytest.mark.parametrize(
    ("environment", "most"),
    [({}, 45), ({"cache_size": 0}, 25), ({"cache_size": 1}, 25), ({"replay_always": True}, 15)],
    ids=["warm", "cold", "one warm", "replayed"],
)
def test_channels_are_as_the_model_says(environment: dict[str, Any], most: int) -> None:
    play(type("Varied", (Channels,), {"environment": environment}), examples(most))

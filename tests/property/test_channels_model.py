"""Channels and groups behave as their reference model, in any order of actions, crashes and ends."""

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
from tests.model.channels import Action, ActionKind
from tests.property.channel_instances import ChannelTester
from tests.property.hypothesis_settings import examples, unhurried

CHANNELS = ("news", "work")
GROUPS = ("red", "blue")
MODES = ("broadcast", "competing", "direct")
_LEAVING = ("withdraw", "withdraw", "unsubscribe", "recur", "recur", "complete", "fail", "cancel", "terminate")
_LIVE_INSTANCES = 4
"""The number of instances that are alive at a time, as long as there are new ones."""
_MAX_INSTANCES = 8
INSTANCES = tuple(f"p{number}" for number in range(_MAX_INSTANCES + 1))
"""The last instance is never started."""
_MAX_CONCURRENT = 4
"""The maximum number of concurrent actions."""
_MANY_STATES = 40
"""With more possible states than this, actions are not run concurrently."""

steps = st.integers(0, 2**32)
"""Seeds for the random steps: the values that Hypothesis prefers are too similar to reach rare orders."""
STEPS = (
    "send_and_receive",
    "send_and_receive",
    "change_membership",
    "resubscribe",
    "compete",
    "end",
    "pass_time",
    "crash",
    "outage",
)


class Channels(RuleBasedStateMachine):
    """State machine of instances that send, receive, crash and end."""

    environment: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._rng = Random()
        self._numbers = itertools.count(1)
        self._batch: list[Action] = []
        self._started = 0
        self._passed = True
        self._tester: ChannelTester | None = None

    @property
    def tester(self) -> ChannelTester:
        """The tester of this machine."""
        assert self._tester is not None
        return self._tester

    # --- steps

    @initialize(step=steps)
    def open(self, step: int) -> None:
        """Start the first instances and subscribe most of them to every channel."""
        self._rng.seed(step)
        self._tester = ChannelTester(step, **self.environment)
        self._run(self.tester.open())
        for _ in range(_LIVE_INSTANCES):
            self._start()
        for channel in CHANNELS:
            self._subscribe_most(channel)

    @rule(step=steps)
    def go_on(self, step: int) -> None:
        """Run a random step."""
        self.run_step(self._rng.choice(STEPS), step)

    def run_step(self, name: str, step: int) -> None:
        """Run the step of this name."""
        self._rng.seed(f"{self._rng.random()} {step}")
        getattr(self, f"_{name}")()

    def _send_and_receive(self) -> None:
        """Send and receive messages."""
        for _ in range(self._rng.randint(2, 6)):
            if self._rng.random() < 0.4:
                self._send()
            elif self._rng.random() < 0.85:
                seconds = self._rng.choice([None, None, 1.0, 3.0])
                self._act("receive", by=self._live_instance(), channel=self._channel(), seconds=seconds)
            else:
                self._act("withdraw", by=self._live_instance(), channel=self._channel())

    def _change_membership(self) -> None:
        """Subscribe, unsubscribe, join and leave."""
        for _ in range(self._rng.randint(1, 3)):
            by, group = self._live_instance(), self._rng.choice(GROUPS)
            match self._rng.choice(["subscribe", "subscribe", "unsubscribe", "join", "join", "leave", "members"]):
                case "subscribe":
                    self._act("subscribe", by=by, channel=self._channel(), mode=self._rng.choice(MODES))
                case "unsubscribe":
                    self._act("unsubscribe", by=by, channel=self._channel())
                case "members":
                    self._act("members", by=self._rng.choice([by, ""]), group=group)
                case "leave":
                    self._act("leave", by=by, group=group)
                case _:
                    self._act("join", by=by, group=group)

    def _resubscribe(self) -> None:
        """Unsubscribe all instances from a channel, and subscribe most of them again in one mode."""
        channel = self._channel()
        for name in self._live_instances():
            self._act("unsubscribe", by=name, channel=channel)
        self._flush()
        self._subscribe_most(channel)

    def _compete(self) -> None:
        """Let all instances wait, or none; one leaves while messages arrive."""
        self._flush()
        channel, first = self._channel(), self._live_instances()[:1]
        if self._rng.random() < 0.7:
            for name in self._live_instances():
                self._act("receive", False, by=name, channel=channel)
        messages = self._rng.choice([1, 1, 2])
        leaving = self._rng.randint(0, messages)
        for number in range(messages + 1):
            if number == leaving:  # often the instance that is woken first
                self._leave(self._rng.choice([self._live_instance(), *first]), channel, True)
            else:
                self._act("publish", True, channel=channel)
        self._flush()
        self._fill_up()

    def _end(self) -> None:
        """End one instance, or let it recur."""
        self._leave(self._any_instance(), self._channel())
        self._fill_up()

    def _pass_time(self) -> None:
        self._flush()
        self._act("advance", False, seconds=self._seconds())

    def _crash(self) -> None:
        """Let the process die at one of the next crash points."""
        self.tester.crash_soon(self._rng.randint(1, 12))

    def _outage(self) -> None:
        """Kill the process; time may pass and messages may arrive before the next one starts."""
        self._flush()
        actions: list[Action] = []
        for _ in range(self._rng.randint(0, 3)):
            number = next(self._numbers)
            match self._rng.choice(["advance", "publish", "send_to", "terminate"]):
                case "advance":
                    actions.append(Action(number, "advance", seconds=self._seconds()))
                case "publish":
                    actions.append(Action(number, "publish", channel=self._channel()))
                case "send_to":
                    actions.append(Action(number, "send_to", channel=self._channel(), target=self._any_instance()))
                case _:
                    actions.append(Action(number, "terminate", target=self._any_instance()))
        self._run(self.tester.restart(actions))
        self._fill_up()

    # --- parts of steps

    def _send(self) -> None:
        by = self._rng.choice([self._live_instance(), self._live_instance(), ""])
        details: dict[str, Any] = {"by": by, "channel": self._channel()}
        if by and self._rng.random() < 0.5:  # from an activity whose first attempts may fail
            details |= {"activity": True, "failures": self._rng.choice([0, 1, 1, 2])}
        match self._rng.choice(["publish", "publish", "send_to", "send_to_group"]):
            case "publish":
                self._act("publish", **details)
            case "send_to":
                self._act("send_to", target=self._any_instance(), **details)
            case _:
                self._act("send_to_group", group=self._rng.choice(GROUPS), **details)

    def _leave(self, name: str, channel: str, together: bool | None = None) -> None:
        how = self._rng.choice(_LEAVING)
        match how:
            case "withdraw" | "unsubscribe":
                self._act(how, together, by=name, channel=channel)
            case "recur" | "complete" | "fail":
                self._act(how, together, by=name)
            case "cancel" | "terminate":
                if any(action.target == name and action.kind in ("cancel", "terminate") for action in self._batch):
                    self._flush()  # the outcome of the second request depends on the progress of the first
                self._act(how, together, target=name)
            case _:
                raise AssertionError(how)

    def _subscribe_most(self, channel: str) -> None:
        mode = self._rng.choice([*MODES, "competing"])
        for name in self._live_instances():
            if self._rng.random() < 0.8:
                self._act("subscribe", False, by=name, channel=channel, mode=mode)

    def _start(self) -> None:
        self._started += 1
        self._act("start", False, target=INSTANCES[self._started - 1])

    def _fill_up(self) -> None:
        if self._started < _MAX_INSTANCES and len(self._live_instances()) < _LIVE_INSTANCES:
            self._start()

    def _seconds(self) -> float:
        return self._rng.choice([1.0, 2.0, 5.0])

    def _channel(self) -> str:
        return self._rng.choice(CHANNELS)

    def _live_instance(self) -> str:
        """A live instance."""
        return self._rng.choice(self._live_instances() or INSTANCES[:1])

    def _any_instance(self) -> str:
        """A live instance, or sometimes any instance."""
        return self._live_instance() if self._rng.random() < 0.8 else self._rng.choice(INSTANCES)

    def _live_instances(self) -> list[str]:
        return [name for name in INSTANCES if self.tester.states[0].is_live(name)]

    def _act(self, what: ActionKind, together: bool | None = None, **details: Any) -> None:
        """Add an action; run it now, together with the next one, or as drawn at random."""
        self._batch.append(Action(next(self._numbers), what, **details))
        together = self._rng.random() < 0.5 if together is None else together
        if not together or len(self._batch) >= _MAX_CONCURRENT or len(self.tester.states) > _MANY_STATES:
            self._flush()

    def _flush(self) -> None:
        actions, self._batch = self._batch, []
        if actions:
            self._run(self.tester.run_actions(actions))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            self._runner.run(work)
        except BaseException:
            self._passed = False
            raise

    # --- end of a run

    def teardown(self) -> None:
        """Check what is left, and close."""
        try:
            if self._tester is not None and self._passed:
                self._finish()
        finally:
            if self._tester is not None:
                self._runner.run(self._tester.close())
            self._runner.close()

    def _finish(self) -> None:
        """Read everything that is unread, then end all instances."""
        self._flush()
        while self._read_on():
            pass
        self._act("advance", False, seconds=10.0)
        self._run(self.tester.check_records())
        # After a crash it is unknown whether an instance is cancelled, so cancel it again.
        while living := [name for name in INSTANCES if any(state.is_live(name) for state in self.tester.states)]:
            for instance in living:
                self._act("cancel", False, target=instance)
        self._run(self.tester.check_leftovers())

    def _read_on(self) -> bool:
        """Let every instance read one message; whether any did."""
        before = self.tester.log.receipts
        for instance, channel in sorted({pair for state in self.tester.states for pair in state.modes}):
            self._act("receive", False, by=instance, channel=channel, seconds=1.0)
        return self.tester.log.receipts > before


def run_machine(machine: type[Channels], most: int) -> None:
    """Run the state machine. Failures are not shrunk: the printed transcript is readable, and shrinking takes minutes."""
    how = settings(unhurried(most), phases=[Phase.generate], stateful_step_count=25)
    run_state_machine_as_test(machine, settings=how)


@pytest.mark.parametrize(
    ("environment", "most"),
    [({}, 45), ({"cache_size": 0}, 25), ({"cache_size": 1}, 25), ({"replay_always": True}, 15)],
    ids=["warm", "cold", "one warm", "replayed"],
)
def test_channels_are_as_the_model_says(environment: dict[str, Any], most: int) -> None:
    run_machine(type("Varied", (Channels,), {"environment": environment}), examples(most))

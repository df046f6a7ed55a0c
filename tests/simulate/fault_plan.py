"""What goes wrong, and how often: drawn for each seed, so that some have a little of everything, others much of one thing.

on the way to the store   a call fails before it is done, or after it (whoever called cannot know which); the process
                          dies before or after; the call is slow; the line is cut for a while
between processes         "somebody has written" is lost, told twice, told late
to a process              killed, stopped and let go on, its event loop blocked (its heart beats on), shut down in order
to everybody              the clock jumps
at the broker             refuses, takes an event and says that it did not, takes its time
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

DISASTERS = ("kill", "stop", "block", "cut", "slow", "restart", "outage", "jump")


@dataclass
class Weather:
    """The odds of one seed."""

    chance: random.Random = field(repr=False)
    fails_before: float
    fails_after: float
    dies: float
    loses: float
    """How often others are not told that somebody has written."""
    doubles: float
    hesitates: float
    """How often a call of the store takes a while."""
    refuses: float
    """How often the broker fails."""
    disasters: tuple[str, ...]
    pause: float
    """Seconds between two disasters, about."""
    lasts: float
    """Seconds until everything is well again."""

    def clear_up(self) -> None:
        """From now on nothing goes wrong."""
        self.fails_before = self.fails_after = self.dies = self.loses = self.doubles = self.refuses = 0.0

    def happens(self, odds: float) -> bool:
        """Whether something with these odds happens now."""
        return odds > 0 and self.chance.random() < odds

    def delay(self) -> float:
        """How long a call takes; mostly nothing to speak of."""
        if not self.happens(self.hesitates):
            return 0.0
        return self.chance.expovariate(200.0) if self.chance.random() < 0.9 else self.chance.uniform(0.05, 1.0)


def draw(chance: random.Random) -> Weather:
    """The weather of a seed."""

    def sometimes(*odds: float) -> float:
        return chance.choice(odds) if chance.random() < 0.5 else 0.0

    return Weather(
        chance=chance,
        fails_before=sometimes(0.01, 0.05, 0.15),
        fails_after=sometimes(0.01, 0.05, 0.15),
        dies=sometimes(0.001, 0.005, 0.02),
        loses=sometimes(0.1, 0.5, 1.0),
        doubles=sometimes(0.1, 0.5),
        hesitates=chance.choice([0.1, 0.3, 0.6]),
        refuses=sometimes(0.1, 0.4),
        disasters=tuple(one for one in DISASTERS if chance.random() < 0.5),
        pause=chance.choice([0.7, 2.0, 5.0]),
        lasts=chance.choice([5.0, 10.0, 20.0]),
    )

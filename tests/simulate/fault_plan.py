"""The faults of one simulation, and how often each occurs: drawn from the seed.

Each seed uses a subset of the faults, some rarely and some often.

calls of the store        a call fails before or after it takes effect (the caller cannot tell); the process
                          dies before or after it; the call is slow; the connection is down for a while
between processes         the notification of a commit is lost, doubled or late
processes                 killed, stopped and continued, event loop blocked (heartbeats continue), shut down cleanly
clock                     the wall clock jumps
broker                    refuses an event, accepts an event and reports an error, answers late
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

DISASTERS = ("kill", "stop", "block", "cut", "slow", "restart", "outage", "jump")


@dataclass
class FaultPlan:
    """The probability of each fault in one simulation."""

    rng: random.Random = field(repr=False)
    fails_before: float
    fails_after: float
    dies: float
    loses_notifications: float
    """Probability that a process is not notified of another process's commit."""
    doubles_notifications: float
    delays_calls: float
    """Probability that a call of the store is delayed."""
    broker_fails: float
    """Probability that the broker fails."""
    disasters: tuple[str, ...]
    pause: float
    """Mean seconds between two disasters."""
    lasts: float
    """Seconds until faults stop."""

    def stop_faults(self) -> None:
        """Set the probability of random faults to zero."""
        self.fails_before = self.fails_after = self.dies = self.loses_notifications = self.doubles_notifications = (
            self.broker_fails
        ) = 0.0

    def happens(self, odds: float) -> bool:
        """Draw whether an event of this probability occurs."""
        return odds > 0 and self.rng.random() < odds

    def delay(self) -> float:
        """Draw the delay of a call in seconds; usually close to zero."""
        if not self.happens(self.delays_calls):
            return 0.0
        return self.rng.expovariate(200.0) if self.rng.random() < 0.9 else self.rng.uniform(0.05, 1.0)


def draw(rng: random.Random) -> FaultPlan:
    """Draw the fault plan of a seed."""

    def sometimes(*odds: float) -> float:
        return rng.choice(odds) if rng.random() < 0.5 else 0.0

    return FaultPlan(
        rng=rng,
        fails_before=sometimes(0.01, 0.05, 0.15),
        fails_after=sometimes(0.01, 0.05, 0.15),
        dies=sometimes(0.001, 0.005, 0.02),
        loses_notifications=sometimes(0.1, 0.5, 1.0),
        doubles_notifications=sometimes(0.1, 0.5),
        delays_calls=rng.choice([0.1, 0.3, 0.6]),
        broker_fails=sometimes(0.1, 0.4),
        disasters=tuple(one for one in DISASTERS if rng.random() < 0.5),
        pause=rng.choice([0.7, 2.0, 5.0]),
        lasts=rng.choice([5.0, 10.0, 20.0]),
    )

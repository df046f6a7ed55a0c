"""Crash points: named places at which a test may let the process die.

The store passes `commit.before` and `commit.after` around every COMMIT of a batch, `claim.before` and `claim.after` around
that of a claim; the worker passes `activity.before` and `activity.after` around every attempt. In production there is no
function to call at them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

CrashPoint: TypeAlias = Callable[[str], None]
POINTS = ("commit.before", "commit.after", "claim.before", "claim.after", "activity.before", "activity.after")


class SimulatedCrash(BaseException):
    """The simulated death of the process at a crash point: no code runs after it, and nothing is cleaned up."""

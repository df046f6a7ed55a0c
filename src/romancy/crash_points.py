"""Named points at which a test may let the process die.

The store calls `commit.before` and `commit.after` around every COMMIT of a batch, `claim.before` and `claim.after` around a
claim's; the worker calls `activity.before` and `activity.after` around every attempt. In production nobody listens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

CrashPoint: TypeAlias = Callable[[str], None]
POINTS = ("commit.before", "commit.after", "claim.before", "claim.after", "activity.before", "activity.after")


class SimulatedCrash(BaseException):
    """The process dies here: nothing after this line happens, and nothing cleans up."""

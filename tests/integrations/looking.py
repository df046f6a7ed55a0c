"""What the tests of the integrations share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def seen(look: Callable[[], T | None], what: str, *, seconds: float = 30.0) -> T:
    """What another process does is seen in time; fail if it is not."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(0.02)
    return found

"""What the tests of the integrations share."""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def seen(look: Callable[[], T | None], what: str, *, seconds: float = 30.0) -> T:
    """What another process does is seen in time; fail if it is not."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(0.02)
    return found


def signature_of(function: Callable[..., Any]) -> str:
    """How a call of a function is written in the reference: `define(*, model, name=None)`."""
    parameters = [one.replace(annotation=one.empty) for one in inspect.signature(function).parameters.values()]
    written = f"{function.__name__}{inspect.Signature(parameters)}"
    return re.sub(r"<class '(\w+)'>", r"\1", written).replace("'", '"')

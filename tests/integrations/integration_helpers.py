"""Helpers for the tests of the integrations."""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def wait_for(condition: Callable[[], T | None], what: str, *, seconds: float = 30.0) -> T:
    """Wait until a condition that another process brings about is true; fail after a timeout."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not reached within {seconds:g} s"
        await asyncio.sleep(0.02)
    return found


def signature_of(function: Callable[..., Any]) -> str:
    """The signature of a function as the reference writes it: `define(*, model, name=None)`."""
    parameters = [one.replace(annotation=one.empty) for one in inspect.signature(function).parameters.values()]
    written = f"{function.__name__}{inspect.Signature(parameters)}"
    return re.sub(r"<class '(\w+)'>", r"\1", written).replace("'", '"')

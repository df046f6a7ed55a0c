"""The decoding of recorded outcomes to values and exceptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from romancy.core.commands import Resolution
from romancy.errors import DeterminismViolationError, PayloadError
from romancy.model.history import Outcome
from romancy.serde.failure import decode_failure
from romancy.serde.payload import ValueCodec

_OK = Outcome.OK  # before Python 3.12, looking up a member of an enum takes as long as a call


def decoder(codec: ValueCodec, name: str, near: str) -> Callable[[Resolution], Any]:
    """Return a function that decodes an outcome of an activity: it returns the value or raises the error.

    New outcomes are decoded by it too, and not only those of a replay.
    """

    def decode(resolution: Resolution) -> Any:
        raw = resolution.value if resolution.value is not None else b"null"
        if resolution.outcome is not _OK:
            raise decode_failure(raw, near)
        try:
            return codec.decode(raw)
        except PayloadError as error:
            # When the value was recorded, it was decoded once to check it, so the type must have changed since.
            raise DeterminismViolationError(
                f"recorded: {resolution.op} with a result that no longer matches the return type of {name}: {error}"
            ) from error

    return decode


def decode_nothing(resolution: Resolution) -> None:
    """Decode the outcome of an operation that has no value."""

"""How recorded outcomes become values and exceptions again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from romancy.core.commands import Resolution
from romancy.errors import DeterminismViolationError, PayloadError
from romancy.model.history import Outcome
from romancy.serde.failure import decode_failure
from romancy.serde.payload import ValueCodec

_OK = Outcome.OK  # to look it up each time takes as long as a call (before Python 3.12)


def decoder(codec: ValueCodec, name: str, near: str) -> Callable[[Resolution], Any]:
    """Decode an activity's outcome: its value, or its error raised. The live path comes through here too."""

    def decode(resolution: Resolution) -> Any:
        raw = resolution.value if resolution.value is not None else b"null"
        if resolution.outcome is not _OK:
            raise decode_failure(raw, near)
        try:
            return codec.decode(raw)
        except PayloadError as error:
            # The value was read back when it was recorded: the type must have changed since. The code does not fit.
            raise DeterminismViolationError(
                f"recorded: {resolution.op} with a result that no longer fits the return type of {name}: {error}"
            ) from error

    return decode


def decode_nothing(resolution: Resolution) -> None:
    """For operations that tell nothing but that they happened."""

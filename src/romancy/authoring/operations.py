"""Store calls and effects: what the functions for events, channels and groups have in common.

store call    the store decides, and its reply is recorded in the same commit
effect        carried out by the commit that records it: of the workflow's step, or of the activity's attempt
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple, cast

from romancy.authoring.context import ActivityContext, run_of
from romancy.authoring.durations import Duration, remainder
from romancy.core.commands import Resolution
from romancy.core.futures import Operation
from romancy.core.loop import Run
from romancy.errors import ConfigurationError, PayloadError, RomancyError
from romancy.model.history import Kind, Outcome
from romancy.model.messaging import Effect, SendTo, StoreCommand
from romancy.serde.failure import decode_failure
from romancy.serde.messaging import digest_of


class OperationInput(NamedTuple):
    """The input of a store call or an effect: JSON for the history, and the digest that a replay compares."""

    raw: bytes
    digest: bytes
    values: Any = None
    """The original values of parts of the JSON object, by name."""

    @classmethod
    def of(cls, raw: bytes, *, ordered: bool = True, **values: Any) -> OperationInput:
        """Make the input of this JSON object; `ordered`: its bytes do not depend on the order of a set."""
        return cls(raw, digest_of(raw, ordered=ordered), values)


class EmittedEffect:
    """The awaitable of an effect that an activity has emitted; it completes at once.

    It is not a future, because a plain `def` activity runs in a thread without an event loop.
    """

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield  # makes this function a generator


def call_store(
    run: Run,
    kind: Kind,
    name: str,
    command: StoreCommand,
    operation_input: OperationInput,
    read: Callable[[bytes], Any],
    *,
    op_id: str | None = None,
    due: int | None = None,
) -> Operation[Any]:
    """Issue a store call; `read` decodes the reply of the store."""
    return run.issue_operation(
        kind,
        name,
        _decoder(read),
        op_id,
        operation_input.digest,
        operation_input.raw,
        due,
        command,
        None,
        operation_input.values,
    )


def emit(ctx: object, what: str, kind: Kind, name: str, effect: Effect, operation_input: OperationInput) -> Operation[None]:
    """Emit an effect: in a workflow once, however often it is replayed; in an activity if the attempt succeeds."""
    if isinstance(ctx, ActivityContext):
        return emit_in_activity(ctx, effect)
    return run_of(ctx, what).emit_effect(
        kind, name, digest=operation_input.digest, input=operation_input.raw, detail=effect, values=operation_input.values
    )


class EmittedSendTo:
    """The awaitable of a `send_to` in an activity: awaiting it checks that the recipient can receive the message."""

    def __init__(self, ctx: ActivityContext, effect: SendTo) -> None:
        self._ctx = ctx
        self._effect = effect

    def __await__(self) -> Generator[Any, None, None]:
        return self._check().__await__()

    async def _check(self) -> None:
        if self._ctx._check_recipient is None:
            return
        try:
            await self._ctx._check_recipient(self._effect.target)
        except RomancyError:
            self._ctx._effects.remove(self._effect)
            raise


def emit_in_activity(ctx: ActivityContext, effect: Effect) -> Operation[None]:
    """Keep an effect for the commit of the attempt, or send it at once if the activity is not transactional."""
    if ctx._sender is not None:
        return cast("Operation[None]", ctx._sender(effect))
    ctx._effects.append(effect)
    return cast("Operation[None]", EmittedSendTo(ctx, effect) if isinstance(effect, SendTo) else EmittedEffect())


def _decoder(read: Callable[[bytes], Any]) -> Callable[[Resolution], Any]:
    def decode(resolution: Resolution) -> Any:
        raw = resolution.value if resolution.value is not None else b"null"
        if resolution.outcome is not Outcome.OK:
            raise decode_failure(raw)
        return read(raw)

    return decode


def read_nothing(raw: bytes) -> None:
    """Decode a reply that has no value."""


# --- checks of arguments


def require_text(value: object, what: str) -> str:
    """Return a text, after checking that it is not empty and can be stored."""
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{what} is {value!r}: give a non-empty string.")
    if "\0" in value:
        raise ConfigurationError(f"{what} is {value!r}: a name cannot contain a NUL character.")
    return _storable(value, what)


def _storable(value: str, what: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise PayloadError(f"{what} is {value!r}: it contains a lone surrogate, which cannot be stored.") from error
    return value


def optional_text(value: object, what: str) -> str | None:
    """Check a text as `require_text` does; None stays None."""
    return None if value is None else require_text(value, what)


def due_at(run: Run, timeout: Duration | None, what: str) -> int | None:
    """Return the time at which a wait times out, if it does. With a timeout of zero it only takes what has arrived."""
    return None if timeout is None else run.at + remainder(timeout, f"The timeout of {what}")


def parse_match(match: object, what: str) -> dict[str, Any] | None:
    """Check a `match` of dotted paths with their values, and return it sorted; None if there are no criteria."""
    if match is None:
        return None
    if not isinstance(match, Mapping):
        raise ConfigurationError(
            f'The match of {what} is {match!r}: give a mapping of paths to values, e.g. {{"order.id": "42"}}.'
        )
    given: Mapping[Any, Any] = match
    for path, value in given.items():
        require_text(path, f"A path in the match of {what}")
        _check_match_value(path, value, what)
    return dict(sorted(given.items())) or None


def _check_match_value(path: str, value: object, what: str) -> None:
    if isinstance(value, str):
        _storable(value, f"The value at {path!r} in the match of {what}")
    elif value is not None and (not isinstance(value, int | float) or not math.isfinite(value)):
        raise ConfigurationError(
            f"The match of {what} has {value!r} for {path!r}: give a string, a finite number, True, False or None."
        )

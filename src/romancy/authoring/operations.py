"""How a workflow, or an activity, says and asks things: what events, channels and groups have in common.

ask     the store decides, and the answer joins the history in the same commit
say     done by being committed: with the workflow's step, or with the activity's attempt
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
    """What was asked or said, as JSON for people, and the digest that replay checks."""

    raw: bytes
    digest: bytes
    values: Any = None
    """What is said, as it was given: a part of the JSON object by name."""

    @classmethod
    def of(cls, raw: bytes, *, ordered: bool = True, **values: Any) -> OperationInput:
        """What is asked by this JSON object."""
        return cls(raw, digest_of(raw, ordered=ordered), values)


class EmittedEffect:
    """Stands for what was said in an activity: it may be awaited, but there is nothing to wait for.

    Not a future: a plain `def` activity runs in a thread, which has no event loop.
    """

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield  # what makes this a generator


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
    """Ask the store; `read` makes a value of its answer."""
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
    """Say something: in a workflow once, whatever is replayed; in an activity if the attempt succeeds."""
    if isinstance(ctx, ActivityContext):
        return emit_in_activity(ctx, effect)
    return run_of(ctx, what).emit_effect(
        kind, name, digest=operation_input.digest, input=operation_input.raw, detail=effect, values=operation_input.values
    )


class EmittedSendTo:
    """Stands for what was sent to an instance in an activity: awaiting it tells whether that can get it."""

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
    """Leave it for the attempt's commit, or send it at once where there is none."""
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
    """For answers that tell nothing but that it was done."""


# --- what may be given


def require_text(value: object, what: str) -> str:
    """A text that is not empty and can be stored."""
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{what} is {value!r}: give a text that is not empty.")
    if "\0" in value:
        raise ConfigurationError(f"{what} is {value!r}: a name cannot hold the character NUL.")
    return _storable(value, what)


def _storable(value: str, what: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise PayloadError(f"{what} is {value!r}: it holds half a character, which cannot be stored.") from error
    return value


def optional_text(value: object, what: str) -> str | None:
    """As `text`; None stays None."""
    return None if value is None else require_text(value, what)


def due_at(run: Run, timeout: Duration | None, what: str) -> int | None:
    """When a wait is given up, if it is: with no patience at all it takes what is there."""
    return None if timeout is None else run.at + remainder(timeout, f"The timeout of {what}")


def parse_match(match: object, what: str) -> dict[str, Any] | None:
    """Dotted paths and the values they must lead to, sorted; None for no wish."""
    if match is None:
        return None
    if not isinstance(match, Mapping):
        raise ConfigurationError(f'The match of {what} is {match!r}: give paths and values, e.g. {{"order.id": "42"}}.')
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
            f"The match of {what} wants {value!r} at {path!r}: give a text, a finite number, True, False or None."
        )

"""Durable timers: `sleep` and `sleep_until`."""

from __future__ import annotations

from datetime import datetime

from romancy.authoring.context import WorkflowContext, run_of
from romancy.authoring.durations import Duration, remainder
from romancy.authoring.operations import optional_text
from romancy.authoring.outcomes import decode_nothing
from romancy.clock import to_micros
from romancy.core.commands import UNTIL
from romancy.core.futures import Operation
from romancy.errors import ConfigurationError
from romancy.model.history import Kind

_SLEEP_ID = "The sleep_id of a timer"


def sleep(ctx: WorkflowContext, duration: Duration, *, sleep_id: str | None = None) -> Operation[None]:
    """Wait for a duration, without occupying a worker: seconds or a `timedelta`; zero or less ends at once.

    `sleep_id` is the name of the timer in the history; without it, timers are numbered. `asyncio.sleep` in a workflow does
    the same.
    """
    run = run_of(ctx, "sleep()")
    due = run.at + remainder(duration, "The duration given to sleep()")
    return run.issue_operation(Kind.TIMER, "sleep", decode_nothing, op_id=optional_text(sleep_id, _SLEEP_ID), due=due)


def sleep_until(ctx: WorkflowContext, when: datetime, *, sleep_id: str | None = None) -> Operation[None]:
    """Wait until a time, given as an aware datetime, without occupying a worker."""
    run = run_of(ctx, "sleep_until()")
    if not isinstance(when, datetime) or when.tzinfo is None or when.utcoffset() is None:
        raise ConfigurationError(
            f"sleep_until() was given {when!r}: give an aware datetime, e.g. datetime.now(UTC) or one with a tzinfo. A "
            "naive one means another time on each machine."
        )
    return run.issue_operation(
        Kind.TIMER, "sleep", decode_nothing, op_id=optional_text(sleep_id, _SLEEP_ID), due=to_micros(when), detail=UNTIL
    )

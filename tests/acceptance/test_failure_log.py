"""The log of failures: it names the instance, the activity, the attempt and the user's line."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from romancy import ActivityContext, App, RetryPolicy, WorkflowContext, WorkflowFailedError, activity, workflow
from romancy.codec import Compress


class Denied(Exception):
    pass


@activity(retry=RetryPolicy.fixed(2, 0.01))
async def charge(ctx: ActivityContext, card: str) -> None:
    raise Denied(f"no funds on {card}\n\x1b[31m")


@activity
async def release(ctx: ActivityContext) -> None: ...


@release.compensate
async def reserve_again(ctx: ActivityContext) -> None:
    raise ValueError("nothing left")


@workflow
async def checkout(ctx: WorkflowContext, card: str) -> None:
    await release(ctx)
    await charge(ctx, card)


@workflow
async def divide(ctx: WorkflowContext, by: int) -> float:
    return 1 / by


def _lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Levels and messages of the log, without the folders."""
    return [
        (record.levelname, re.sub(r"/\S*/", "", record.getMessage()))
        for record in caplog.records
        if record.name == "romancy.worker" and "failed" in record.getMessage()
    ]


def _line(what: Any) -> int:
    """The line of the first statement of a decorated function."""
    code = getattr(what, "fn", what).__code__
    lines: Iterator[int | None] = (line for _, _, line in code.co_lines())
    return next(line for line in lines if line is not None and line > code.co_firstlineno + 1)


async def _fail(app: App, card: str) -> None:
    handle = await app.start_workflow(checkout.with_options(instance_id="order-42"), card)
    with pytest.raises(WorkflowFailedError):
        await handle.result(timeout=60)


async def test_every_failure_is_in_the_log_with_its_ids_and_line(database: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "romancy.worker")
    once = RetryPolicy.none()
    async with App(database, workflows=[checkout], default_retry=once) as app:
        await _fail(app, "card-7")
    denied = rf"Denied: no funds on card-7\n\x1b[31m (test_failure_log.py:{_line(charge)} in charge)"
    undo = "reserve_again, which compensates release:1, in 'order-42' of checkout failed permanently in attempt 1: "
    lines = _lines(caplog)
    assert lines[:-1] == [
        ("INFO", f"attempt 1 of charge:1 in 'order-42' of checkout failed, the next one starts in 0.01 s: {denied}"),
        ("WARNING", f"charge:1 in 'order-42' of checkout failed permanently in attempt 2: {denied}"),
        ("WARNING", f"{undo}ValueError: nothing left (test_failure_log.py:{_line(reserve_again)} in reserve_again)"),
    ]
    level, text = lines[-1]
    assert level == "WARNING"
    assert text.startswith(
        "instance 'order-42' of checkout failed: RetryExhaustedError: charge:1 failed 2 times; the last error: "
    )
    assert text.endswith(f"(test_failure_log.py:{_line(checkout) + 1} in checkout)")


async def test_the_line_of_a_workflow_that_raises(database: str, caplog: pytest.LogCaptureFixture) -> None:
    async with App(database, workflows=[divide]) as app:
        handle = await app.start_workflow(divide.with_options(instance_id="d"), 0)
        with pytest.raises(WorkflowFailedError):
            await handle.result(timeout=60)
    assert _lines(caplog) == [
        (
            "WARNING",
            "instance 'd' of divide failed: ZeroDivisionError: division by zero "
            f"(test_failure_log.py:{_line(divide)} in divide)",
        )
    ]


async def test_a_codec_keeps_what_errors_say_out_of_the_log(database: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "romancy.worker")
    async with App(database, workflows=[checkout], codec=Compress(), default_retry=RetryPolicy.none()) as app:
        await _fail(app, "card-7")
    assert "card-7" not in caplog.text
    assert [level for level, _ in _lines(caplog)].count("WARNING") >= 2

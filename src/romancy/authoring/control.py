"""`recur`: begins the next generation of an instance, with a new history."""

from __future__ import annotations

from typing import Any, NoReturn

from romancy.authoring.context import WorkflowContext, run_of


async def recur(ctx: WorkflowContext, /, *args: Any, **kwargs: Any) -> NoReturn:
    """End this generation and begin the next one with these arguments, as `ctx.recur(...)` does.

    A workflow without an end recurs now and then, so that its history stays short.

    >>> @workflow
    ... async def watch(ctx: WorkflowContext, day: int) -> None:
    ...     await sleep(ctx, timedelta(days=1))
    ...     await recur(ctx, day + 1)
    """
    run_of(ctx, "recur()")
    await ctx.recur(*args, **kwargs)

"""`recur`: the same instance begins anew, with a fresh history."""

from __future__ import annotations

from typing import Any, NoReturn

from romancy.authoring.context import WorkflowContext, run_of


async def recur(ctx: WorkflowContext, /, *args: Any, **kwargs: Any) -> NoReturn:
    """Begin anew with these arguments: the same instance, its next generation. The same as `ctx.recur(...)`.

    A workflow that goes on for ever recurs now and then, and its history stays short.

    >>> @workflow
    ... async def watch(ctx: WorkflowContext, day: int) -> None:
    ...     await sleep(ctx, timedelta(days=1))
    ...     await recur(ctx, day + 1)
    """
    run_of(ctx, "recur()")
    await ctx.recur(*args, **kwargs)

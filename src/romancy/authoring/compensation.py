"""`register_compensation`: registers a compensation that belongs to no activity."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate

from romancy.authoring.activity import C, P, compensation_of
from romancy.authoring.context import WorkflowContext, run_of
from romancy.model.history import Kind

if TYPE_CHECKING:

    async def register_compensation(
        ctx: WorkflowContext, fn: Callable[Concatenate[C, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Register a call of `fn` with these arguments, which is made if the workflow fails or is cancelled."""

else:

    def register_compensation(ctx, fn, /, *args, **kwargs):
        """Register a call of `fn` with these arguments, which is made if the workflow fails or is cancelled.

        The first parameter of `fn` is the context of an activity. Compensations run one after another, the last registered
        first.
        """
        run = run_of(ctx, "register_compensation()")
        compensation = compensation_of(fn, None)
        raw = compensation.codec.encode(args, kwargs)
        return run.emit_effect(
            Kind.REGISTRATION,
            "register_compensation",
            digest=compensation.codec.digest(raw),
            input=raw,
            compensation=compensation,
        )

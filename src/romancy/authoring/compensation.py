"""`register_compensation`: a step of the way back that belongs to no activity."""

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
        """Call `fn` with these arguments if the workflow fails or is cancelled; recorded, once."""

else:

    def register_compensation(ctx, fn, /, *args, **kwargs):
        """Call `fn` with these arguments if the workflow fails or is cancelled; recorded, once.

        `fn` takes an activity's context first. Compensations run one after another, the last registered first.
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

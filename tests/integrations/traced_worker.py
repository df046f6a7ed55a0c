"""A worker that writes its spans to a file: `python traced_worker.py DATABASE SPANS NAME`. It prints when `charge` runs."""

from __future__ import annotations

import asyncio
import sys
from typing import IO, Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from romancy import ActivityContext, App, WorkflowContext, activity, sleep, workflow
from romancy.integrations.opentelemetry import OpenTelemetry

slept = asyncio.Event()


@activity
async def reserve(ctx: ActivityContext) -> None: ...


@activity
async def charge(ctx: ActivityContext) -> str:
    if ctx.worker_id.startswith("first/"):
        await slept.wait()  # the spans of the earlier operations are in the file then
        print("charging", flush=True)
        await asyncio.Event().wait()
    return "charged"


@workflow
async def checkout(ctx: WorkflowContext) -> str:
    await reserve(ctx)
    await sleep(ctx, 0.01)
    return await charge(ctx)


def formatted(span: ReadableSpan) -> str:
    """Format a span as one line."""
    if span.name == "sleep":
        slept.set()
    return f"{span.to_json(indent=None)}\n"


async def main(database: str, name: str, out: IO[str]) -> None:
    """Start the instance, or continue it, and print its result."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=out, formatter=formatted)))
    hooks = OpenTelemetry(tracer_provider=provider, measuring=False)
    quick: dict[str, Any] = {"heartbeat_interval": 0.05, "lease_timeout": 0.5, "poll_interval": 0.05}
    async with App(database, workflows=[checkout], hooks=hooks, worker_id=name, **quick) as app:
        handle = await app.start_workflow(checkout.with_options(instance_id="order-42"))
        print(await handle.result(), flush=True)


if __name__ == "__main__":
    with open(sys.argv[2], "w", encoding="utf-8") as spans:
        asyncio.run(main(sys.argv[1], sys.argv[3], spans))

"""Tests of traces and metrics, which the tests read from the SDK's in-memory exporters."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, StatusCode

from romancy import (
    ActivityContext,
    EventTimeoutError,
    RetryPolicy,
    TerminalError,
    Workflow,
    WorkflowContext,
    WorkflowFailedError,
    activity,
    send_event,
    sleep,
    wait_event,
    workflow,
)
from romancy.integrations import otel
from romancy.integrations.opentelemetry import OpenTelemetry, span_context_of, trace_id_of
from romancy.testing import TestEnvironment


class Telemetry:
    """The OpenTelemetry hooks, with exporters that keep the spans and the metrics."""

    def __init__(self, *, exception_texts: bool = True, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.hooks = OpenTelemetry(
            tracer_provider=self.provider,
            meter_provider=MeterProvider([self.reader]),
            exception_texts=exception_texts,
        )

    @property
    def spans(self) -> list[ReadableSpan]:
        """The exported spans, in order."""
        return list(self.exporter.get_finished_spans())

    def names(self, *but: str) -> list[str]:
        """The names of the exported spans, except for some."""
        return [span.name for span in self.spans if span.name not in but]

    def one(self, name: str, nth: int = 0) -> ReadableSpan:
        """The nth span with a name."""
        return [span for span in self.spans if span.name == name][nth]

    def metrics(self) -> dict[str, list[Any]]:
        """The data points, by the names of the metrics."""
        data = self.reader.get_metrics_data()
        assert data is not None
        return {
            one.name: list(one.data.data_points) for part in data.resource_metrics[0].scope_metrics for one in part.metrics
        }


async def trace_of(telemetry: Telemetry, *flows: Workflow[..., Any], **options: Any) -> None:
    """Run an instance of the first workflow to its end."""
    async with TestEnvironment(workflows=list(flows), hooks=telemetry.hooks, **options) as env:
        handle = await env.app.start_workflow(flows[0].with_options(instance_id="one"))
        with contextlib.suppress(WorkflowFailedError):
            await handle.result()


def is_one_trace(spans: list[ReadableSpan], instance_id: str = "one") -> bool:
    """Whether all spans are in the trace of the instance, below one root, with known parents and unique ids."""
    ids = [span.context.span_id for span in spans if span.context]
    roots = [span for span in spans if span.parent is None]
    traces = {span.context.trace_id for span in spans if span.context}
    known = all(span.parent.span_id in ids for span in spans if span.parent is not None)
    return len(roots) == 1 and traces == {trace_id_of(instance_id)} and known and len(set(ids)) == len(ids)


@activity
async def pack(ctx: ActivityContext, what: str) -> str:
    return what


@pytest.mark.parametrize("forced", [False, True])
async def test_an_instance_is_one_trace(forced: bool) -> None:
    @workflow
    async def order(ctx: WorkflowContext) -> None:
        await pack(ctx, "a")
        await sleep(ctx, 3600)
        await asyncio.gather(pack(ctx, "b"), pack(ctx, "c"))

    telemetry = Telemetry()
    await trace_of(telemetry, order, replay_always=forced)

    assert telemetry.names("replay") == ["start order", "pack", "sleep", "pack", "pack", "order"]
    assert ("replay" in telemetry.names()) is forced
    assert is_one_trace(telemetry.spans)
    root, slept = telemetry.one("order"), telemetry.one("sleep")
    assert root.context is not None
    assert root.context.span_id == span_context_of("one").span_id
    assert (root.attributes or {})["romancy.workflow.status"] == "completed"
    assert (slept.end_time or 0) - (slept.start_time or 0) == 3600 * 10**9


async def test_the_trace_survives_the_process() -> None:
    @workflow
    async def order(ctx: WorkflowContext) -> None:
        await pack(ctx, "a")
        await sleep(ctx, 60)
        await pack(ctx, "b")

    telemetry = Telemetry()
    async with TestEnvironment(workflows=[order], hooks=telemetry.hooks) as env:
        handle = await env.app.start_workflow(order.with_options(instance_id="one"))
        await env.settle()
        await env.restart()
        await handle.result()

    assert telemetry.names() == ["start order", "pack", "replay", "sleep", "pack", "order"]
    assert is_one_trace(telemetry.spans)


async def test_what_an_activity_does_is_below_its_attempt() -> None:
    telemetry = Telemetry()
    tracer = telemetry.provider.get_tracer("user")

    @activity
    async def outer(ctx: ActivityContext) -> None:
        trace.get_current_span().set_attribute("mine", 1)
        with tracer.start_as_current_span("inner"):
            await asyncio.sleep(0)

    @activity
    def threaded(ctx: ActivityContext) -> None:
        with tracer.start_as_current_span("inside a thread"):
            pass

    @workflow
    async def order(ctx: WorkflowContext) -> None:
        await asyncio.gather(outer(ctx), threaded(ctx))

    await trace_of(telemetry, order)

    for inner, attempt in (("inner", "outer"), ("inside a thread", "threaded")):
        parent, context = telemetry.one(inner).parent, telemetry.one(attempt).context
        assert parent is not None
        assert context is not None
        assert parent.span_id == context.span_id
    assert (telemetry.one("outer").attributes or {})["mine"] == 1
    assert is_one_trace(telemetry.spans)
    assert not trace.get_current_span().get_span_context().is_valid


@pytest.mark.parametrize("texts", [True, False])
async def test_exporting_the_texts_of_exceptions_is_an_option(texts: bool) -> None:
    """A codec encrypts the texts in the database only."""

    @activity(retry=RetryPolicy.fixed(2, 5))
    async def charge(ctx: ActivityContext) -> None:
        raise ConnectionError("card 4711")

    @workflow
    async def pay(ctx: WorkflowContext) -> None:
        await charge(ctx)

    telemetry = Telemetry(exception_texts=texts)
    await trace_of(telemetry, pay)
    assert ("4711" in "".join(span.to_json() for span in telemetry.spans)) == texts
    for name in ("charge", "pay"):
        assert telemetry.one(name).status.status_code is StatusCode.ERROR
        assert (telemetry.one(name).attributes or {})["error.type"]


async def test_retries_failures_and_compensations_are_spans() -> None:
    async def release(ctx: ActivityContext) -> None: ...

    @activity(retry=RetryPolicy.fixed(2, 5), compensation=release)
    async def book(ctx: ActivityContext) -> None:
        if ctx.attempt == 1:
            raise ConnectionError("busy")

    @activity
    async def refuse(ctx: ActivityContext) -> None:
        raise TerminalError("sold out")

    @workflow
    async def trip(ctx: WorkflowContext) -> None:
        await book(ctx)
        await refuse(ctx)

    telemetry = Telemetry()
    await trace_of(telemetry, trip)

    assert telemetry.names() == ["start trip", "book", "backoff book", "book", "refuse", "release", "trip"]
    assert is_one_trace(telemetry.spans)
    first, second = telemetry.one("book"), telemetry.one("book", 1)
    assert [(span.attributes or {})["romancy.activity.attempt"] for span in (first, second)] == [1, 2]
    assert (first.status.status_code, second.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    assert first.events[0].name == "exception"
    pause = telemetry.one("backoff book")
    assert (pause.end_time or 0) - (pause.start_time or 0) == 5 * 10**9
    assert (telemetry.one("release").attributes or {})["romancy.activity.compensates"] == "book:1"
    end = telemetry.one("trip")
    assert (end.status.status_code, end.status.description) == (StatusCode.ERROR, "sold out")
    assert (end.attributes or {})["romancy.workflow.status"] == "failed"


@pytest.mark.parametrize("from_activity", [False, True])
async def test_events_carry_the_trace_from_sender_to_receiver(from_activity: bool) -> None:
    @activity
    async def tell(ctx: ActivityContext) -> None:
        await send_event(ctx, "paid", "/bank", subject="42")

    @workflow
    async def sender(ctx: WorkflowContext) -> None:
        await (tell(ctx) if from_activity else send_event(ctx, "paid", "/bank", subject="42"))

    @workflow(name="paid", event_handler=True)
    async def on_paid(ctx: WorkflowContext) -> None: ...

    @workflow
    async def waiter(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "paid")

    telemetry = Telemetry()
    async with TestEnvironment(workflows=[sender, on_paid, waiter], hooks=telemetry.hooks) as env:
        waiting = await env.app.start_workflow(waiter.with_options(instance_id="w"))
        await env.settle()
        await (await env.app.start_workflow(sender.with_options(instance_id="s"))).result()
        await waiting.result()
        await env.settle()

    sent, met, started = telemetry.one("send paid"), telemetry.one("wait paid"), telemetry.one("start paid")
    assert sent.context is not None
    assert (sent.kind, met.kind, started.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER, SpanKind.CONSUMER)
    for span in (met, started):
        (link,) = span.links
        assert (link.context.trace_id, link.context.span_id) == (sent.context.trace_id, sent.context.span_id)
    assert (met.attributes or {})["cloudevents.event_subject"] == "42"
    assert (met.attributes or {})["messaging.destination.name"] == "paid"
    above = telemetry.one("tell" if from_activity else "sender").context
    assert above is not None
    assert sent.parent is not None
    assert sent.parent.span_id == above.span_id
    for one in ("s", "w"):
        assert is_one_trace(
            [span for span in telemetry.spans if span.context and span.context.trace_id == trace_id_of(one)], one
        )


@pytest.mark.parametrize(
    "header", ["00-" + "a" * 32 + "-" + "b" * 16 + "-01", "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"]
)
async def test_a_foreign_traceparent_becomes_a_link_if_it_is_one(header: str) -> None:
    @workflow
    async def waiter(ctx: WorkflowContext) -> None:
        await wait_event(ctx, "paid")

    telemetry = Telemetry()
    async with TestEnvironment(workflows=[waiter], hooks=telemetry.hooks) as env:
        handle = await env.app.start_workflow(waiter)
        await env.app.send_event("paid", "/elsewhere", extensions={"traceparent": header})
        await handle.result()

    links = [f"{link.context.trace_id:032x}" for link in telemetry.one("wait paid").links]
    assert links == (["a" * 32] if header.startswith("00-a") else [])


async def test_a_wait_that_times_out_is_a_span() -> None:
    @workflow
    async def waiter(ctx: WorkflowContext) -> None:
        with contextlib.suppress(EventTimeoutError):
            await wait_event(ctx, "paid", timeout=30)

    telemetry = Telemetry()
    await trace_of(telemetry, waiter)

    assert (telemetry.one("wait paid").attributes or {})["romancy.timed_out"] is True
    assert is_one_trace(telemetry.spans)


async def test_an_instance_is_sampled_as_a_whole() -> None:
    @workflow
    async def order(ctx: WorkflowContext) -> None:
        await pack(ctx, "a")

    telemetry = Telemetry(sampler=ParentBased(TraceIdRatioBased(0.5)))
    async with TestEnvironment(workflows=[order], hooks=telemetry.hooks) as env:
        for n in range(40):
            await (await env.app.start_workflow(order.with_options(instance_id=f"order-{n}"))).result()

    spans = [span.context.trace_id for span in telemetry.spans if span.context]
    kept = [n for n in range(40) if trace_id_of(f"order-{n}") in spans]
    assert 5 < len(kept) < 35
    assert all(spans.count(trace_id_of(f"order-{n}")) == 3 for n in kept)


async def test_metrics_are_recorded() -> None:
    @activity(retry=RetryPolicy.fixed(2, 5))
    async def book(ctx: ActivityContext) -> None:
        if ctx.attempt == 1:
            raise ConnectionError("busy")

    @workflow
    async def trip(ctx: WorkflowContext) -> None:
        await book(ctx)
        await send_event(ctx, "gone", "/here")
        await wait_event(ctx, "gone")

    telemetry = Telemetry()
    await trace_of(telemetry, trip)

    metrics = telemetry.metrics()
    assert {name: points[0].value for name, points in metrics.items() if hasattr(points[0], "value")} == {
        "romancy.workflow.started": 1,
        "romancy.activity.retries": 1,
        "romancy.event.sent": 1,
        "romancy.event.received": 1,
    }
    (ended,) = metrics["romancy.workflow.duration"]
    assert (ended.count, ended.sum) == (1, 5)
    assert ended.attributes == {"romancy.workflow.name": "trip", "romancy.workflow.status": "completed"}
    (activity_point,) = metrics["romancy.activity.duration"]
    assert activity_point.attributes == {"romancy.activity.name": "book", "romancy.activity.outcome": "ok"}


async def test_a_provider_that_does_not_let_ids_be_chosen_still_gets_one_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    @workflow
    async def order(ctx: WorkflowContext) -> None:
        await pack(ctx, "a")

    monkeypatch.setattr("romancy.integrations.opentelemetry._innermost", lambda tracer: object())
    telemetry = Telemetry()
    await trace_of(telemetry, order)

    assert {span.context.trace_id for span in telemetry.spans if span.context} == {trace_id_of("one")}
    assert telemetry.names() == ["start order", "pack", "order"]


async def test_traces_or_metrics_can_be_left_out() -> None:
    @workflow
    async def order(ctx: WorkflowContext) -> dict[str, Any]:
        await pack(ctx, "a")
        await send_event(ctx, "said", "/here")
        return dict((await wait_event(ctx, "said")).extensions)

    reader = InMemoryMetricReader()
    silent = OpenTelemetry(tracing=False, meter_provider=MeterProvider([reader]))
    async with TestEnvironment(workflows=[order], hooks=silent) as env:
        assert await (await env.app.start_workflow(order)).result() == {}
    assert reader.get_metrics_data() is not None


def test_the_short_name_is_the_same() -> None:
    assert otel.OpenTelemetry is OpenTelemetry


def test_a_missing_extra_says_what_to_install() -> None:
    code = "import sys; sys.modules['opentelemetry'] = None; import romancy.integrations.opentelemetry"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'romancy[opentelemetry]'" in done.stderr


# --- real processes


def process(folder: Path, name: str) -> subprocess.Popen[str]:
    script = Path(__file__).with_name("traced_worker.py")
    arguments = [str(folder / "orders.db"), str(folder / f"{name}.spans"), name]
    return subprocess.Popen([sys.executable, str(script), *arguments], stdout=subprocess.PIPE, text=True)


def read(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{name}.spans").read_text().splitlines()]


@pytest.mark.chaos
def test_a_worker_that_is_killed_in_mid_trace_leaves_one_trace(tmp_path: Path) -> None:
    with process(tmp_path, "first") as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "charging\n"
        first.send_signal(signal.SIGKILL)
    with process(tmp_path, "second") as second:
        assert second.stdout is not None
        assert second.stdout.readline() == "charged\n"
        assert second.wait(30) == 0

    before, after = read(tmp_path, "first"), read(tmp_path, "second")
    assert [span["name"] for span in before] == ["start checkout", "reserve", "sleep"]
    assert [span["name"] for span in after] == ["replay", "charge", "checkout"]
    whole = before + after
    assert {span["context"]["trace_id"] for span in whole} == {f"0x{trace_id_of('order-42'):032x}"}
    root = whole[-1]
    assert root["parent_id"] is None
    assert {span["parent_id"] for span in whole[:-1]} == {root["context"]["span_id"]}
    assert len({span["context"]["span_id"] for span in whole}) == len(whole)

"""OpenTelemetry: metrics, and a trace for each instance across processes, waits and crashes. Needs `romancy[opentelemetry]`.

    App(hooks=OpenTelemetry())

The ids of an instance's trace and spans are derived from the instance's id. So any worker that continues the instance also
continues its trace, without any stored state: if a process dies, only the span of its running attempt is lost.

    checkout ─────────────────────────────────────────────── the instance, written by the worker that ends it
      ├─ start checkout      from its creation until it ran; links to the event that started it
      ├─ charge              an attempt; the current span of the code inside
      ├─ backoff charge      until the next one
      ├─ wait order.paid     links to the span that sent the event
      └─ send order.shipped  its context travels as the event's `traceparent`
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

from romancy import ConfigurationError, ReceivedEvent
from romancy.hooks import (
    ActivityCompleted,
    ActivityFailed,
    ActivityRetried,
    ActivityStarted,
    EventReceived,
    EventSent,
    EventTimedOut,
    EventWaitCompleted,
    Hooks,
    Info,
    ReplayCompleted,
    TimerFired,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowFailed,
    WorkflowRecurred,
    WorkflowStarted,
)

try:
    from opentelemetry import metrics, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "opentelemetry":
        raise
    raise ConfigurationError(
        "Tracing needs opentelemetry, which is not installed: pip install 'romancy[opentelemetry]'"
    ) from error

__all__ = ["OpenTelemetry", "span_context_of", "trace_id_of"]

_NAME = "romancy"
_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def trace_id_of(instance_id: str) -> int:
    """Return the trace id of an instance; `format(trace_id_of(id), "032x")` is its usual form."""
    return _hash(16, "trace", instance_id)


def span_context_of(instance_id: str) -> SpanContext:
    """Return the span context of an instance, for links: `span.add_link(span_context_of(handle.instance_id))`."""
    return SpanContext(trace_id_of(instance_id), _span_id(instance_id), is_remote=True, trace_flags=_SAMPLED)


class OpenTelemetry(Hooks):
    """Hooks that write spans and metrics.

    They use the given providers, or those of the process. `tracing=False` or `measuring=False` disables one of the two.
    `exception_texts=False` records only the types of exceptions, because their messages and tracebacks may contain data that
    a codec encrypts in the database.
    """

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        tracing: bool = True,
        measuring: bool = True,
        exception_texts: bool = True,
    ) -> None:
        self._texts = exception_texts
        self._spans = _Spans(tracer_provider) if tracing else None
        self._instruments = _Instruments(meter_provider) if measuring else None

    # --- workflows

    async def on_workflow_start(self, info: WorkflowStarted) -> None:
        """Write a span from the creation of the instance until its start."""
        if self._instruments is not None:
            self._instruments.started.add(1, {"romancy.workflow.name": info.workflow_name})
        if self._spans is not None:
            self._spans.write(
                info,
                f"start {info.workflow_name}",
                "start",
                since=info.created_at,
                kind=SpanKind.CONSUMER if info.event is not None else SpanKind.INTERNAL,
                links=_links(info.event),
                attributes=_event_attributes(info.event) if info.event is not None else {},
            )

    async def on_workflow_complete(self, info: WorkflowCompleted) -> None:
        """Write the span of the instance."""
        self._ended(info, info.created_at, "completed")

    async def on_workflow_failed(self, info: WorkflowFailed) -> None:
        """Write the span of the instance, with the error."""
        self._ended(info, info.created_at, "failed", self._error_labels(info.error.type, info.error.message))

    async def on_workflow_cancelled(self, info: WorkflowCancelled) -> None:
        """Write the span of the instance."""
        self._ended(info, info.created_at, "cancelled")

    async def on_workflow_recur(self, info: WorkflowRecurred) -> None:
        """Write an empty span at the end of a generation."""
        if self._spans is not None:
            self._spans.write(info, "recur", "recur", since=info.at)

    def _ended(self, info: Info, since: datetime, status: str, error: tuple[str, str] | None = None) -> None:
        if self._instruments is not None:
            labels = {"romancy.workflow.name": info.workflow_name, "romancy.workflow.status": status}
            self._instruments.workflows.record(_seconds(info.at - since), labels)
        if self._spans is not None:
            self._spans.write_instance(info, since, {"romancy.workflow.status": status}, error)

    # --- activities

    @contextmanager
    def around_activity(self, info: ActivityStarted) -> Iterator[None]:
        """Make the span of an attempt current while it runs."""
        if self._spans is None:
            yield
            return
        span = self._spans.start(info, info.activity_name, _attempt(info), attributes=_activity_attributes(info))
        try:
            with trace.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
                yield
        except asyncio.CancelledError:
            span.set_attribute("romancy.activity.cancelled", True)
            raise
        except BaseException as error:
            if self._texts:
                span.record_exception(error)
            _fail(span, self._error_labels(type(error).__qualname__, str(error)))
            raise
        finally:
            span.end()

    async def on_activity_complete(self, info: ActivityCompleted) -> None:
        """Record the duration. `around_activity` has written the span."""
        self._record_activity(info, "ok")

    async def on_activity_failed(self, info: ActivityFailed) -> None:
        """Record the duration. `around_activity` has written the span."""
        self._record_activity(info, "cancelled" if info.cancelled else "error")

    def _record_activity(self, info: ActivityCompleted | ActivityFailed, outcome: str) -> None:
        if self._instruments is not None:
            labels = {"romancy.activity.name": info.activity_name, "romancy.activity.outcome": outcome}
            self._instruments.activities.record(_seconds(info.at - info.started_at), labels)

    async def on_activity_retry(self, info: ActivityRetried) -> None:
        """Write a span for the back-off, or for an attempt that was lost with its worker, which could not write it."""
        if self._instruments is not None:
            self._instruments.retries.add(1, {"romancy.activity.name": info.activity_name})
        if self._spans is None:
            return
        failed = self._error_labels(info.error.type, info.error.message)
        attempt = f"{info.activity_id}:{info.attempt}"
        if info.lost:
            name, part = info.activity_name, f"lost:{attempt}"
            self._spans.write(info, name, part, since=info.started_at, attributes=_activity_attributes(info), error=failed)
        else:
            name, part = f"backoff {info.activity_name}", f"backoff:{attempt}"
            more = {**_activity_attributes(info), "error.type": info.error.type}
            self._spans.write(info, name, part, since=info.at, until=info.next_at, attributes=more)

    def _error_labels(self, kind: str, message: str) -> tuple[str, str]:
        return kind, message if self._texts else ""

    # --- events and timers

    def event_extensions(self, info: EventSent) -> Mapping[str, str | int | bool]:
        """Return the `traceparent` of an event: the context of the span for sending it."""
        return {} if self._spans is None else {"traceparent": self._spans.traceparent(info.instance_id, _sending(info))}

    async def on_event_sent(self, info: EventSent) -> None:
        """Write a span for sending an event."""
        if self._instruments is not None:
            self._instruments.sent.add(1, {"messaging.destination.name": info.event_type})
        if self._spans is None:
            return
        sender = None if info.activity_id is None else _attempt(info)
        attributes = {
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            **_cloud_event(info.event_id, info.source, info.event_type, info.subject),
        }
        self._spans.write(
            info,
            f"send {info.event_type}",
            _sending(info),
            since=info.at,
            kind=SpanKind.PRODUCER,
            attributes=attributes,
            parent=sender,
        )

    async def on_event_received(self, info: EventReceived) -> None:
        """Count a received event."""
        if self._instruments is not None:
            self._instruments.received.add(1, {"messaging.destination.name": info.event.type})

    async def on_event_wait_complete(self, info: EventWaitCompleted) -> None:
        """Write a span for the wait, with a link to the span of the sender."""
        if self._spans is not None:
            self._spans.write(
                info,
                f"wait {info.event_type}",
                f"wait:{info.activity_id}",
                since=info.since,
                kind=SpanKind.CONSUMER,
                links=_links(info.event),
                attributes={"romancy.activity.id": info.activity_id, **_event_attributes(info.event)},
            )

    async def on_event_timeout(self, info: EventTimedOut) -> None:
        """Write a span for a wait that timed out."""
        if self._spans is not None:
            attributes = {"romancy.activity.id": info.activity_id, "romancy.timed_out": True}
            part = f"wait:{info.activity_id}"
            self._spans.write(info, f"wait {info.event_type}", part, since=info.since, attributes=attributes)

    async def on_timer_fired(self, info: TimerFired) -> None:
        """Write a span for a sleep."""
        if self._spans is not None:
            attributes = {"romancy.activity.id": info.activity_id}
            self._spans.write(info, "sleep", f"wait:{info.activity_id}", since=info.since, attributes=attributes)

    async def on_replay_complete(self, info: ReplayCompleted) -> None:
        """Write a span for a replay."""
        if self._instruments is not None:
            self._instruments.replays.record(info.seconds, {"romancy.workflow.name": info.workflow_name})
        if self._spans is None:
            return
        failed = None if info.problem is None else self._error_labels("DeterminismViolationError", info.problem)
        since, part = info.at - timedelta(seconds=info.seconds), f"replay:{info.worker_id}:{info.at.isoformat()}"
        attributes = {"romancy.replay.entries": info.entries}
        self._spans.write(info, "replay", part, since=since, attributes=attributes, error=failed)


class _Spans:
    """Writes spans whose ids are derived from the instance and the part that they describe."""

    def __init__(self, provider: trace.TracerProvider | None) -> None:
        self._provider = provider
        self._tracer: trace.Tracer | None = None
        self._sampler: Any = None
        self._ids: _ChosenIds | None = None

    def start(
        self,
        info: Info,
        name: str,
        part: str,
        *,
        since: datetime | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Sequence[Link] = (),
        attributes: Mapping[str, Any] | None = None,
        parent: str | None = None,
    ) -> Span:
        """Start a span, as a child of the span of the instance or of another part."""
        tracer, instance_id = self._opened(), info.instance_id
        above = "" if parent is None else _part(info, parent)
        context = trace.set_span_in_context(NonRecordingSpan(self._context_of(instance_id, above)), Context())
        self._choose(instance_id, _part(info, part))
        began = None if since is None else _nanos(since)
        return tracer.start_span(name, context, kind, {**_common(info), **(attributes or {})}, links, began)

    def write(
        self,
        info: Info,
        name: str,
        part: str,
        *,
        since: datetime,
        until: datetime | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Sequence[Link] = (),
        attributes: Mapping[str, Any] | None = None,
        parent: str | None = None,
        error: tuple[str, str] | None = None,
    ) -> None:
        """Write a span of a past period."""
        span = self.start(info, name, part, since=since, kind=kind, links=links, attributes=attributes, parent=parent)
        _fail(span, error)
        span.end(_nanos(until or info.at))

    def write_instance(
        self, info: Info, since: datetime, attributes: Mapping[str, Any], error: tuple[str, str] | None
    ) -> None:
        """Write the span of the whole instance."""
        tracer = self._opened()
        # If the provider does not allow chosen ids, the span gets a generated one: then it is a sibling of the others.
        above = None if self._ids is not None else NonRecordingSpan(self._context_of(info.instance_id))
        context = Context() if above is None else trace.set_span_in_context(above, Context())
        self._choose(info.instance_id)
        what = {**_common(info), **attributes}
        span = tracer.start_span(info.workflow_name, context, SpanKind.INTERNAL, what, None, _nanos(since))
        _fail(span, error)
        span.end(_nanos(info.at))

    def traceparent(self, instance_id: str, part: str) -> str:
        """Return the `traceparent` header of a span."""
        self._opened()
        context = self._context_of(instance_id, part)
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def _context_of(self, instance_id: str, part: str = "") -> SpanContext:
        flags = _SAMPLED if self._sampled(instance_id) else TraceFlags(TraceFlags.DEFAULT)
        return SpanContext(trace_id_of(instance_id), _span_id(instance_id, part), is_remote=True, trace_flags=flags)

    def _sampled(self, instance_id: str) -> bool:
        """Return the sampling decision of the instance's span. It is written last, but all spans share its decision."""
        if self._sampler is None:
            return True
        decision = self._sampler.should_sample(Context(), trace_id_of(instance_id), _NAME).decision
        return bool(decision.is_sampled())

    def _choose(self, instance_id: str, part: str = "") -> None:
        if self._ids is not None:
            self._ids.trace_id, self._ids.span_id = trace_id_of(instance_id), _span_id(instance_id, part)

    def _opened(self) -> trace.Tracer:
        """Return the tracer, made on first use because providers are often set up after the app."""
        if self._tracer is None:
            self._tracer = trace.get_tracer(_NAME, tracer_provider=self._provider)
            made: Any = _innermost(self._tracer)
            self._sampler = getattr(made, "sampler", None)
            if hasattr(made, "id_generator"):
                made.id_generator = self._ids = _ChosenIds()
        return self._tracer


class _ChosenIds:
    """An id generator that returns the ids that were chosen for the next span."""

    def __init__(self) -> None:
        self.trace_id = 1
        self.span_id = 1

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id

    def is_trace_id_random(self) -> bool:
        return False


class _Instruments:
    """The instruments of the metrics."""

    def __init__(self, provider: metrics.MeterProvider | None) -> None:
        meter = metrics.get_meter(_NAME, meter_provider=provider)
        self.started = meter.create_counter("romancy.workflow.started", "{instance}", "Instances that began to run.")
        self.workflows = meter.create_histogram("romancy.workflow.duration", "s", "From creation to the end.")
        self.activities = meter.create_histogram("romancy.activity.duration", "s", "How long the last attempts took.")
        self.retries = meter.create_counter("romancy.activity.retries", "{attempt}", "Attempts that are repeated.")
        self.sent = meter.create_counter("romancy.event.sent", "{event}", "Events that were sent.")
        self.received = meter.create_counter("romancy.event.received", "{event}", "Events that were consumed.")
        self.replays = meter.create_histogram("romancy.replay.duration", "s", "How long replays took.")


_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


def _hash(size: int, *parts: str) -> int:
    digest = blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=size, person=b"romancy")
    return int.from_bytes(digest.digest(), "big") or 1  # 0 is an invalid id


def _span_id(instance_id: str, part: str = "") -> int:
    return _hash(8, "span", instance_id, part)


def _part(info: Info, part: str) -> str:
    """Return the unique name of a part. Sends have no generation in it, as they are named before their info exists."""
    return part if part.startswith("send:") else f"{info.generation}:{part}"


def _attempt(info: ActivityStarted | EventSent) -> str:
    # Includes the worker, because an interrupted attempt may be repeated on another worker with the same number.
    return f"attempt:{info.activity_id}:{info.attempt}:{info.worker_id}"


def _sending(info: EventSent) -> str:
    return f"send:{info.source}:{info.event_id}"


def _innermost(tracer: Any) -> Any:
    """Return the tracer of the SDK inside wrappers."""
    for _ in range(5):
        if hasattr(tracer, "id_generator"):
            break
        inner = getattr(tracer, "tracer", None) or getattr(tracer, "_tracer", None)
        if inner is None or inner is tracer:
            break
        tracer = inner
    return tracer


def _links(event: ReceivedEvent[Any] | None) -> list[Link]:
    found = None if event is None else _TRACEPARENT.fullmatch(str(event.extensions.get("traceparent", "")))
    if found is None:
        return []
    context = SpanContext(int(found[1], 16), int(found[2], 16), is_remote=True, trace_flags=TraceFlags(int(found[3], 16)))
    return [Link(context)] if context.is_valid else []


def _common(info: Info) -> dict[str, Any]:
    return {
        "romancy.instance.id": info.instance_id,
        "romancy.workflow.name": info.workflow_name,
        "romancy.generation": info.generation,
        "romancy.worker.id": info.worker_id,
    }


def _activity_attributes(info: ActivityStarted | ActivityRetried) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "romancy.activity.id": info.activity_id,
        "romancy.activity.name": info.activity_name,
        "romancy.activity.attempt": info.attempt,
    }
    if info.compensates is not None:
        attributes["romancy.activity.compensates"] = info.compensates
    return attributes


def _event_attributes(event: ReceivedEvent[Any]) -> dict[str, Any]:
    return {
        "messaging.operation.name": "wait",
        "messaging.operation.type": "receive",
        **_cloud_event(event.id, event.source, event.type, event.subject),
    }


def _cloud_event(id: str, source: str, type: str, subject: str | None) -> dict[str, Any]:
    attributes = {
        "messaging.system": _NAME,
        "messaging.destination.name": type,
        "messaging.message.id": id,
        "cloudevents.event_id": id,
        "cloudevents.event_source": source,
        "cloudevents.event_type": type,
    }
    return attributes if subject is None else {**attributes, "cloudevents.event_subject": subject}


def _fail(span: Span, error: tuple[str, str] | None) -> None:
    if error is not None:
        span.set_status(Status(StatusCode.ERROR, error[1] or None))
        span.set_attribute("error.type", error[0])


def _nanos(when: datetime) -> int:
    return (when - _EPOCH) // timedelta(microseconds=1) * 1000


def _seconds(duration: timedelta) -> float:
    return max(duration.total_seconds(), 0.0)

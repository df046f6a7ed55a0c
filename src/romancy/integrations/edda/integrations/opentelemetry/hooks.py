"""`OpenTelemetryHooks`: the hooks of `romancy.integrations.opentelemetry`, with Edda's options.

Spans and metrics are those of romancy. The trace id of an instance is derived from its id, so its context is known before
the instance starts and after it has ended.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from romancy import ConfigurationError, ReceivedEvent
from romancy.hooks import EventWaitCompleted, WorkflowStarted
from romancy.integrations.opentelemetry import OpenTelemetry

# After the import above, which raises an error that says what to install.
from opentelemetry import metrics, trace  # isort: skip

__all__ = ["OpenTelemetryHooks", "extract_trace_context", "inject_trace_context"]

_KEY = "_trace_context"
_PARENT = "traceparent"


class OpenTelemetryHooks(OpenTelemetry):
    """Hooks that write spans, and metrics with `enable_metrics`.

    They use the providers of the process. If there are none, providers are set up for `otlp_endpoint` (gRPC) or, without
    it, for the console.
    """

    def __init__(self, service_name: str = "edda", otlp_endpoint: str | None = None, enable_metrics: bool = False) -> None:
        if not _is_set_up(trace.get_tracer_provider()):
            trace.set_tracer_provider(_tracer_provider(service_name, otlp_endpoint))
        if enable_metrics and not _is_set_up(metrics.get_meter_provider()):
            metrics.set_meter_provider(_meter_provider(service_name, otlp_endpoint))
        super().__init__(measuring=enable_metrics)

    async def on_workflow_start(self, info: WorkflowStarted) -> None:
        """Add a link to the span that the data of the event names."""
        event = info.event
        await super().on_workflow_start(info if event is None else replace(info, event=_with_parent(event)))

    async def on_event_wait_complete(self, info: EventWaitCompleted) -> None:
        """Add a link to the span that the data of the event names."""
        await super().on_event_wait_complete(replace(info, event=_with_parent(info.event)))

    def get_trace_context(self, instance_id: str) -> dict[str, str]:
        """Return the `traceparent` of the span of an instance."""
        return {} if self._spans is None else {_PARENT: self._spans.traceparent(instance_id, "")}


def inject_trace_context(hooks: OpenTelemetryHooks, instance_id: str, event_data: dict[str, Any]) -> dict[str, Any]:
    """Write the context of an instance's trace into the data of an event, under `_trace_context`.

    Events of workflows and activities carry it automatically, in the extension `traceparent`.
    """
    event_data[_KEY] = hooks.get_trace_context(instance_id)
    return event_data


def extract_trace_context(event_data: dict[str, Any]) -> Any:
    """Return the context in the data of an event under `_trace_context`; None if there is none."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = event_data.get(_KEY)
    return TraceContextTextMapPropagator().extract(carrier) if isinstance(carrier, dict) else None


def _with_parent(event: ReceivedEvent[Any]) -> ReceivedEvent[Any]:
    carrier: Any = event.data.get(_KEY) if isinstance(event.data, dict) else None
    if _PARENT in event.extensions or not isinstance(carrier, dict) or not isinstance(carrier.get(_PARENT), str):
        return event
    return replace(event, extensions={**event.extensions, _PARENT: carrier[_PARENT]})


# --- providers


def _is_set_up(provider: object) -> bool:
    """Return whether a provider is not the proxy that OpenTelemetry uses until one is set."""
    return type(provider).__module__.partition(".")[0] != "opentelemetry" or "Proxy" not in type(provider).__name__


def _tracer_provider(service_name: str, endpoint: str | None) -> Any:
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
    except ModuleNotFoundError as error:
        raise _no_sdk() from error
    provider = TracerProvider(resource=Resource.create({"service.name": service_name}))
    exporter: Any = ConsoleSpanExporter() if endpoint is None else _exporter("trace_exporter", "OTLPSpanExporter", endpoint)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _meter_provider(service_name: str, endpoint: str | None) -> Any:
    try:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
    except ModuleNotFoundError as error:
        raise _no_sdk() from error
    exporter: Any = (
        ConsoleMetricExporter() if endpoint is None else _exporter("metric_exporter", "OTLPMetricExporter", endpoint)
    )
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=10_000)
    return MeterProvider([reader], resource=Resource.create({"service.name": service_name}))


def _exporter(module: str, name: str, endpoint: str) -> Any:
    from importlib import import_module

    try:
        found = import_module(f"opentelemetry.exporter.otlp.proto.grpc.{module}")
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"OpenTelemetryHooks(otlp_endpoint={endpoint!r}) needs one more package: "
            "pip install opentelemetry-exporter-otlp-proto-grpc"
        ) from error
    return getattr(found, name)(endpoint=endpoint, insecure=endpoint.startswith("http://"))


def _no_sdk() -> ConfigurationError:
    return ConfigurationError(
        "OpenTelemetryHooks needs the OpenTelemetry SDK to set up providers, and it is not installed: "
        "pip install opentelemetry-sdk"
    )

"""Traces and metrics, as Edda spells it. Needs `romancy[opentelemetry]`."""

from romancy.integrations.edda.integrations.opentelemetry.hooks import (
    OpenTelemetryHooks,
    extract_trace_context,
    inject_trace_context,
)

__all__ = ["OpenTelemetryHooks", "extract_trace_context", "inject_trace_context"]

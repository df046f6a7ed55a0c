"""Edda's hooks for traces and metrics. Needs `romancy[opentelemetry]`."""

from romancy.integrations.edda.integrations.opentelemetry.hooks import (
    OpenTelemetryHooks,
    extract_trace_context,
    inject_trace_context,
)

__all__ = ["OpenTelemetryHooks", "extract_trace_context", "inject_trace_context"]

"""Short name of `romancy.integrations.opentelemetry`."""

from romancy.integrations.opentelemetry import OpenTelemetry, span_context_of, trace_id_of

__all__ = ["OpenTelemetry", "span_context_of", "trace_id_of"]

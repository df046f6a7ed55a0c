"""`romancy.integrations.opentelemetry` by its short name."""

from romancy.integrations.opentelemetry import OpenTelemetry, span_context_of, trace_id_of

__all__ = ["OpenTelemetry", "span_context_of", "trace_id_of"]

"""Integrations under Edda's names: `mcp` and `opentelemetry`."""

__all__: list[str] = []

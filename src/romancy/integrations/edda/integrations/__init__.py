"""Edda's integrations that this library has, too, under Edda's names: `mcp` and `opentelemetry`."""

__all__: list[str] = []

"""Edda's MCP server, whose tools are workflows. Needs `romancy[mcp]`."""

from romancy.integrations.edda.integrations.mcp.server import EddaMCPServer

__all__ = ["EddaMCPServer"]

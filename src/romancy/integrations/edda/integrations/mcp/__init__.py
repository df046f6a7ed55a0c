"""Workflows as tools of an MCP server, as Edda spells it. Needs `romancy[mcp]`."""

from romancy.integrations.edda.integrations.mcp.server import EddaMCPServer

__all__ = ["EddaMCPServer"]

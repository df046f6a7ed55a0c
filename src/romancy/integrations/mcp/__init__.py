"""Workflows as tools of an MCP server (Model Context Protocol): a call starts an instance, which survives crashes.

    tools/call order ──► the instance is durable ──► its id, or a task
    workflow_status  ──► its status, and when to poll again
    workflow_result  ──► its result
    workflow_cancel  ──► requests its cancellation

The server process has no state: a client may send its next request to another process.
"""

from __future__ import annotations

from romancy import ConfigurationError

try:
    from romancy.integrations.mcp.server import ToolServer
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "starlette"):
        raise
    raise ConfigurationError("MCP needs mcp, which is not installed: pip install 'romancy[mcp]'") from error

__all__ = ["ToolServer"]

"""Workflows as tools of an MCP server (Model Context Protocol): started at once, asked about later, also after a crash.

    tools/call order ──► the instance is durable ──► its id, or a task
    workflow_status  ──► where it stands, and when to ask again
    workflow_result  ──► what it gave
    workflow_cancel  ──► a request, as everywhere

Nothing is kept in the process: whoever asks may ask another one.
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

"""Results of tool calls in the form of the protocol."""

from __future__ import annotations

from typing import Any

from mcp.types import CallToolResult, TextContent
from pydantic_core import to_json, to_jsonable_python

from romancy import Instance, Status


def structured_result(value: dict[str, Any]) -> CallToolResult:
    """Return an object as a result: structured for programs, and as text for models."""
    plain = _plain(value)
    return CallToolResult(content=[_text(plain)], structured_content=plain)


def error_result(why: str) -> CallToolResult:
    """Return an error as a result that a model can read and correct."""
    return CallToolResult(content=[TextContent(type="text", text=why)], is_error=True)


def instance_result(instance: Instance) -> CallToolResult:
    """Return the outcome of an instance as the result of its tool."""
    if instance.status is not Status.COMPLETED:
        return error_result(_failure(instance))
    output = _plain(instance.output)
    return CallToolResult(content=[_text(output)], structured_content={"result": output})


def _failure(instance: Instance) -> str:
    why = f": {instance.error}" if instance.error is not None else "."
    return f"{instance.instance_id} is {instance.status.value}{why}"


def _plain(value: Any) -> Any:
    return to_jsonable_python(value, bytes_mode="base64", inf_nan_mode="strings", fallback=str)


def _text(plain: Any) -> TextContent:
    return TextContent(type="text", text=plain if isinstance(plain, str) else to_json(plain).decode())

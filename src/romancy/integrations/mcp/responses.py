"""Answers in the protocol's words."""

from __future__ import annotations

from typing import Any

from mcp.types import CallToolResult, TextContent
from pydantic_core import to_json, to_jsonable_python

from romancy import Instance, Status


def structured_result(value: dict[str, Any]) -> CallToolResult:
    """An object, for programs as it is, and for models as text."""
    plain = _plain(value)
    return CallToolResult(content=[_text(plain)], structured_content=plain)


def error_result(why: str) -> CallToolResult:
    """An error that a model can read, and do better."""
    return CallToolResult(content=[TextContent(type="text", text=why)], is_error=True)


def instance_result(instance: Instance) -> CallToolResult:
    """The end of an instance, as the result of the tool that started it."""
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

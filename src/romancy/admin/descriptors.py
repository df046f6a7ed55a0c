"""Workflow descriptors, which an app stores for processes without its code, such as `romancy --database ... start`.

A descriptor holds the JSON Schema of a workflow's input and the names of the activities that have a compensation. An app
writes the descriptors of its workflows when it starts, and overwrites those of other apps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from romancy.admin.introspection import find_activities
from romancy.admin.records import InputError
from romancy.admin.schemas import input_schema
from romancy.authoring.workflow import Workflow
from romancy.core.matcher import is_same_json

_LONGEST = 900
"""The most bytes of a key; a workflow with a longer name has no descriptor."""
_DEEPEST = 60


class WorkflowDescriptor(NamedTuple):
    """The JSON Schema of a workflow's input, and the names of its compensable activities."""

    schema: dict[str, Any] | None
    compensable: frozenset[str]


def descriptor_key(workflow: str, version: str) -> str | None:
    """Return the key of a descriptor, or None if it is too long. Descriptors are stored among the sources."""
    key = json.dumps(["descriptor", workflow, version])  # no source has such a key: theirs are fingerprints
    return key if len(key) <= _LONGEST else None


def write_descriptor(workflow: Workflow[..., Any]) -> str:
    """Return the descriptor of a workflow of this process, as JSON."""
    try:
        schema = input_schema(workflow)
    except Exception:  # a type has no JSON Schema: the input is not checked then
        schema = None
    known = find_activities([f"{workflow.fn.__module__}:"])
    compensable = sorted(name for name, activity in known.items() if activity.compensation_spec is not None)
    return json.dumps({"schema": schema, "compensable": compensable})


def read_descriptor(text: str | None) -> WorkflowDescriptor:
    """Parse a stored descriptor; return an empty one if there is none."""
    if text is None:
        return WorkflowDescriptor(None, frozenset())
    found = json.loads(text)
    return WorkflowDescriptor(found["schema"], frozenset(found["compensable"]))


def bind_input(workflow: str, schema: dict[str, Any] | None, input: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments by parameter. Raises `InputError`, which gives the problem of each field.

    This checks only what the schema expresses; the worker that runs the instance validates the arguments again.
    """
    if schema is None:
        return input
    input = _wrap_sole_parameter(schema, input)
    wrong = dict(_SchemaChecker(schema).problems(input, schema, ""))
    if wrong:
        problems = "; ".join(f"{path}: {why}" for path, why in list(wrong.items())[:5])
        raise InputError(f"The input is not valid for workflow {workflow!r}: {problems}.", wrong)
    return input


def with_defaults(schema: dict[str, Any] | None, value: Any) -> Any:
    """Return the arguments with the defaults of those that are left out, also in the fields of objects."""
    return value if schema is None else _SchemaChecker(schema).filled(value, schema, 0)


def _wrap_sole_parameter(schema: dict[str, Any], input: dict[str, Any]) -> dict[str, Any]:
    names = list(schema["properties"])
    sole = names[0] if len(names) == 1 and not schema["additionalProperties"] else None
    if sole is None or not input or sole in input:
        return input
    return {sole: input} if _SchemaChecker(schema).takes_objects(schema["properties"][sole]) else input


class _SchemaChecker:
    """Checks values against a schema and its definitions."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._definitions: Mapping[str, Any] = schema.get("$defs", {})

    def _resolved(self, schema: Any) -> dict[str, Any]:
        for _ in range(_DEEPEST):
            if not isinstance(schema, dict) or "$ref" not in schema:
                break
            schema = self._definitions.get(str(schema["$ref"]).rpartition("/")[2], {})
        return schema if isinstance(schema, dict) else {}

    def takes_objects(self, schema: Any) -> bool:
        schema = self._resolved(schema)
        return schema.get("type") == "object" or any(map(self.takes_objects, _choices(schema)))

    def filled(self, value: Any, schema: Any, depth: int) -> Any:
        schema = self._resolved(schema)
        if depth > _DEEPEST:
            return value
        choices = [one for one in map(self._resolved, _choices(schema)) if one.get("type") != "null"]
        if len(choices) == 1:
            return self.filled(value, choices[0], depth + 1)
        if isinstance(value, dict) and isinstance(schema.get("properties"), dict):
            fields: dict[str, Any] = schema["properties"]
            own = {name: self.filled(value[name], fields.get(name, {}), depth + 1) for name in value}
            return {name: one["default"] for name, one in fields.items() if name not in value and "default" in one} | own
        if isinstance(value, list) and "items" in schema:
            return [self.filled(one, schema["items"], depth + 1) for one in value]
        return value

    def problems(self, value: Any, schema: Any, path: str, depth: int = 0) -> list[tuple[str, str]]:
        schema = self._resolved(schema)
        if depth > _DEEPEST:
            return []
        choices = _choices(schema)
        if choices:
            found = [self.problems(value, one, path, depth + 1) for one in choices]
            if not all(found):
                return []
            kinds = [self._resolved(choice).get("type") for choice in choices]
            non_null = [one for one, kind in zip(found, kinds, strict=True) if kind != "null"]
            return non_null[0] if len(non_null) == 1 else [(path, "matches none of the allowed types")]
        allowed = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
        if allowed and not any(is_same_json(value, one) for one in allowed):
            return [(path, f"should be {' or '.join(map(json.dumps, allowed))}")]
        why = _wrong_kind(value, schema.get("type"))
        if why is not None:
            return [(path, why)]
        if isinstance(value, dict):
            return self._object_problems(value, schema, path, depth)
        if isinstance(value, list):
            items = schema.get("items", {})
            return [
                one for index, item in enumerate(value) for one in self.problems(item, items, f"{path}.{index}", depth + 1)
            ]
        return [(path, why)] if (why := _out_of_bounds(value, schema)) is not None else []

    def _object_problems(
        self, value: dict[str, Any], schema: dict[str, Any], path: str, depth: int
    ) -> list[tuple[str, str]]:
        fields: dict[str, Any] = schema.get("properties", {})
        more = schema.get("additionalProperties", True)
        found: list[tuple[str, str]] = []
        for name in schema.get("required", ()):
            if name not in value:
                found.append((_inside(path, name), "is missing"))
        for name, item in value.items():
            if name in fields:
                found += self.problems(item, fields[name], _inside(path, name), depth + 1)
            elif more is False and "patternProperties" not in schema:
                found.append((_inside(path, name), f"is not a field; the fields are {', '.join(fields) or 'none'}"))
            elif isinstance(more, dict):
                found += self.problems(item, more, _inside(path, name), depth + 1)
        return found


def _choices(schema: Mapping[str, Any]) -> list[Any]:
    found: list[Any] = schema.get("anyOf") or schema.get("oneOf") or []
    return found


def _inside(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _wrong_kind(value: Any, kind: Any) -> str | None:
    """Return why a value does not have a type, or None. A value that pydantic converts to the type is accepted."""
    match kind:
        case "object" if not isinstance(value, dict):
            return "should be an object"
        case "array" if not isinstance(value, list):
            return "should be a list"
        case "string" if not isinstance(value, str):
            return "should be a string"
        case "integer" | "number" if not _is_number(value, whole=kind == "integer"):
            return "should be a whole number" if kind == "integer" else "should be a number"
        case "boolean" if not isinstance(value, bool) and value not in _FLAGS:
            return "should be true or false"
        case "null" if value is not None:
            return "should be null"
        case _:
            return None


_FLAGS = (0, 1, "0", "1", "true", "false", "True", "False", "TRUE", "FALSE", "on", "off", "yes", "no", "t", "f", "y", "n")


def _is_number(value: Any, *, whole: bool) -> bool:
    try:
        number = float(value) if isinstance(value, int | float | str) else None
    except (ValueError, OverflowError):
        return isinstance(value, int)
    return number is not None and (not whole or isinstance(value, int) or number.is_integer())


def _out_of_bounds(value: Any, schema: Mapping[str, Any]) -> str | None:
    if isinstance(value, str):
        if len(value) < schema.get("minLength", 0) or len(value) > schema.get("maxLength", len(value)):
            return "is too short or too long"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        below = value < schema.get("minimum", value) or (
            "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]
        )
        above = value > schema.get("maximum", value) or (
            "exclusiveMaximum" in schema and value >= schema["exclusiveMaximum"]
        )
        if below or above:
            return "is too small" if below else "is too large"
    return None

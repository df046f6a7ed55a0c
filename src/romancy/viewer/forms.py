"""Forms: turns a JSON Schema into fields, and the posted fields into a value.

The name of a field is its path in the value, as a JSON pointer: `/order/items/0/sku`. Types for which there is no field
(unions, free objects, recursive models) become a field for JSON text. This module checks only that values have the right
shape. The workflow validates them, and the page shows its errors at the fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Schema: TypeAlias = Mapping[str, Any]
Posted: TypeAlias = Mapping[str, str]

MISSING: Any = object()
"""No value."""
GIVEN = "#given"
"""Suffix of the name of the check box that includes an optional object."""
AS_JSON = "#json"
"""Suffix of the name of the hidden field that marks a text as JSON, because a form field cannot hold it unchanged."""
_DEPTH = 8
_MOST_PARTS = 50
"""Longest path of a field that is read; no form is that deep."""
_LONG = 200
_UNFIT = re.compile(
    "[^\\n\\t -\\ud7ff\\ue000-\\U0010ffff]|[\\x7f-\\x9f\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff]"
)
"""Characters that browsers change in a field or that are invisible there."""
_PLAIN = frozenset({"text", "long"})
_TEXTS = {"date": "date", "date-time": "datetime", "time": "time", "duration": "duration"}


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several values."""

    value: str
    label: str


@dataclass(frozen=True, slots=True)
class Field:
    """A field, or a group of fields."""

    path: str
    title: str
    kind: str
    """object, array, text, long, integer, number, boolean, choice, date, datetime, time, duration, json."""
    required: bool = True
    nullable: bool = False
    description: str = ""
    default: str = ""
    value: str = ""
    given: bool = True
    error: str = ""
    options: tuple[Choice, ...] = ()
    fields: tuple[Field, ...] = ()
    blank: Field | None = None
    """The template of a new array item."""
    depth: int = 0
    """Number of enclosing arrays. The index of a new item is written as `__n0__`, `__n1__`."""
    escaped: bool = False
    """The field shows its text as JSON."""

    @property
    def optional(self) -> bool:
        """Whether the value may be left out."""
        return not self.required or self.nullable

    @property
    def id(self) -> str:
        """The HTML id of the field."""
        return f"f{self.path}"


@dataclass(slots=True)
class FormInput:
    """A posted value, with its errors by path."""

    value: Any
    errors: dict[str, str] = field(default_factory=dict[str, str])


def fields_of(schema: Schema, value: Any = MISSING, errors: Mapping[str, str] | None = None) -> Field:
    """Return the form of a schema, filled in with a value and with the errors by path."""
    return _FormBuilder(schema, errors or {}).field("", "", schema, value, required=True)


def read(schema: Schema, posted: Posted) -> FormInput:
    """Return the posted value. Text that is not a valid number stays text, so that the page can show it with its error."""
    reading = FormInput(None)
    form = fields_of(schema, _skeleton(schema, posted))
    reading.value = _FormReader(posted, reading.errors).value(form)
    if reading.value is MISSING:
        reading.value = {}
    return reading


# --- schemas


@dataclass(frozen=True, slots=True)
class _FieldSpec:
    """The kind of field for a schema."""

    kind: str
    schema: Schema
    nullable: bool = False
    options: tuple[Choice, ...] = ()
    refs: frozenset[str] = frozenset()


def _field_spec(schema: Schema, root: Schema, refs: frozenset[str]) -> _FieldSpec:
    if "$ref" in schema:
        name = str(schema["$ref"])
        if name in refs:
            return _FieldSpec("json", schema)
        target = root.get("$defs", {}).get(name.rpartition("/")[2])
        return _field_spec(target, root, refs | {name}) if isinstance(target, dict) else _FieldSpec("json", schema)
    if len(schema.get("allOf", ())) == 1:
        return _field_spec(schema["allOf"][0], root, refs)
    if "enum" in schema or "const" in schema:
        allowed = schema.get("enum", [schema.get("const")])
        return _FieldSpec("choice", schema, options=tuple(Choice(json.dumps(one), str(one)) for one in allowed))
    if "anyOf" in schema or "oneOf" in schema:
        return _union(schema, root, refs)
    return _FieldSpec(_plain_kind(schema), schema, refs=refs)


def _union(schema: Schema, root: Schema, refs: frozenset[str]) -> _FieldSpec:
    members = [one for one in schema.get("anyOf", schema.get("oneOf", ())) if one.get("type") != "null"]
    nullable = len(members) < len(schema.get("anyOf", schema.get("oneOf", ())))
    if len(members) == 1:
        inner = _field_spec(members[0], root, refs)
        return _FieldSpec(inner.kind, inner.schema, True, inner.options, inner.refs)
    types = {one.get("type") for one in members}
    if types == {"number", "string"}:  # a Decimal: exact as text
        return _FieldSpec("text", schema, nullable)
    return _FieldSpec("json", schema, nullable)


def _plain_kind(schema: Schema) -> str:
    match schema.get("type"):
        case "string":
            return _TEXTS.get(schema.get("format", ""), "long" if schema.get("maxLength", 0) > _LONG else "text")
        case "integer" | "number" | "boolean" as kind:
            return str(kind)
        case "object" if "properties" in schema:
            return "object"
        case "array" if isinstance(schema.get("items"), dict) and "prefixItems" not in schema:
            return "array"
        case _:
            return "json"


class _FormBuilder:
    """Builds the fields of a schema."""

    def __init__(self, root: Schema, errors: Mapping[str, str]) -> None:
        self._root = root
        self._errors = errors

    def field(
        self,
        path: str,
        name: str,
        schema: Schema,
        value: Any,
        *,
        required: bool,
        refs: frozenset[str] = frozenset(),
        depth: int = 0,
    ) -> Field:
        shape = _field_spec(schema, self._root, refs)
        kind = shape.kind if path.count("/") < _DEPTH or shape.kind not in ("object", "array") else "json"
        escaped = kind in _PLAIN and isinstance(value, str) and _UNFIT.search(value) is not None
        if kind == "text" and isinstance(value, str) and "\n" in value:
            kind = "long"
        default = schema.get("default", MISSING)
        missing = value is MISSING or (value is None and shape.nullable)
        return Field(
            path=path,
            title=str(name),
            kind="json" if escaped else kind,
            required=required,
            nullable=shape.nullable,
            description=str(schema.get("description") or shape.schema.get("description") or ""),
            default="" if default is MISSING or default is None else _default_text(default),
            value=json.dumps(value) if escaped else "" if kind in ("object", "array") else _text(kind, value, default),
            given=not missing or (required and not shape.nullable),
            error=self._errors.get(path, ""),
            options=shape.options,
            fields=self._members(kind, path, shape, value, depth),
            blank=self._blank(path, shape, depth) if kind == "array" else None,
            depth=depth,
            escaped=escaped,
        )

    def _members(self, kind: str, path: str, spec: _FieldSpec, value: Any, depth: int) -> tuple[Field, ...]:
        if kind == "object":
            given = value if isinstance(value, dict) else {}
            needed = spec.schema.get("required", ())
            return tuple(
                self.field(
                    f"{path}/{_escaped(name)}",
                    name,
                    schema,
                    given.get(name, MISSING),
                    required=name in needed,
                    refs=spec.refs,
                    depth=depth,
                )
                for name, schema in spec.schema["properties"].items()
            )
        if kind == "array":
            items = value if isinstance(value, list) else []
            return tuple(self._item(path, spec, str(number), one, depth) for number, one in enumerate(items))
        return ()

    def _blank(self, path: str, spec: _FieldSpec, depth: int) -> Field:
        return self._item(path, spec, f"__n{depth}__", MISSING, depth)

    def _item(self, path: str, spec: _FieldSpec, number: str, value: Any, depth: int) -> Field:
        schema: Schema = spec.schema["items"]
        return self.field(
            f"{path}/{number}", f"Item {number}", schema, value, required=True, refs=spec.refs, depth=depth + 1
        )


def _default_text(default: Any) -> str:
    return default if isinstance(default, str) else json.dumps(default)


def _text(kind: str, value: Any, default: Any) -> str:
    """Return the text that the field shows."""
    if value is MISSING:
        value = default if kind in ("choice", "boolean") and default is not MISSING else MISSING
    if value is MISSING or (value is None and kind not in ("choice", "json")):
        return ""
    if kind == "json":
        return value if isinstance(value, _RawText) else json.dumps(value, ensure_ascii=False, indent=2)
    if kind in ("choice", "boolean"):
        return value if isinstance(value, _RawText) else json.dumps(value)
    return value if isinstance(value, str) else json.dumps(value)


class _RawText(str):
    """Posted text that could not be parsed."""

    __slots__ = ()


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


# --- reading


def _skeleton(schema: Schema, posted: Posted) -> Any:
    """Return a value whose arrays have as many items as were posted, so that the form has fields for them."""
    value: Any = {}
    for name in posted:
        path = name.removesuffix(GIVEN).removesuffix(AS_JSON)
        parts = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
        if 0 < len(parts) <= _MOST_PARTS:
            _grow(value, parts)
    return _to_lists(value)


def _grow(value: dict[str, Any], parts: list[str]) -> None:
    for part in parts:
        value = value.setdefault(part, {})


def _to_lists(value: dict[str, Any]) -> Any:
    """Turn objects whose keys are all numbers into lists: the keys are the posted indexes of the items."""
    if value and all(key.isascii() and key.isdecimal() and len(key) < 6 for key in value):
        size = max(map(int, value)) + 1
        return [_to_lists(value.get(str(number), {})) for number in range(min(size, 2000))]
    return {key: _to_lists(one) for key, one in value.items()}


class _FormReader:
    """Reads posted fields into a value."""

    def __init__(self, posted: Posted, errors: dict[str, str]) -> None:
        self._posted = posted
        self._errors = errors

    def value(self, one: Field) -> Any:
        if one.kind == "object":
            return self._object(one)
        if one.kind == "array":
            return self._array(one)
        if one.kind == "boolean" and not one.optional:
            return one.path in self._posted
        text = self._posted.get(one.path, "").replace("\r\n", "\n")  # browsers post line breaks as CRLF
        if text.strip() == "" and (one.kind not in ("text", "long") or one.optional):
            return self._nothing(one)
        return self._leaf(one, text)

    def _nothing(self, one: Field) -> Any:
        if not one.required:
            return MISSING
        if one.nullable:
            return None
        self._errors[one.path] = "This field is required."
        return _RawText("")

    def _object(self, one: Field) -> Any:
        if one.optional and one.path and one.path + GIVEN not in self._posted:
            return MISSING if not one.required else None
        values = {field.title: self.value(field) for field in one.fields}
        return {name: value for name, value in values.items() if value is not MISSING}

    def _array(self, one: Field) -> Any:
        items = [self.value(item) for item in one.fields if not self._untouched(item)]
        if items or not one.optional:
            return items
        return MISSING if not one.required else None

    def _untouched(self, item: Field) -> bool:
        """Return whether all fields of an item are empty: the item is unused, or was removed."""
        inside = [
            text
            for path, text in self._posted.items()
            if (path == item.path or path.startswith(item.path + "/")) and not path.endswith((GIVEN, AS_JSON))
        ]
        return not any(text.strip() for text in inside)

    def _leaf(self, one: Field, text: str) -> Any:
        if one.path + AS_JSON in self._posted:
            return self._json(one, text)
        match one.kind:
            case "integer":
                return self._number(one, text, int, "a whole number")
            case "number":
                return self._number(one, text, _number, "a number")
            case "boolean" | "choice" | "json":
                return self._json(one, text)
            case _:
                return text

    def _number(self, one: Field, text: str, reader: Any, what: str) -> Any:
        try:
            return reader(text.strip())
        except ValueError:
            self._errors[one.path] = f"This is not {what}."
            return _RawText(text)

    def _json(self, one: Field, text: str) -> Any:
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            self._errors[one.path] = f"This is not valid JSON: {error}."
            return _RawText(text)


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)

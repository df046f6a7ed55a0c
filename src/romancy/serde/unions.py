"""Tags for unions whose choices look alike in JSON: a value that would be read back as another choice is written with a tag.

    bytes | str      b"data" -> {"$": "bytes", "v": "ZGF0YQ=="}      "hello" -> "hello"

A tag is written only where it is needed: a value that is read back unchanged without a tag has none, as in older payloads.
Unions whose choices differ in JSON (int | str, Order | None) are left to pydantic, and cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json

from romancy.serde.round_trip import alike

Node = dict[str, Any]

_TAG, _VALUE = "$", "v"
UNTAGGED = ""
"""The step for a value without a tag in the path of an error; it is not shown."""

_PLAIN = {"none": "none", "bool": "bool", "int": "int", "float": "float", "str": "str"}
_OBJECTS = frozenset({"model", "dataclass", "typed-dict", "dict"})
_ARRAYS = frozenset({"list", "set", "frozenset", "tuple"})
_WRAPPERS = frozenset({"nullable", "default"})


class PartCodec(NamedTuple):
    """A writer and a reader for one schema: a union, or one of its choices."""

    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]


class TaggedUnion:
    """A union whose choices look alike in JSON."""

    def __init__(
        self, node: Node, definitions: Mapping[str, Node], build: Callable[[Node], PartCodec], config: Mapping[str, Any]
    ) -> None:
        # A union that refers to itself has a name. The schema that replaces the union takes the name, no part of it does.
        self._name = {"ref": node["ref"]} if "ref" in node else {}
        self._node = {key: value for key, value in node.items() if key != "ref"}
        self._build = build
        self._config = config
        self._choices = dict(_labelled(_choices(node), definitions))

    @cached_property
    def _parts(self) -> dict[str, PartCodec]:
        return {label: self._build(choice) for label, choice in self._choices.items()}

    @cached_property
    def _reader(self) -> Callable[[bytes], Any]:
        return self._build(self.reading()).read

    def reading(self) -> Node:
        """Return the schema that reads values with and without a tag."""
        choices = {label: _unwrapping(choice, self._config) for label, choice in self._choices.items()}
        return {"type": "tagged-union", "choices": {UNTAGGED: self._node, **choices}, "discriminator": self._tag_of}

    def schema(self) -> Node:
        """Return the schema that replaces the union."""
        written = {"type": "function-wrap", "function": self._write, "schema": self._node}
        return {**self.reading(), **self._name, "serialization": written}

    def _tag_of(self, value: Any) -> str:
        return value[_TAG] if is_tagged(value) and value[_TAG] in self._choices else UNTAGGED

    def _write(self, value: Any, handler: Callable[[Any], Any]) -> Any:
        written = handler(value)
        if _round_trips(self._reader, to_json(written, inf_nan_mode="constants"), value):
            return written
        for label, part in self._parts.items():
            try:
                raw = part.write(value)
            except Exception:  # noqa: S112  the value is of another choice
                continue
            if _round_trips(part.read, raw, value):
                return {_TAG: label, _VALUE: from_json(raw)}
        kind, names = type(value).__name__, ", ".join(self._choices)
        raise ValueError(f"a {kind} cannot be told apart from the other types of the union ({names}) when it is read back")


def is_tagged(value: Any) -> bool:
    """A JSON value may carry a tag."""
    return isinstance(value, dict) and len(value) == 2 and _VALUE in value and isinstance(value.get(_TAG), str)


def is_ambiguous(node: Node, definitions: Mapping[str, Node]) -> bool:
    """A value's choice may not be recognizable from its JSON alone."""
    if node.get("mode") == "left_to_right":
        return True
    kinds = [_kind(choice, definitions) for choice in _choices(node)]
    return None in kinds or kinds.count("object") > 1 or kinds.count("array") > 1


def _choices(node: Node) -> list[Node]:
    return [choice[0] if isinstance(choice, tuple) else choice for choice in node["choices"]]


def _kind(node: Node, definitions: Mapping[str, Node]) -> str | None:
    """Return the JSON form of a schema's values; None if it is not known, or is a string that is read as another type."""
    kind = node["type"]
    if kind == "definition-ref":
        target = definitions.get(node["schema_ref"])
        return None if target is None or target["type"] not in _OBJECTS else _kind(target, {})
    if kind in _WRAPPERS:
        return _kind(node["schema"], definitions)
    if kind == "literal":
        return "literal" if all(type(value) in (str, int, bool, type(None)) for value in node["expected"]) else None
    if "serialization" in node or node.get("root_model"):
        return None
    if kind in _OBJECTS:
        return "object"
    return "array" if kind in _ARRAYS else _PLAIN.get(kind)


def _labelled(choices: list[Node], definitions: Mapping[str, Node]) -> list[tuple[str, Node]]:
    """Return the choices with labels that do not change when other choices are added."""
    found: dict[str, Node] = {}
    for choice in choices:
        name = label = _label(choice, definitions)
        number = 1
        while label in found:
            number += 1
            label = f"{name} {number}"
        found[label] = choice
    return list(found.items())


def _label(node: Node, definitions: Mapping[str, Node]) -> str:
    while True:
        if node["type"] == "definition-ref":
            node = definitions.get(node["schema_ref"], {"type": "ref"})
        elif "cls" in node:
            return str(node["cls"].__name__)
        elif isinstance(node.get("schema"), dict):
            node = node["schema"]
        else:
            return str(node["type"])


def _unwrapping(choice: Node, config: Mapping[str, Any]) -> Node:
    fields = {
        _TAG: {"type": "typed-dict-field", "schema": {"type": "str"}, "required": True},
        _VALUE: {"type": "typed-dict-field", "schema": choice, "required": True},
    }
    function = {"type": "no-info", "function": _value_of}
    tagged = {"type": "typed-dict", "fields": fields, "config": config}  # without a config it would use pydantic's defaults
    return {"type": "function-after", "function": function, "schema": tagged}


def _value_of(tagged: Any) -> Any:
    return tagged[_VALUE]


def _round_trips(read: Callable[[bytes], Any], raw: bytes, value: Any) -> bool:
    try:
        return alike(value, read(raw))
    except Exception:  # a validator of the user's may raise anything
        return False

"""Unions of types that look alike in JSON: what could be read back as another of them is written with a tag.

    bytes | str      b"data" -> {"$": "bytes", "v": "ZGF0YQ=="}      "hello" -> "hello"

Only where it is needed: a value that is read back as itself without a tag is written without one, as it always was. Unions
that JSON tells apart (int | str, Order | None) are left to pydantic, and cost nothing.
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
"""Where an error lies in a value without a tag; it is not shown."""

_PLAIN = {"none": "none", "bool": "bool", "int": "int", "float": "float", "str": "str"}
_OBJECTS = frozenset({"model", "dataclass", "typed-dict", "dict"})
_ARRAYS = frozenset({"list", "set", "frozenset", "tuple"})
_WRAPPERS = frozenset({"nullable", "default"})


class PartCodec(NamedTuple):
    """A writer and a reader of one schema, whole or a choice of it."""

    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]


class TaggedUnion:
    """One union whose choices JSON does not tell apart."""

    def __init__(
        self, node: Node, definitions: Mapping[str, Node], build: Callable[[Node], PartCodec], config: Mapping[str, Any]
    ) -> None:
        # A union that names itself is a definition: the name is that of what stands in its place, and of nothing inside.
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
        """The schema that reads it, with a tag or without."""
        choices = {label: _unwrapping(choice, self._config) for label, choice in self._choices.items()}
        return {"type": "tagged-union", "choices": {UNTAGGED: self._node, **choices}, "discriminator": self._tag_of}

    def schema(self) -> Node:
        """What stands in the place of the union."""
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
            except Exception:  # noqa: S112  it is of another choice
                continue
            if _round_trips(part.read, raw, value):
                return {_TAG: label, _VALUE: from_json(raw)}
        kind, names = type(value).__name__, ", ".join(self._choices)
        raise ValueError(f"a {kind} cannot be told from the others of the union ({names}) when it is read back")


def is_tagged(value: Any) -> bool:
    """A value in JSON that may carry a tag."""
    return isinstance(value, dict) and len(value) == 2 and _VALUE in value and isinstance(value.get(_TAG), str)


def is_ambiguous(node: Node, definitions: Mapping[str, Node]) -> bool:
    """JSON alone may not say which of the choices a value is of."""
    if node.get("mode") == "left_to_right":
        return True
    kinds = [_kind(choice, definitions) for choice in _choices(node)]
    return None in kinds or kinds.count("object") > 1 or kinds.count("array") > 1


def _choices(node: Node) -> list[Node]:
    return [one[0] if isinstance(one, tuple) else one for one in node["choices"]]


def _kind(node: Node, definitions: Mapping[str, Node]) -> str | None:
    """What a value of this is in JSON; None if it is not known, or a text that is read as something else."""
    kind = node["type"]
    if kind == "definition-ref":
        target = definitions.get(node["schema_ref"])
        return None if target is None or target["type"] not in _OBJECTS else _kind(target, {})
    if kind in _WRAPPERS:
        return _kind(node["schema"], definitions)
    if kind == "literal":
        return "literal" if all(type(one) in (str, int, bool, type(None)) for one in node["expected"]) else None
    if "serialization" in node or node.get("root_model"):
        return None
    if kind in _OBJECTS:
        return "object"
    return "array" if kind in _ARRAYS else _PLAIN.get(kind)


def _labelled(choices: list[Node], definitions: Mapping[str, Node]) -> list[tuple[str, Node]]:
    """The choices by names that stay when others join them."""
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
    tagged = {"type": "typed-dict", "fields": fields, "config": config}  # without one its own defaults would hold
    return {"type": "function-after", "function": function, "schema": tagged}


def _value_of(tagged: Any) -> Any:
    return tagged[_VALUE]


def _round_trips(read: Callable[[bytes], Any], raw: bytes, value: Any) -> bool:
    try:
        return alike(value, read(raw))
    except Exception:  # a validator of the user's may raise anything
        return False

"""Builds a writer and a reader that agree with each other for an annotation.

pydantic's defaults are made for web APIs: bytes must be UTF-8, NaN becomes `null`, a set is written in the order of its
hashes. They are not suitable for a payload that another process reads. So the core schema is copied, and in the copy

- `config` sets base64 for bytes and keeps NaN, in every model too (a model's own config would take precedence otherwise);
- sets are written sorted, so that equal values have equal bytes in every process;
- where the annotation is `Any`, `plain_json` checks that JSON can represent the value, before pydantic writes it;
- unions whose choices look alike in JSON get a tag where it is needed (`unions`);
- a field that a dataclass sets outside `__init__` is read as it was written;
- a pydantic secret is refused: it would be stored as asterisks.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from pydantic import Secret, SecretBytes, SecretStr, TypeAdapter
from pydantic_core import CoreSchema, SchemaSerializer, SchemaValidator, core_schema, to_json

from romancy.serde.unions import PartCodec, TaggedUnion, is_ambiguous

# A core schema is a dict with a "type"; the typed dicts of pydantic_core are too many to be useful here.
Node = dict[str, Any]

_CONFIG: dict[str, Any] = {"ser_json_bytes": "base64", "val_json_bytes": "base64", "ser_json_inf_nan": "constants"}

# Kinds of nodes with a config of their own. Without one, a typed dict uses pydantic's defaults, not the config around it.
_CONFIGURED = frozenset({"dataclass", "model", "typed-dict"})

# Settings that write times with fewer digits, which a payload must not lose.
_LOSSY_CONFIG = frozenset({"ser_json_temporal", "ser_json_timedelta", "val_temporal_unit"})

# Keys that hold objects of the user: a default that looks like a schema is not one.
_OPAQUE = frozenset({"cls", "context", "default", "expected", "function", "members", "metadata", "ref"})

# The JSON reader reads up to 200 levels, some of which may be needed by the types around an `Any`.
_MAX_DEPTH = 150

_SCALARS = frozenset({str, int, float, bool, type(None)})

_FAST: tuple[Any, ...] = (str, int, float, bool)  # a tuple: annotations need not be hashable


_MOST_DIGITS = 4300
"""Python's limit for the digits of an integer, which the JSON reader has too."""
_DIGITS = b"0123456789"


@dataclass(frozen=True, slots=True)
class Wire:
    """A writer and a reader of one type.

    `certain`: every value that the type allows can be written and read, so that it need not be read back.
    `ordered`: equal values have equal bytes. False if there are sets and pydantic-core does not let us sort them.
    `scalars`: the exact types of the fields, if all are numbers, strings or booleans. Values of exactly these types are
    always right, and pydantic's check of that (`warnings`) takes longer than the rest of writing them.
    `subclasses`: the functions that list the subclasses of the models and dataclasses in the type. pydantic silently leaves
    out the fields that only a subclass has, and fields that a model lacks (`model_construct`), so such values are read back.
    """

    serializer: SchemaSerializer
    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]
    certain: bool
    ordered: bool
    scalars: tuple[type, ...] | None = None
    subclasses: tuple[Callable[[], list[type]], ...] = ()

    def write_record(self, values: dict[str, Any]) -> tuple[bytes, bool]:
        """Return the bytes, and whether they must be read back to know that they can be read."""
        if tuple(map(type, values.values())) == self.scalars:
            raw = self.serializer.to_json(values)
        else:
            raw = self.write(values)
            if self._must_read_back(raw):
                return raw, True
        return raw, len(raw) > _MOST_DIGITS and has_long_number(raw)

    def write_value(self, value: Any) -> tuple[bytes, bool]:
        """Return the bytes, and whether they must be read back to know that they can be read."""
        if self.scalars is not None and type(value) is self.scalars[0]:
            raw = self.serializer.to_json(value)
        else:
            raw = self.write(value)
            if self._must_read_back(raw):
                return raw, True
        return raw, len(raw) > _MOST_DIGITS and has_long_number(raw)

    def _must_read_back(self, raw: bytes) -> bool:
        if not self.certain or b"null" in raw:  # pydantic writes None for any type, silently
            return True
        for subclasses in self.subclasses:  # noqa: SIM110  a loop is faster. A subclass may be defined at any time.
            if subclasses():
                return True
        return False


def has_long_number(raw: bytes) -> bool:
    """There may be a number with more digits than can be read. Only every `_MOST_DIGITS`th byte is checked: it has one."""
    for index in range(_MOST_DIGITS, len(raw), _MOST_DIGITS):
        if raw[index] in _DIGITS:
            before, after = raw[index - _MOST_DIGITS : index], raw[index : index + _MOST_DIGITS + 1]
            digits = len(before) - len(before.rstrip(_DIGITS)) + len(after) - len(after.lstrip(_DIGITS))
            if digits > _MOST_DIGITS:
                return True
    return False


def value_wire(annotation: Any) -> Wire:
    """Build the wire of an annotation. Raises pydantic's error for a type that pydantic does not support."""
    return _build(_schema_of(annotation), (annotation,))


def record_wire(annotations: dict[str, Any], optional: frozenset[str]) -> Wire:
    """Build the wire of a dict with these fields. One schema for all fields is a third faster than a schema for each."""
    nothing: Node = {"items_schema": []}
    schema = _schema_of(types.GenericAlias(tuple, tuple(annotations.values()))) if annotations else nothing
    inner: Node = schema["schema"] if schema.get("type") == "definitions" else schema
    fields = {
        name: core_schema.typed_dict_field(item, required=name not in optional)
        for name, item in zip(annotations, inner["items_schema"], strict=True)
    }
    record = cast(Node, core_schema.typed_dict_schema(fields))
    # Keep the schema around that of the tuple: it has the definitions of recursive models.
    whole = {**schema, "schema": record} if inner is not schema else record
    return _build(whole, tuple(annotations.values()))


def _schema_of(annotation: Any) -> Node:
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    return cast(Node, adapter.core_schema)


# -- building ---------------------------------------------------------------------------------------------------------


def _accepts_rebuild() -> bool:
    """Whether pydantic-core has the flag to build models from the schema instead of using their prebuilt validators."""
    try:
        cast(Any, SchemaSerializer)(core_schema.any_schema(), _use_prebuilt=False)
    except TypeError:
        return False
    return True


# The flag is private. Without it, only the changes inside models and dataclasses have no effect.
_REBUILDS = _accepts_rebuild()


def _build(schema: Node, annotations: tuple[Any, ...]) -> Wire:
    rewriter = _Rewriter(schema)
    copy = rewriter.whole()
    scalars = annotations if annotations and all(annotation in _FAST for annotation in annotations) else None
    serializer, validator = _serializer(copy), _validator(copy)
    return Wire(
        serializer=serializer,
        write=partial(serializer.to_json, by_alias=False, round_trip=True, warnings="error"),
        # Scalars have no aliases, and passing the two arguments takes time in each call.
        read=validator.validate_json if scalars else partial(validator.validate_json, by_alias=False, by_name=True),
        certain=rewriter.certain and _REBUILDS,
        ordered=_REBUILDS or not rewriter.sets,
        scalars=scalars,
        subclasses=tuple([cls.__subclasses__ for cls in rewriter.classes]),
    )


def _serializer(schema: Node) -> SchemaSerializer:
    flags: dict[str, Any] = {"_use_prebuilt": False} if _REBUILDS else {}
    return cast(SchemaSerializer, cast(Any, SchemaSerializer)(schema, _CONFIG, **flags))


def _validator(schema: Node) -> SchemaValidator:
    flags: dict[str, Any] = {"_use_prebuilt": False} if _REBUILDS else {}
    return cast(SchemaValidator, cast(Any, SchemaValidator)(schema, _CONFIG, **flags))


class _Rewriter:
    """Copies a core schema with the changes listed above, and records the sets, classes and uncertain nodes in it."""

    def __init__(self, schema: Node) -> None:
        self.certain = True
        self.sets = False
        self.classes: dict[type, None] = {}
        self._schema = schema
        self._definitions: Mapping[str, Node] = {node["ref"]: node for node in schema.get("definitions", ())}
        self._copied: list[Node] = []

    def whole(self) -> Node:
        """Return the copy of the whole schema."""
        copy: Node = self.copy(self._schema)
        self._copied = copy.get("definitions", [])
        return copy

    def part(self, node: Node) -> PartCodec:
        """Return a writer and a reader for a part of the copy. The copy must be complete."""
        whole = {"type": "definitions", "schema": node, "definitions": self._copied} if self._copied else node
        write = partial(_serializer(whole).to_json, by_alias=False, round_trip=True, warnings="error")
        return PartCodec(write, partial(_validator(whole).validate_json, by_alias=False, by_name=True))

    def copy(self, value: Any) -> Any:
        parts: Any = value  # `value` itself would be narrowed to a dict of unknown types
        if isinstance(value, dict):
            return self._copy_dict(parts)
        if isinstance(value, list):
            return [self.copy(item) for item in parts]
        if isinstance(value, tuple):  # a choice of a union may be (schema, label)
            return tuple(self.copy(item) for item in parts)
        return value

    def _copy_dict(self, node: Node) -> Node:
        if not isinstance(node.get("type"), str):  # not a node, but a dict of nodes by name, one of which may be "type"
            return {name: self.copy(part) for name, part in node.items()}
        self.certain = self.certain and is_certain(node)
        if node["type"] in ("model", "dataclass"):
            self.classes[node["cls"]] = None
        copy = {key: value if key in _OPAQUE or key == "config" else self.copy(value) for key, value in node.items()}
        if node["type"] in _CONFIGURED:
            copy["config"] = {k: v for k, v in node.get("config", {}).items() if k not in _LOSSY_CONFIG} | _CONFIG
        return self._change(copy)

    def _change(self, node: Node) -> Node:
        if _is_secret(node):
            return {**node, "serialization": _calling(_refuse_secret)}
        match node["type"]:
            case "set" | "frozenset":
                self.sets = True
                return node if "serialization" in node else {**node, "serialization": _sorting(node)}
            case "dict" if node.get("keys_schema", _ANY)["type"] in ("any", "str"):
                # Also for keys of type str: pydantic silently replaces lone surrogates in keys.
                keys = node.get("keys_schema", _ANY)
                return {**node, "keys_schema": {**keys, "serialization": _calling(_text_key, "always")}}
            case "any" if "serialization" not in node:
                return {**node, "serialization": _calling(plain_json)}
            case "dataclass-field" if node.get("init") is False:
                return {**node, "init": True}
            case "union" if "serialization" not in node and is_ambiguous(node, self._definitions):
                return TaggedUnion(node, self._definitions, self.part, _CONFIG).schema()
            case _:
                return node


_ANY: Node = {"type": "any"}


def _calling(function: Any, when: Any = "unless-none") -> Any:
    return core_schema.plain_serializer_function_ser_schema(function, when_used=when)


def _sorting(node: Node) -> Any:
    return core_schema.wrap_serializer_function_ser_schema(_sorted, schema=cast(CoreSchema, node))


def _sorted(value: Any, handler: Any) -> Any:
    written: Any = handler(value)
    # If it is not a set, the handler has reported that already, with a better message than `sorted` would.
    return sorted(written, key=_sort_key) if type(written) in (list, set, frozenset) else written


def _sort_key(item: Any) -> bytes:
    return to_json(item, inf_nan_mode="constants", bytes_mode="base64")


def _is_secret(node: Node) -> bool:
    function = node.get("serialization", {}).get("function")
    return getattr(function, "__module__", "") == "pydantic.types" and "secret" in getattr(function, "__name__", "")


# -- what JSON can represent ------------------------------------------------------------------------------------------


def plain_json(value: Any) -> Any:
    """Return the value if JSON can represent it. Used where the annotation is Any.

    Tuples become lists. Models, dataclasses, dates and the like are left to pydantic: they are read back as their JSON form.
    """
    _check_plain(value, 0)
    return value


def _check_plain(value: Any, depth: int) -> None:
    if type(value) in _SCALARS:
        return
    if depth > _MAX_DEPTH:
        raise ValueError(f"it is nested deeper than {_MAX_DEPTH} levels, or contains itself")
    parts: Any = value
    if isinstance(value, dict):
        for key, item in parts.items():
            if type(key) is not str or not key.isascii():
                _text_key(key)
            if type(item) not in _SCALARS:
                _check_plain(item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in parts:
            if type(item) not in _SCALARS:
                _check_plain(item, depth + 1)
    elif isinstance(value, bytes | bytearray | memoryview):
        raise ValueError("JSON has no bytes: annotate the parameter or the result as bytes")
    elif isinstance(value, set | frozenset):
        raise ValueError("JSON has no sets: annotate the parameter or the result as set[...]")
    elif isinstance(value, SecretStr | SecretBytes | Secret):
        _refuse_secret(parts)


def _text_key(key: Any) -> Any:
    if not isinstance(key, str):
        kind = type(key).__name__
        raise ValueError(f"JSON keys are strings, not {key!r}: annotate the parameter as dict[{kind}, ...]")
    if not key.isascii():
        key.encode()
    return key


def _refuse_secret(value: Any) -> Any:
    raise ValueError(f"a {type(value).__name__} would be stored as asterisks: pass a name by which to look the secret up")


# -- what can certainly be read back ----------------------------------------------------------------------------------

# Left out on purpose: decimals (NaN), enums and literals (any object may be a member), dates (a datetime is one),
# times (offsets with seconds), typed dicts (missing keys), functions (arbitrary code of the user).
# fmt: off
_CERTAIN_TYPES = frozenset({
    "any", "bool", "bytes", "dataclass", "dataclass-args", "dataclass-field", "default", "dict", "float", "int",
    "list", "model", "model-field", "model-fields", "none", "nullable", "str", "tuple", "typed-dict",
    "typed-dict-field", "union", "uuid",
})
_CERTAIN_KEYS = frozenset({
    "choices", "cls", "computed_fields", "config", "dataclass_name", "default", "fields", "frozen",
    "generic_origin", "init", "items_schema", "keys_schema", "kw_only", "metadata", "model_name", "mode", "name",
    "ref", "required", "root_model", "schema", "serialization_alias", "slots", "type", "validation_alias",
    "values_schema", "variadic_item_index",
})
_CERTAIN_CONFIG = frozenset({
    "extra_fields_behavior", "from_attributes", "loc_by_alias", "populate_by_name", "serialize_by_alias", "title",
    "validate_by_alias", "validate_by_name",
})
# fmt: on


def is_certain(node: Node) -> bool:
    """Whether this node, apart from its parts, reads all that it writes: a known kind without constraint or function."""
    if node["type"] not in _CERTAIN_TYPES:
        return False
    if node["type"] == "dataclass" and any(not field.init for field in dataclasses.fields(node["cls"])):
        return False  # `__post_init__` may set them again
    if node["type"] == "typed-dict" and "cls" in node:  # a typed dict of the user; the record of a call has no class
        return False
    if node["type"] == "dict" and node.get("keys_schema", _ANY)["type"] not in ("any", "str"):
        return False
    # 0 and "" are constraints like all others. An option that is False has no effect, unless its name begins with "allow".
    set_keys = {key for key, value in node.items() if value is not None and (value is not False or key.startswith("allow"))}
    return set_keys <= _CERTAIN_KEYS and set(node.get("config", ())) <= _CERTAIN_CONFIG

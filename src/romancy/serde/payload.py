"""Encodes values and the arguments of calls as JSON, and decodes them.

Every payload that is written can be read: a value that could not be read back is refused when it is written, with a
`PayloadError` that names it. A workflow always gets the decoded value, so a live run and a replay see equal values of the
same type.

Without an annotation (or with Any) a payload is plain JSON: dict with string keys, list, str, int, float including NaN and
the infinities, bool, None. A tuple is read back as a list, and a model, dataclass or date as its JSON form. Bytes, sets and
dicts with other keys need an annotation.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable
from functools import cached_property
from typing import Any, Generic

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json
from typing_extensions import TypeVar

from romancy.errors import ConfigurationError, PayloadError, RomancyError
from romancy.serde.round_trip import find_loss
from romancy.serde.schema import Wire, record_wire, value_wire
from romancy.serde.signature import Scope, Shape, annotations_of, result_annotation, shape_of
from romancy.serde.unions import UNTAGGED

T = TypeVar("T", default=Any)

_MAX_COMPLAINTS = 3

_MOST_FRESH = 1_000_000
"""The size in bytes up to which a codec keeps a value that `encode` has read back, for the `decode` that follows."""

# The prefix that pydantic gives to the error of a function that it has called. Our functions' errors need none.
_FUNCTION_ERROR = re.compile(r"^Error calling function `\w+`: (ValueError: )?")


class ValueCodec(Generic[T]):
    """Encodes values of one type as JSON, and decodes them.

    `what` is the name of the value in errors, such as "result of activity 'charge'". The annotation is evaluated at the
    first use.

    >>> ValueCodec(set[bytes], what="example").roundtrip({b"\\xff"})
    (b'["_w=="]', {b'\\xff'})
    """

    def __init__(self, annotation: Any, *, what: str) -> None:
        self._annotation = Any if annotation is inspect.Parameter.empty else annotation
        self._what = what
        self._fresh: tuple[bytes, T] | None = None

    def check(self) -> None:
        """Raise ConfigurationError if pydantic does not support the annotation."""
        _ = self._wire

    def encode(self, value: T) -> bytes:
        """Encode a value. Raises PayloadError if it is not of the type, or would not be read back unchanged."""
        wire = self._wire
        try:
            raw, doubtful = wire.write_value(value)
        except Exception as error:
            raise self._refusal(value, error) from error
        if doubtful or wire.subclasses:
            seen = self._read_back(raw, value, doubtful)
            if len(raw) <= _MOST_FRESH:
                self._fresh = raw, seen
        return raw

    def decode(self, raw: bytes) -> T:
        """Decode a value that `encode` wrote, possibly in older code. Raises PayloadError if it does not fit the type."""
        fresh = self._fresh
        if fresh is not None and fresh[0] is raw:  # `encode` has read these bytes back, and no caller has the value yet
            self._fresh = None
            return fresh[1]
        try:
            return self._wire.read(raw)  # type: ignore[no-any-return]
        except RomancyError:
            raise
        except Exception as error:
            raise PayloadError(
                f"{self._what} cannot be read as {type_name(self._annotation)}: {complaint(error)}"
            ) from error

    def roundtrip(self, value: T) -> tuple[bytes, T]:
        """Encode a value; also return the decoded value, which the caller is to use from then on."""
        wire = self._wire
        try:
            raw, doubtful = wire.write_value(value)
        except Exception as error:
            raise self._refusal(value, error) from error
        return raw, self._read_back(raw, value, doubtful)

    def _resolve(self) -> Any:
        return self._annotation

    @cached_property
    def _wire(self) -> Wire:
        self._annotation = self._resolve()
        try:
            return value_wire(self._annotation)
        except Exception as error:
            named = type_name(self._annotation)
            raise ConfigurationError(
                f"{self._what} is annotated {named}, which pydantic cannot store: {complaint(error)}"
            ) from error

    def _read_back(self, raw: bytes, value: T, doubtful: bool) -> T:
        try:
            seen: T = self._wire.read(raw)
            if doubtful and value != seen:
                _refuse_loss(self._wire, raw, value, seen)
        except Exception as error:
            raise self._refusal(value, error) from error
        return seen

    def _refusal(self, value: T, error: Exception) -> PayloadError:
        expected = "plain JSON" if self._annotation is Any else type_name(self._annotation)
        return PayloadError(
            f"{self._what} cannot be stored: expected {expected}, got {type(value).__name__}: {complaint(error)}"
        )


class _ResultCodec(ValueCodec[T]):
    """A value codec that reads its type from the function's return annotation at the first use."""

    def __init__(self, fn: Callable[..., Any], *, what: str) -> None:
        super().__init__(Any, what=what)
        self._fn = fn
        self._scope = Scope(fn)

    def _resolve(self) -> Any:
        return result_annotation(self._fn, self._scope, self._what)


def result_codec(fn: Callable[..., Any], *, what: str) -> ValueCodec[Any]:
    """Return the codec of an awaited call's result: T for `async def f() -> T` and `def f() -> Coroutine[Any, Any, T]`."""
    return _ResultCodec(fn, what=what)


class CallCodec:
    """Encodes the arguments of one function, without its context, as a JSON object, and decodes them.

    The object has a key for each parameter, in the order of declaration, with the defaults filled in: a default that is
    changed later does not change recorded calls. `what` is the name of the function in errors, such as "activity 'charge'".
    With `thorough`, models that lack fields are refused when they are written. Otherwise they are refused when they are
    read, by the first attempt of the activity.
    """

    def __init__(self, fn: Callable[..., Any], *, what: str, thorough: bool = False) -> None:
        self._what = what
        self._shape: Shape = shape_of(fn, what)
        self._scope = Scope(fn)
        self._thorough = thorough
        self._fresh: tuple[bytes, dict[str, Any]] | None = None

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters, without that of the context."""
        return tuple(p.name for p in self._shape.parameters)

    @property
    def annotations(self) -> dict[str, Any]:
        """The stored type of each parameter, without `*args`, which cannot be given by name."""
        return {name: annotation for name, annotation in self._annotations.items() if name != self._shape.star}

    @property
    def optional(self) -> frozenset[str]:
        """The parameters that a call may leave out."""
        return frozenset(self._shape.defaults)

    @property
    def defaults(self) -> dict[str, Any]:
        """The values of the parameters that a call may leave out."""
        return dict(self._shape.defaults)

    @property
    def takes_more(self) -> bool:
        """The function has `*args` or `**kwargs`."""
        return self._shape.star is not None or self._shape.double_star is not None

    def gather(self, named: dict[str, Any]) -> dict[str, Any]:
        """Group the arguments that go into `**kwargs` under its name; the other arguments stay."""
        double_star = self._shape.double_star
        if double_star is None:
            return named
        own = set(self._shape.positional) | set(self._shape.keyword)
        rest = {name: value for name, value in named.items() if name not in own}
        return {name: value for name, value in named.items() if name in own} | {double_star: rest}

    def encode_named(self, values: dict[str, Any]) -> bytes:
        """Encode a call from its values by parameter, in the order of declaration. Optional parameters may be missing."""
        args, kwargs = self.split_arguments(values)
        try:
            return self.encode(args, kwargs)
        except TypeError as error:  # an argument for `**kwargs` has the name of the context parameter
            raise PayloadError(f"The arguments given to {self._what} do not match its parameters: {error}.") from error

    def check(self) -> None:
        """Raise ConfigurationError if an annotation cannot be resolved, or pydantic does not support it."""
        _ = self._wire

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """Encode a call. Raises TypeError, with Python's message, for a wrong call, and PayloadError for a wrong value."""
        values = self._shape.bind(None, *args, **kwargs)
        raw, doubtful = self._write(values)
        if doubtful or (self._thorough and self._wire.subclasses):
            seen = self._read_back(raw, values, doubtful)
            if len(raw) <= _MOST_FRESH:
                self._fresh = raw, seen
        return raw

    def decode(self, raw: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Decode a call: return the arguments for `fn(ctx, *args, **kwargs)`.

        A parameter that was added since takes its default; one that was removed is ignored.
        """
        fresh = self._fresh
        if fresh is not None and fresh[0] is raw:  # `encode` has read these bytes back, and no caller has the value yet
            self._fresh = None
            return self.split_arguments(fresh[1])
        try:
            values: dict[str, Any] = self._wire.read(raw)
        except ValidationError as error:
            raise PayloadError(f"{self._culprit(error)} cannot be read: {complaint(error)}") from error
        except RomancyError:
            raise
        except Exception as error:  # a validator of the user's may raise anything
            raise PayloadError(f"the arguments of {self._what} cannot be read: {complaint(error)}") from error
        return self.split_arguments(values)

    def roundtrip(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bytes, tuple[Any, ...], dict[str, Any]]:
        """Encode a call; also return the decoded arguments, which the function is to get."""
        values = self._shape.bind(None, *args, **kwargs)
        raw, doubtful = self._write(values)
        return raw, *self.split_arguments(self._read_back(raw, values, doubtful))

    def rewritten(self, raw: bytes) -> bytes:
        """Encode a recorded call anew, with the types of the code now. Raises PayloadError if it does not fit them."""
        args, kwargs = self.decode(raw)
        written, _ = self._write(self._shape.bind(None, *args, **kwargs))
        return written if self._wire.ordered else without_order(written)

    def digest(self, raw: bytes) -> bytes:
        """Return a digest of the arguments: eight bytes, the same in every process for equal arguments."""
        return hashlib.blake2b(raw if self._wire.ordered else without_order(raw), digest_size=8).digest()

    @cached_property
    def _wire(self) -> Wire:
        annotations = self._annotations
        optional = frozenset(self._shape.defaults)
        try:
            return record_wire(annotations, optional)
        except Exception as error:
            self._check_each()
            raise ConfigurationError(f"the parameters of {self._what} cannot be stored: {complaint(error)}") from error

    @cached_property
    def _annotations(self) -> dict[str, Any]:
        return annotations_of(self._shape, self._scope, self._what)

    def _write(self, values: dict[str, Any]) -> tuple[bytes, bool]:
        wire = self._wire
        try:
            return wire.write_record(values)
        except Exception as error:
            raise self._refusal(values, error) from error

    def _read_back(self, raw: bytes, values: dict[str, Any], doubtful: bool) -> dict[str, Any]:
        try:
            read: dict[str, Any] = self._wire.read(raw)
            if doubtful and values != read:
                _refuse_loss(self._wire, raw, values, read)
        except Exception as error:
            raise self._refusal(values, error) from error
        return read

    def split_arguments(self, values: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments to call the function with, from its values by parameter. Optional ones may be missing."""
        shape = self._shape
        if len(values) == shape.positional_count:
            return tuple(values.values()), {}  # the common case: the reader returns them in the order of declaration
        if len(values) < len(shape.parameters):
            values = {**shape.defaults, **values}
        args = tuple([values[name] for name in shape.positional])
        kwargs = {name: values[name] for name in shape.keyword}
        if shape.star is not None:
            args += values[shape.star]
        if shape.double_star is not None:
            kwargs.update(values[shape.double_star])
        return args, kwargs

    def _argument_codec(self, name: str) -> ValueCodec[Any]:
        return ValueCodec(self._annotations[name], what=f"argument {name!r} of {self._what}")

    def _check_each(self) -> None:
        for name in self._annotations:
            self._argument_codec(name).check()

    def _refusal(self, values: dict[str, Any], error: Exception) -> PayloadError:
        """Return the error of the argument that cannot be written. pydantic does not name it, so each is tried alone."""
        for name, value in values.items():
            try:
                self._argument_codec(name).encode(value)
            except PayloadError as refusal:
                return refusal
        return PayloadError(f"the arguments of {self._what} cannot be stored: {complaint(error)}")

    def _culprit(self, error: ValidationError) -> str:
        path = error.errors(include_url=False, include_context=False, include_input=False)[0]["loc"]
        return f"argument {path[0]!r} of {self._what}" if path else f"the arguments of {self._what}"


class _RoundTripError(Exception):
    """A value would not be read back as it was given."""


def _refuse_loss(wire: Wire, raw: bytes, value: Any, seen: Any) -> None:
    """Raise if the value that was read back differs from the given one, unless a validator of the type has changed it."""
    lost = find_loss(value, seen)
    # Both values are written as the same bytes: the difference was lost in writing, and no validator has made it.
    if lost is not None and (lost.ours or wire.write(seen) == raw):
        raise _RoundTripError(lost)


# -- the texts of errors ----------------------------------------------------------------------------------------------


def type_name(annotation: Any) -> str:
    """Return the annotation as it is written in code."""
    if annotation is type(None):
        return "None"
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


def complaint(error: Exception) -> str:
    """Describe an error of pydantic, without its headings, links and class names."""
    if isinstance(error, ValidationError):
        found = error.errors(include_url=False, include_context=False, include_input=False)
        lines = [": ".join(filter(None, [_path_of(item["loc"]), item["msg"]])) for item in found]
    elif isinstance(error, PydanticSerializationError):
        lines = [_unwrapped(line) for line in str(error).splitlines() if not line.endswith("serializer warnings:")]
    elif isinstance(error, _RoundTripError):
        lines = [str(error)]
    else:
        lines = [f"{type(error).__name__}: {error}".partition("\n")[0]]  # pydantic adds advice for its own users
    more = len(lines) - _MAX_COMPLAINTS
    return "; ".join(lines[:_MAX_COMPLAINTS]) + (f"; and {more} more" if more > 0 else "")


def _path_of(steps: tuple[object, ...]) -> str:
    return ".".join([str(step) for step in steps if step != UNTAGGED])


def _unwrapped(line: str) -> str:
    line = line.strip().removeprefix("Error serializing to JSON: ").removeprefix("PydanticSerializationError: ")
    if line.startswith("PydanticSerializationUnexpectedValue("):
        return line.removeprefix("PydanticSerializationUnexpectedValue(").removesuffix(")")
    return _FUNCTION_ERROR.sub("", line)


def without_order(raw: bytes) -> bytes:
    """Return the JSON with every list sorted: a weaker comparison, needed where sets could not be written sorted."""

    def sort_lists(value: Any) -> Any:
        match value:
            case list():
                return sorted([sort_lists(item) for item in value], key=to_json)  # pyright: ignore[reportUnknownVariableType]
            case dict():
                return {key: sort_lists(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
            case _:
                return value

    return to_json(sort_lists(from_json(raw)), inf_nan_mode="constants")

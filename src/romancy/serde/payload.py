"""Values and calls to JSON bytes and back.

What is written can be read: a value that cannot is refused when it is written, by a `PayloadError` that names it. The
value a workflow sees is always the one read back, live as in replay, so both paths see equal values of one type.

Without an annotation (or with Any) a payload is plain JSON: dict with text keys, list, str, int, float with NaN and the
infinities, bool, None. A tuple comes back as a list; a model, dataclass or date as what JSON has for it. Bytes, sets
and other keys need an annotation.
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
"""What was read back when it was written is kept for whoever reads it next, if it is no larger than this."""

# What pydantic puts before the words of a function that it called: ours say enough by themselves.
_FUNCTION_ERROR = re.compile(r"^Error calling function `\w+`: (ValueError: )?")


class ValueCodec(Generic[T]):
    """One type of value, to JSON bytes and back.

    `what` is how errors call the value: "result of activity 'charge'". The annotation is read at the first use.

    >>> ValueCodec(set[bytes], what="example").roundtrip({b"\\xff"})
    (b'["_w=="]', {b'\\xff'})
    """

    def __init__(self, annotation: Any, *, what: str) -> None:
        self._annotation = Any if annotation is inspect.Parameter.empty else annotation
        self._what = what
        self._fresh: tuple[bytes, T] | None = None

    def check(self) -> None:
        """Raise ConfigurationError if pydantic cannot read the annotation."""
        _ = self._wire

    def encode(self, value: T) -> bytes:
        """The value as JSON; PayloadError if it is not of the type, or could not be read back as it is."""
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
        """The value that `encode` wrote, maybe by older code; PayloadError if it does not fit the type."""
        fresh = self._fresh
        if fresh is not None and fresh[0] is raw:  # it was read a moment ago, and nobody has seen it
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
        """Encode, and give also the value that everybody will see from now on."""
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
    """A value codec that looks its type up in the function when it is first needed."""

    def __init__(self, fn: Callable[..., Any], *, what: str) -> None:
        super().__init__(Any, what=what)
        self._fn = fn
        self._scope = Scope(fn)

    def _resolve(self) -> Any:
        return result_annotation(self._fn, self._scope, self._what)


def result_codec(fn: Callable[..., Any], *, what: str) -> ValueCodec[Any]:
    """The codec of what awaiting a call gives: T for `async def f() -> T` and `def f() -> Coroutine[Any, Any, T]`."""
    return _ResultCodec(fn, what=what)


class CallCodec:
    """The arguments of one function, its context left out, to a JSON object and back.

    The object is keyed by parameter, in the order of declaration, with the defaults filled in: changing a default later
    does not change a call that was made. `what` is how errors call the function: "activity 'charge'". `thorough`: models
    that lack fields are refused when they are written. Otherwise when they are read, by an activity's first attempt.
    """

    def __init__(self, fn: Callable[..., Any], *, what: str, thorough: bool = False) -> None:
        self._what = what
        self._shape: Shape = shape_of(fn, what)
        self._scope = Scope(fn)
        self._thorough = thorough
        self._fresh: tuple[bytes, dict[str, Any]] | None = None

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters, the context's left out."""
        return tuple(p.name for p in self._shape.parameters)

    @property
    def annotations(self) -> dict[str, Any]:
        """The type of what is stored for each parameter; of those that can be named, so not of `*args`."""
        return {name: one for name, one in self._annotations.items() if name != self._shape.star}

    @property
    def optional(self) -> frozenset[str]:
        """The parameters that a call may leave out."""
        return frozenset(self._shape.defaults)

    @property
    def defaults(self) -> dict[str, Any]:
        """What those stand for that a call leaves out."""
        return dict(self._shape.defaults)

    @property
    def takes_more(self) -> bool:
        """There are `*args` or `**kwargs`."""
        return self._shape.star is not None or self._shape.double_star is not None

    def gather(self, named: dict[str, Any]) -> dict[str, Any]:
        """Arguments by name, those that go into `**kwargs` put there."""
        double_star = self._shape.double_star
        if double_star is None:
            return named
        own = set(self._shape.positional) | set(self._shape.keyword)
        rest = {name: value for name, value in named.items() if name not in own}
        return {name: value for name, value in named.items() if name in own} | {double_star: rest}

    def encode_named(self, values: dict[str, Any]) -> bytes:
        """The call with these values by parameter, in the order of declaration; what may be left out may be missing."""
        args, kwargs = self.split_arguments(values)
        try:
            return self.encode(args, kwargs)
        except TypeError as error:  # something for `**kwargs` is named as the context is
            raise PayloadError(f"The arguments given to {self._what} do not fit it: {error}.") from error

    def check(self) -> None:
        """Raise ConfigurationError if an annotation cannot be resolved or does not say how to store a value."""
        _ = self._wire

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """The call as JSON; TypeError, in Python's words, for a wrong call, PayloadError for a wrong value."""
        values = self._shape.bind(None, *args, **kwargs)
        raw, doubtful = self._write(values)
        if doubtful or (self._thorough and self._wire.subclasses):
            seen = self._read_back(raw, values, doubtful)
            if len(raw) <= _MOST_FRESH:
                self._fresh = raw, seen
        return raw

    def decode(self, raw: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What to call the function with: `fn(ctx, *args, **kwargs)`.

        A parameter that the code has gained since takes its default; one that it has dropped is ignored.
        """
        fresh = self._fresh
        if fresh is not None and fresh[0] is raw:  # it was read a moment ago, and nobody has seen it
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
        """Encode, and give also the arguments as the function will see them."""
        values = self._shape.bind(None, *args, **kwargs)
        raw, doubtful = self._write(values)
        return raw, *self.split_arguments(self._read_back(raw, values, doubtful))

    def rewritten(self, raw: bytes) -> bytes:
        """A recorded call as it would be recorded today; PayloadError if it no longer fits."""
        args, kwargs = self.decode(raw)
        written, _ = self._write(self._shape.bind(None, *args, **kwargs))
        return written if self._wire.ordered else without_order(written)

    def digest(self, raw: bytes) -> bytes:
        """Eight bytes that tell calls apart, the same in every process for equal arguments."""
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
        """What to call the function with, from the values by parameter; what may be left out may be missing."""
        shape = self._shape
        if len(values) == shape.positional_count:
            return tuple(values.values()), {}  # the common case: the reader gives them in the order of declaration
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
        """The error of the argument to blame. pydantic does not say which when it writes: try them one by one."""
        for name, value in values.items():
            try:
                self._argument_codec(name).encode(value)
            except PayloadError as refusal:
                return refusal
        return PayloadError(f"the arguments of {self._what} cannot be stored: {complaint(error)}")

    def _culprit(self, error: ValidationError) -> str:
        path = error.errors(include_url=False, include_context=False, include_input=False)[0]["loc"]
        return f"argument {path[0]!r} of {self._what}" if path else f"the arguments of {self._what}"


class _Lost(Exception):
    """A value is not read back as it was given."""


def _refuse_loss(wire: Wire, raw: bytes, value: Any, seen: Any) -> None:
    """Raise if what was read back is not what was given. What the type's own validators make of it, it may be."""
    lost = find_loss(value, seen)
    if lost is not None and (lost.ours or wire.write(seen) == raw):
        raise _Lost(lost)


# -- words for errors -------------------------------------------------------------------------------------------------


def type_name(annotation: Any) -> str:
    """The annotation as a person would write it."""
    if annotation is type(None):
        return "None"
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


def complaint(error: Exception) -> str:
    """What pydantic found wrong, without its headlines, links and class names."""
    if isinstance(error, ValidationError):
        found = error.errors(include_url=False, include_context=False, include_input=False)
        lines = [": ".join(filter(None, [".".join(map(str, filter(_shown, one["loc"]))), one["msg"]])) for one in found]
    elif isinstance(error, PydanticSerializationError):
        lines = [_unwrapped(line) for line in str(error).splitlines() if not line.endswith("serializer warnings:")]
    elif isinstance(error, _Lost):
        lines = [str(error)]
    else:
        lines = [f"{type(error).__name__}: {error}".partition("\n")[0]]  # pydantic adds advice for its own users
    more = len(lines) - _MAX_COMPLAINTS
    return "; ".join(lines[:_MAX_COMPLAINTS]) + (f"; and {more} more" if more > 0 else "")


def _shown(step: object) -> bool:
    return step != UNTAGGED


def _unwrapped(line: str) -> str:
    line = line.strip().removeprefix("Error serializing to JSON: ").removeprefix("PydanticSerializationError: ")
    if line.startswith("PydanticSerializationUnexpectedValue("):
        return line.removeprefix("PydanticSerializationUnexpectedValue(").removesuffix(")")
    return _FUNCTION_ERROR.sub("", line)


def without_order(raw: bytes) -> bytes:
    """The JSON with every list sorted: weaker, but the only way when sets could not be written sorted."""

    def sort_lists(value: Any) -> Any:
        match value:
            case list():
                return sorted([sort_lists(item) for item in value], key=to_json)  # pyright: ignore[reportUnknownVariableType]
            case dict():
                return {key: sort_lists(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
            case _:
                return value

    return to_json(sort_lists(from_json(raw)), inf_nan_mode="constants")

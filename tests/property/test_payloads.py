"""A value that is accepted at a boundary is read back equal and with its type; any other value is refused.

Types are composed of others (unions of similar types, constraints, containers). Values of them, and of other types, are
encoded as arguments and results of workflows and activities, and as data of events and messages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from types import GenericAlias
from typing import Annotated, Any, Literal, Union
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, FiniteFloat, PositiveInt
from pydantic_core import from_json
from tests.property.hypothesis_settings import examples, unhurried

from romancy.errors import PayloadError
from romancy.serde import ValueCodec
from romancy.serde.messaging import external_data
from romancy.serde.payload import CallCodec


class Colour(Enum):
    RED = "red"
    ONE = 1


class Size(StrEnum):
    BIG = "big"


class Level(IntEnum):
    LOW = 1


class Left(BaseModel):
    n: int


class Right(BaseModel):
    n: int


class Wide(Left):
    extra: str = ""


class Patch(BaseModel):
    n: PositiveInt | None = None
    either: bytes | str | None = None
    inner: Left | Right | None = None


@dataclass
class Point:
    n: int
    seen: int = field(init=False, default=0)


@dataclass
class Near(Point):
    more: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    left: Point | Left
    right: list[date | str]


def point(cls: type[Point], n: int, seen: int) -> Point:
    made = cls(n)
    made.seen = seen
    return made


texts = st.sampled_from(
    ["", "abcd", "YWJj", "red", "big", "1", "true", "2024-01-01", "10:00", "P1D", "nul\0", str(UUID(int=5))]
)
offsets = st.sampled_from([None, UTC, timezone(timedelta(hours=-3, minutes=-30)), timezone(timedelta(seconds=3601))])
moments = st.builds(datetime, st.just(2024), st.integers(1, 3), st.just(1), st.sampled_from([0, 5]), tzinfo=offsets)
models = (
    st.builds(Left, n=st.integers(-1, 2))
    | st.builds(Right, n=st.integers(-1, 2))
    | st.builds(Wide, n=st.integers(-1, 2), extra=texts)
    | st.builds(Patch.model_construct, n=st.none() | st.integers(-1, 2), either=st.none() | st.binary(max_size=4) | texts)
    | st.just(Left.model_construct())
    | st.builds(point, st.sampled_from([Point, Near]), st.integers(0, 2), st.integers(0, 2))
    | st.builds(
        Pair, st.builds(Left, n=st.just(1)) | st.just(Point(1)), st.lists(texts | st.just(date(2024, 1, 1)), max_size=2)
    )
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats() | texts | st.binary(max_size=4)
    | st.sampled_from([*Colour, *Size, *Level, Decimal("1.50"), Decimal(1), Decimal("NaN"), UUID(int=5), timedelta(days=1)])
    | st.sampled_from([date(2024, 1, 1), time(10), time(10, tzinfo=timezone(timedelta(seconds=3601)))])
    | moments | models,
    lambda inner: st.lists(inner, max_size=3)
    | st.lists(inner, max_size=3).map(tuple)
    | st.dictionaries(st.none() | texts | st.integers(0, 1), inner, max_size=2),
    max_leaves=5,
)  # fmt: skip

times = st.sampled_from([time(10), time(10, tzinfo=timezone(timedelta(hours=1, seconds=1)))])
lefts = st.builds(Left, n=st.integers(-1, 2)) | st.builds(Wide, n=st.just(1), extra=texts) | st.just(Left.model_construct())
points = st.builds(point, st.sampled_from([Point, Near]), st.integers(0, 2), st.integers(0, 2))
numbers = st.integers(-2, 2)

# Types, each with values most of which fit it.
Typed = tuple[Any, st.SearchStrategy[Any]]
PLAIN: list[Typed] = [
    (int, numbers), (str, texts), (bool, st.booleans()), (float, st.floats() | numbers), (bytes, st.binary(max_size=4)),
    (None, st.none()), (date, st.just(date(2024, 1, 1)) | moments), (datetime, moments), (time, times),
    (timedelta, st.just(timedelta(days=1))), (Decimal, st.sampled_from([Decimal("1.50"), Decimal(1), Decimal("NaN")])),
    (UUID, st.just(UUID(int=5))), (Colour, st.sampled_from([*Colour])), (Size, st.just(Size.BIG)),
    (Level, st.just(Level.LOW)), (Left, lefts), (Right, st.builds(Right, n=numbers)),
    (Wide, st.builds(Wide, n=numbers, extra=texts)),
    (Patch, st.builds(Patch.model_construct, n=numbers, either=st.binary(max_size=4) | texts, inner=lefts)),
    (Point, points), (Near, points), (Pair, st.builds(Pair, lefts | points, st.lists(texts, max_size=2))),
    (PositiveInt, numbers), (FiniteFloat, st.floats()), (Literal["red", 1], st.sampled_from(["red", 1])),
    (dict[str, int], st.dictionaries(st.none() | texts, numbers, max_size=2)), (Annotated[int, Field(ge=0)], numbers),
    (Annotated[str, Field(max_length=0)], texts), (Annotated[float, Field(lt=0)], st.floats()),
]  # fmt: skip


def _union(members: list[Typed]) -> Typed:
    return Union[tuple(one for one, _ in members)], st.one_of([some for _, some in members])  # noqa: UP007  at run time


def _listed(one: Typed) -> Typed:
    return GenericAlias(list, (one[0],)), st.lists(one[1], max_size=2)


def _tupled(one: Typed) -> Typed:
    return GenericAlias(tuple, (one[0], ...)), st.lists(one[1], max_size=2).map(tuple)


def _named(one: Typed) -> Typed:
    return GenericAlias(dict, (str | None, one[0])), st.dictionaries(texts | st.none(), one[1], max_size=2)


def _containers(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    return st.lists(inner, min_size=2, max_size=4).map(_union) | inner.map(_listed) | inner.map(_tupled) | inner.map(_named)


types = st.recursive(st.sampled_from(PLAIN), _containers, max_leaves=4)


def alike(one: Any, other: Any) -> bool:
    """Equal and of the same type all the way down; an int may stand for a float, and a list for a tuple."""
    if isinstance(one, float | int) and isinstance(other, float) and not isinstance(one, bool):
        return (math.isnan(one) and math.isnan(other)) or one == other
    if isinstance(one, BaseModel):
        return type(one) is type(other) and alike(one.__dict__, other.__dict__)
    if isinstance(one, Point | Pair):
        names = ("left", "right") if isinstance(one, Pair) else vars(one)
        return type(one) is type(other) and all(alike(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, StrEnum | IntEnum) and type(other) in (str, int):
        return bool(one == other)  # annotated as str or int, so read as that
    if isinstance(one, bool) and type(other) in (int, float):
        return bool(one == other)  # a bool is an int in Python
    return type(one) is type(other) and bool(one == other)


@given(types, st.data())
@unhurried(examples(600))
def test_what_is_accepted_is_read_back_as_it_was(typed: Typed, data: st.DataObject) -> None:
    annotation, fitting = typed

    def takes(ctx: object, argument: Any) -> Any: ...

    takes.__annotations__ = {"argument": annotation, "return": annotation}
    value = data.draw(fitting if data.draw(st.integers(0, 9)) else values)
    result = ValueCodec[Any](annotation, what="result")
    for thorough in (True, False):  # the input of a workflow, also after a recur; the input of an activity
        call = CallCodec(takes, what="call", thorough=thorough)
        try:
            raw = call.encode((value,), {})
        except PayloadError:
            continue
        try:
            args, kwargs = CallCodec(takes, what="call").decode(raw)
        except PayloadError:
            assert not thorough, "an activity's attempt refuses it; a workflow's start must"
            continue
        assert (len(args), kwargs) == (1, {})
        assert alike(value, args[0]), (raw, args[0])
        assert call.encode(args, kwargs) == raw or thorough is False, "written again it is the same"
    try:
        raw = result.encode(value)
    except PayloadError:
        return
    assert alike(value, result.decode(raw)), raw
    assert alike(value, ValueCodec[Any](annotation, what="another process").decode(raw)), raw


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.none() | st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(JSON)
@unhurried(examples(300))
def test_data_of_events_and_messages_is_read_back_as_it_was(value: Any) -> None:
    try:
        encoded = external_data(value, "the data")
    except PayloadError:
        return
    assert alike(value, from_json(encoded.raw))

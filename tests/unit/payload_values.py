"""Types of all kinds, and values that must be equal after storing."""

from __future__ import annotations

import enum
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from inspect import Parameter
from ipaddress import IPv4Address
from pathlib import PurePosixPath
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, Optional, TypeVar, Union
from uuid import UUID

from pydantic import AliasPath, BaseModel, ConfigDict, Field, FiniteFloat, PositiveInt, RootModel, computed_field
from pydantic import dataclasses as pydantic_dataclasses
from typing_extensions import TypeAliasType, TypedDict

ALL_BYTES = bytes(range(256))
NAN = float("nan")
INF = float("inf")
ID = UUID("12345678-1234-5678-1234-567812345678")
NOON = datetime(2024, 2, 29, 12, 0, 0, 123456)


class Colour(enum.Enum):
    RED = "red"
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1


class Size(enum.StrEnum):
    BIG = "big"


Nested = TypeAliasType("Nested", "bytes | str | list[Nested]")


class Line(BaseModel):
    sku: str
    price: Decimal = Decimal("9.90")
    blob: bytes = b""
    weight: float = 1.0


class Order(BaseModel):
    id: int
    lines: list[Line] = []
    when: datetime | None = None
    tags: set[str] = set()


class Tree(BaseModel):
    blob: bytes
    weight: float = 0.0
    children: list[Tree] = []


class Aliased(BaseModel):
    order_id: int = Field(alias="orderId")
    deep: str = Field(validation_alias=AliasPath("a", "b"), serialization_alias="z")


class Forbidding(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    a: int
    at: datetime = NOON
    blob: bytes = ALL_BYTES

    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return self.a * 2


class Lossy(BaseModel):
    model_config = ConfigDict(ser_json_timedelta="float", ser_json_bytes="utf8", ser_json_inf_nan="null")
    pause: timedelta
    blob: bytes = ALL_BYTES
    ratio: float = INF


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: bytes = b"\xfe"


class Reserved(BaseModel):
    """Fields with names that are keys of pydantic's schemas."""

    type: bytes = b"\xff"
    cls: bytes = b"\xff"
    config: bytes = b"\xff"
    default: bytes = b"\xff"
    function: bytes = b"\xff"
    metadata: bytes = b"\xff"
    ref: dict[str, bytes] = {"type": b"\xff"}


class Blobs(RootModel[list[bytes]]): ...


T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    content: T


@dataclass
class Point:
    x: float
    y: float = 0.0
    blob: bytes = b"\xff"
    names: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class Pair:
    left: Point
    right: Point | None = None


@pydantic_dataclasses.dataclass
class Checked:
    n: int
    blob: bytes = b"\x80"


@dataclass
class Counted:
    """One field is set outside of `__init__`."""

    name: str
    seen: int = field(init=False, default=0)


@dataclass(slots=True)
class Watched:
    """One field is set by the class itself."""

    name: str
    label: str = field(init=False, default="")

    def __post_init__(self) -> None:
        self.label = self.name.upper()


class Left(BaseModel):
    n: int


class Right(BaseModel):
    n: int


class Wide(Left):
    extra: str = ""


def counted(seen: int) -> Counted:
    made = Counted("a")
    made.seen = seen
    return made


def relabelled() -> Watched:
    made = Watched("a")
    made.label = "b"
    return made


class Movie(TypedDict):
    title: str
    poster: NotRequired[bytes]


class Row(NamedTuple):
    a: int
    b: str = "b"


Money = NewType("Money", Decimal)

ROUND_TRIPS: list[tuple[Any, Any]] = [
    (str, ""),
    (str, "plain"),
    (str, "\x00 in the \x00 middle"),
    (str, "ünïcödé \U0001f600 \u2028"),
    (str, '"quoted\\" \n'),
    (int, 0),
    (int, -1),
    (int, 2**63),
    (int, -(2**64)),
    (int, 10**1000),
    (bool, True),
    (bool, False),
    (None, None),
    (float, 0.1),
    (float, -0.0),
    (float, 5e-324),
    (float, 1.7976931348623157e308),
    (float, NAN),
    (float, INF),
    (float, -INF),
    (float | None, NAN),
    (list[float], [NAN, INF, 1.5]),
    (bytes, b""),
    (bytes, ALL_BYTES),
    (bytes, b"\x00\xff"),
    (dict[str, Line], {"ключ": Line(sku="x", blob=b"\xff")}),
    (list[bytes], [b"\xff", b"text"]),
    (dict[str, bytes], {"a": b"\xff"}),
    (tuple[bytes, int], (b"\xff", 1)),
    (set[bytes], {b"\xff", b"\x00"}),
    (bytes | None, b"\xff"),
    (Optional[int], None),  # noqa: UP045  the old spelling is what is tested
    (Optional[int], 3),  # noqa: UP045
    (Union[int, str], "3"),  # noqa: UP007
    (int | str, 3),
    (int | str | None, None),
    (int | list[int], [1, 2]),
    (str | bool, True),
    (Line | Point, Point(1.0)),
    (Line | Point, Line(sku="x")),
    (Cat | Dog, Dog()),
    (Annotated[Cat | Dog, Field(discriminator="kind")], Cat(lives=3)),
    (Annotated[Cat | Dog, Field(discriminator="kind")], Dog(name=b"\xff")),
    (list[int], []),
    (list[int], [1, 2, 3]),
    (list[list[str]], [["a"], []]),
    (list[Order], [Order(id=1), Order(id=2, lines=[Line(sku="x", blob=ALL_BYTES, weight=INF)])]),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (tuple[()], ()),
    (tuple[Line, ...], (Line(sku="a"),)),
    (Sequence[int], [1, 2]),
    (Mapping[str, int], {"a": 1}),
    (deque[int], deque([1, 2])),
    (set[int], {3, 1, 2}),
    (set[str], {"b", "a"}),
    (frozenset[str], frozenset({"b", "a"})),
    (set[tuple[int, str]], {(1, "a"), (2, "b")}),
    (set[frozenset[int]], {frozenset({1, 2}), frozenset({3})}),
    (set[Colour], {Colour.RED, Colour.BLUE}),
    (dict[str, int], {"a": 1, "": 2}),
    (dict[int, str], {1: "a", -2: "b"}),
    (dict[UUID, date], {ID: date(2024, 1, 1)}),
    (dict[Colour, int], {Colour.RED: 1}),
    (dict[date, float], {date(2024, 1, 1): NAN}),
    (dict[bytes, int], {b"text": 1}),
    (dict[str, dict[str, list[bytes]]], {"a": {"b": [b"\xff"]}}),
    (Colour, Colour.RED),
    (Colour, Colour.BLUE),
    (Level, Level.LOW),
    (Size, Size.BIG),
    (Literal["a", 1, None], 1),
    (Literal[Size.BIG], Size.BIG),
    (Decimal, Decimal("1.10")),
    (Decimal, Decimal("1E+50")),
    (Decimal, Decimal("-0.000000000000000000000000000001")),
    (Money, Decimal("3.50")),
    (UUID, ID),
    (datetime, NOON),
    (datetime, NOON.replace(tzinfo=UTC)),
    (datetime, NOON.replace(tzinfo=timezone(timedelta(hours=-3, minutes=-30)))),
    (datetime, datetime(1, 1, 1)),
    (datetime, datetime.max),
    (date, date(2024, 2, 29)),
    (time, time(23, 59, 59, 999999)),
    (time, time(1, 2, tzinfo=UTC)),
    (timedelta, timedelta(days=3, microseconds=1)),
    (timedelta, timedelta(seconds=-1)),
    (IPv4Address, IPv4Address("127.0.0.1")),
    (PurePosixPath, PurePosixPath("/tmp/x")),
    (Line, Line(sku="x", blob=ALL_BYTES, weight=NAN)),
    (Line, Line(sku="\x00")),
    (Order, Order(id=2**70, when=NOON, tags={"b", "a"}, lines=[Line(sku="y", weight=-INF)])),
    (Order | None, None),
    (Order | None, Order(id=1)),
    (Tree, Tree(blob=b"\xff", children=[Tree(blob=ALL_BYTES, weight=NAN, children=[Tree(blob=b"")])])),
    (list[Tree], [Tree(blob=b"\xff")]),
    (dict[str, Tree], {"a": Tree(blob=b"\xff", weight=INF)}),
    (Aliased, Aliased.model_validate({"orderId": 3, "a": {"b": "c"}})),
    (list[Aliased], [Aliased.model_validate({"orderId": 3, "a": {"b": "c"}})]),
    (Forbidding, Forbidding(a=3)),
    (Lossy, Lossy(pause=timedelta(days=999_999, microseconds=1))),
    (Reserved, Reserved()),
    (list[Reserved | Cat], [Reserved(type=b"\xfe")]),
    (Blobs, Blobs([b"\xff", b"\x00"])),
    (Box[bytes], Box[bytes](content=b"\xff")),
    (Box[list[float]], Box[list[float]](content=[NAN])),
    (Point, Point(NAN, INF, ALL_BYTES, ["a"])),
    (Pair, Pair(Point(1.0), Point(2.0))),
    (Checked, Checked(1, ALL_BYTES)),
    (list[Pair | Line], [Pair(Point(0.5)), Line(sku="q")]),
    (Movie, {"title": "Alien", "poster": b"\xff"}),
    (Movie, {"title": "Alien"}),
    (Row, Row(1)),
    (list[Row], [Row(1, "x"), Row(2)]),
    (Annotated[int, Field(gt=3)], 4),
    (Any, {"a": [1, 2.5, None, True, "x", {"b": []}]}),
    (Any, [NAN, INF, -INF]),
    (Any, 2**200),
    (Any, "\x00"),
    (object, {"a": 1}),
    (dict, {"a": [1]}),
    (list, [1, "a"]),
    (dict[str, Any], {"a": {"b": NAN}}),
    (Parameter.empty, [1, {"a": None}]),
    # unions that JSON does not tell apart
    (bytes | str, "abcd"),
    (bytes | str, b"abcd"),
    (str | bytes, b"data"),
    (str | bytes, ALL_BYTES),
    (str | bytes | None, None),
    (list[bytes] | list[str], ["abcd"]),
    (dict[str, bytes | str], {"a": "abcd", "b": b"abcd"}),
    (Nested, ["abcd", b"abcd", ["abcd", [b"abcd"]]]),
    (list[Nested], ["abcd", [b"abcd"]]),
    (date | datetime, date(2024, 1, 1)),
    (date | datetime, datetime(2024, 1, 1)),
    (datetime | date, date(2024, 1, 1)),
    (Decimal | float, Decimal("1.5")),
    (Decimal | float, 1.5),
    (float | Decimal, Decimal("1.5")),
    (Decimal | str, "1.5"),
    (Decimal | str, Decimal("1.5")),
    (UUID | str, str(ID)),
    (UUID | str, ID),
    (str | UUID, ID),
    (int | bool, True),
    (int | bool, 1),
    (Colour | str, "red"),
    (str | Colour, Colour.RED),
    (Size | str, "big"),
    (str | Size, Size.BIG),
    (int | Level, Level.LOW),
    (Level | int, 1),
    (timedelta | str, "P1D"),
    (time | str, "10:00"),
    (Left | Right, Right(n=1)),
    (Right | Left, Right(n=1)),
    (Left | Wide, Wide(n=1, extra="x")),
    (Wide | Left, Left(n=1)),
    (Left | dict[str, int], {"n": 1}),
    (Left | dict[str, int], Left(n=1)),
    (Point | Left, Left(n=1)),
    (list[Left | Right], [Right(n=1), Left(n=2)]),
    (Tree | Left | str, Tree(blob=b"\xff", children=[Tree(blob=b"")])),
    (list[int] | tuple[int, ...], (1, 2)),
    (set[int] | list[int], [1]),
    (dict[str, Any] | bytes, {"$": "bytes", "v": "eA=="}),
    (Left | dict[str, Any] | bytes, {"$": "bytes", "v": "eA=="}),
    (Annotated[int | str, Field(union_mode="left_to_right")], "5"),
    # fields that are set outside of `__init__`
    (Counted, counted(5)),
    (list[Counted], [counted(0), counted(2)]),
    (Watched, Watched("a")),
    (PositiveInt, 1),
    (Annotated[int, Field(ge=0)], 0),
    (FiniteFloat, 0.0),
    (Annotated[str, Field(max_length=0)], ""),
]


def same(a: Any, b: Any) -> bool:
    """Whether the values are equal and of equal types at every level; NaN equals NaN, and zero differs from minus zero."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, list | tuple | deque):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, BaseModel | Point | Pair | Counted | Watched):
        return all(same(getattr(a, name), getattr(b, name)) for name in type(a).__annotations__)
    if isinstance(a, Decimal):
        return str(a) == str(b)  # 1.10 differs from 1.1
    if isinstance(a, datetime | time):
        return bool(a == b) and a.utcoffset() == b.utcoffset()
    return bool(a == b)

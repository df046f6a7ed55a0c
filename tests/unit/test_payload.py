"""Values of annotated types to JSON bytes, and back."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from itertools import count
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, FiniteFloat, PositiveInt, SecretStr, StringConstraints, field_validator
from tests.unit.payload_values import (
    ALL_BYTES,
    ID,
    INF,
    NOON,
    ROUND_TRIPS,
    Box,
    Colour,
    Left,
    Line,
    Movie,
    Order,
    Tree,
    Watched,
    Wide,
    relabelled,
    same,
)

from romancy.errors import ConfigurationError, PayloadError
from romancy.serde import ValueCodec
from romancy.serde.schema import value_wire


@pytest.mark.parametrize(("annotation", "value"), ROUND_TRIPS, ids=count())
def test_what_is_written_is_read_back_equal_and_of_one_type(annotation: Any, value: Any) -> None:
    codec = ValueCodec(annotation, what="the value")
    raw, seen = codec.roundtrip(value)
    assert same(seen, value), (raw, seen)
    assert codec.encode(seen) == codec.encode(value) == raw, "the decoded value is written as the first"
    raw.decode("utf-8")


def test_the_table_is_worth_its_name() -> None:
    assert len(ROUND_TRIPS) > 100
    assert not same(Line(sku="a", blob=b"1"), Line(sku="a", blob=b"2"))
    assert not same([1], (1,))
    assert not same({"a": 0.0}, {"a": -0.0})


REFUSED: list[tuple[Any, Any, str]] = [
    (int, "5", "expected int, got str"),
    (int, 5.5, "expected int, got float"),
    (int, None, "expected int, got NoneType"),
    (str, None, "expected str, got NoneType"),
    (str, b"x", "expected str, got bytes"),
    (str, "\ud800", "surrogates not allowed"),
    (list[str], ["ok", "a\udfff"], "surrogates not allowed"),
    (Line, Line(sku="\ud800"), "surrogates not allowed"),
    (dict[str, int], {"\ud800": 1}, "surrogates not allowed"),
    (dict[str, Any], {"a": {"\ud800": 1}}, "surrogates not allowed"),
    (dict[str, int], {1: 1}, "JSON keys are strings"),
    (Any, "\ud800", "surrogates not allowed"),
    (Any, {"a": ["\ud800"]}, "surrogates not allowed"),
    (None, 3, "expected None, got int"),
    (list[int], [1, "x"], "input_value='x'"),
    (list[int], (1, 2), "got tuple"),
    (tuple[int, int], (1,), "too few items"),
    (Order, {"id": 1}, "expected Order, got dict"),
    (Order, Line(sku="x"), "expected Order, got Line"),
    (Movie, {}, "title: Field required"),
    (Literal["a"], "b", "expected Literal['a'], got str"),
    (Colour, "red", "expected Colour, got str"),
    (datetime, "2024-01-01", "expected datetime, got str"),
    (date, NOON, "expected date, got datetime"),
    (Annotated[int, Field(gt=3)], 3, "greater than 3"),
    (Annotated[str, Field(max_length=1)], "ab", "at most 1 character"),
    (Decimal, Decimal("NaN"), "finite"),
    (dict[tuple[int, int], int], {(1, 2): 3}, "cannot be stored"),
    (SecretStr, SecretStr("s"), "stored as asterisks"),
    (Any, SecretStr("s"), "stored as asterisks"),
    (Any, {1: 2}, "annotate the parameter as dict[int, ...]"),
    (dict, {1: 2}, "annotate the parameter as dict[int, ...]"),
    (dict[str, Any], {"a": {(1,): 2}}, "annotate the parameter as dict[tuple, ...]"),
    (Any, b"x", "annotate the parameter or the result as bytes"),
    (Any, {"a": [b"x"]}, "annotate the parameter or the result as bytes"),
    (Any, {1, 2}, "annotate the parameter or the result as set[...]"),
    (Any, object(), "unknown type"),
    (Any, [lambda: 0], "unknown type"),
    (Any, int, "unknown type"),
    # constraints whose bound is 0, and options that are off
    (PositiveInt, -3, "greater than 0"),
    (Annotated[int, Field(gt=0)], 0, "greater than 0"),
    (Annotated[int, Field(ge=0)], -1, "greater than or equal to 0"),
    (Annotated[float, Field(ge=0)], -0.5, "greater than or equal to 0"),
    (Annotated[float, Field(lt=0)], 0.0, "less than 0"),
    (FiniteFloat, INF, "finite"),
    (Annotated[str, Field(max_length=0)], "a", "at most 0"),
    (Annotated[list[int], Field(max_length=0)], [1], "at most 0"),
    (dict[str, list[PositiveInt]], {"a": [1, -1]}, "a.1: Input should be greater than 0"),
    (Order, Order.model_construct(id=1, lines=[Line.model_construct()]), "lines.0.sku: Field required"),
    (Order, Order.model_construct(), "id: Field required"),
    (int, 10**4400, "out of range"),
    (Any, 10**4400, "out of range"),
    (Any, {"a": ["x" * 4299, 10**4400]}, "out of range"),
    (dict[str, int], {"a": 10**4300}, "out of range"),
    # values that would lose something without an error
    (Left, Wide(n=1, extra="x"), "a Wide would be read back as a Left"),
    (list[Left], [Left(n=1), Wide(n=1)], "1: a Wide would be read back as a Left"),
    (Box[Left], Box[Left](content=Wide(n=1)), "content: a Wide would be read back as a Left"),
    (Watched, relabelled(), "label: it is set outside __init__"),
    (dict, {None: 1}, "JSON keys are strings"),
    (dict[str, int], {None: 1}, "JSON keys are strings"),
    (dict[str | None, int], {None: 1}, "JSON keys are strings"),
    (Any, [{None: 1}], "JSON keys are strings"),
    (datetime, NOON.replace(tzinfo=timezone(timedelta(seconds=3601))), "would be read back as"),
    (list[time], [time(1, tzinfo=timezone(timedelta(minutes=-90, seconds=-1)))], "0: "),
    (dict[UUID | str, int], {str(ID): 1}, "cannot be stored"),
]


@pytest.mark.parametrize(("annotation", "value", "words"), REFUSED, ids=count())
def test_what_cannot_be_read_back_is_refused_when_written(annotation: Any, value: Any, words: str) -> None:
    codec = ValueCodec(annotation, what="result of activity 'charge'")
    for write in (codec.encode, codec.roundtrip):
        with pytest.raises(PayloadError) as caught:
            write(value)
        assert "result of activity 'charge' cannot be stored" in str(caught.value)
        assert words in str(caught.value)


def test_a_validator_that_raises_anything_is_a_payload_error() -> None:
    class Moody(BaseModel):
        a: int

        @field_validator("a")
        @classmethod
        def never(cls, value: int) -> int:
            raise RuntimeError("not today")

    moody = Moody.model_construct(a=1)
    with pytest.raises(PayloadError, match="not today"):
        ValueCodec(Moody, what="it").encode(moody)
    with pytest.raises(PayloadError, match="not today"):
        ValueCodec(Moody, what="it").decode(b'{"a":1}')


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(PayloadError, match="contains itself"):
        ValueCodec(Any, what="it").encode(loop)


@pytest.mark.parametrize("depth", [149, 250])
def test_nesting_is_either_stored_or_refused(depth: int) -> None:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    codec = ValueCodec(Any, what="it")
    if depth < 150:
        assert codec.decode(codec.encode(value)) == value
    else:
        with pytest.raises(PayloadError, match="nested deeper"):
            codec.encode(value)


def test_stored_data_of_another_shape_names_the_path() -> None:
    codec = ValueCodec(Order, what="result of activity 'load'")
    with pytest.raises(PayloadError, match=r"result of activity 'load' cannot be read as Order: lines\.0\.sku: Field"):
        codec.decode(b'{"id":1,"lines":[{}]}')
    with pytest.raises(PayloadError, match="Invalid JSON"):
        codec.decode(b"{")


def test_without_annotation_tuples_come_back_as_lists_and_models_as_dicts() -> None:
    codec = ValueCodec(Any, what="it")
    assert codec.roundtrip((1, (2,)))[1] == [1, [2]]
    assert codec.roundtrip({"a": Line(sku="x")})[1] == {"a": Line(sku="x").model_dump(mode="json")}
    assert codec.roundtrip(NOON)[1] == NOON.isoformat()


def test_a_type_that_pydantic_does_not_know_is_a_configuration_error() -> None:
    class Opaque: ...

    with pytest.raises(ConfigurationError, match=r"the result is annotated .*Opaque, which pydantic cannot store"):
        ValueCodec(Opaque, what="the result").check()


def test_ten_megabytes() -> None:
    text, blob = "x" * 10_000_000, ALL_BYTES * 40_000
    assert ValueCodec(str, what="it").roundtrip(text)[1] == text
    assert ValueCodec(Line, what="it").roundtrip(Line(sku="x", blob=blob))[1].blob == blob


def test_plain_types_are_not_read_back_needlessly_and_others_are() -> None:
    assert value_wire(dict[str, list[int | None]]).certain
    assert value_wire(Box[bytes]).certain
    assert not any(value_wire(t).certain for t in (Decimal, Colour, Annotated[int, Field(gt=1)], Movie, set[int], Tree))


def test_what_was_stored_without_a_tag_is_still_read() -> None:
    assert ValueCodec(str | Colour, what="it").decode(b'"red"') == "red"
    assert ValueCodec(Left | Tree, what="it").decode(b'{"n":1}') == Left(n=1)
    assert ValueCodec(bytes | str, what="it").decode(b'"YWJj"') == b"abc"


def test_errors_in_a_union_show_where_they_lie() -> None:
    with pytest.raises(PayloadError, match=r"Wide: Left\.n: Field required"):
        ValueCodec(Left | Wide, what="it").decode(b"{}")
    with pytest.raises(PayloadError, match=r"Wide\.v\.n: Field required"):
        ValueCodec(Left | Wide, what="it").decode(b'{"$":"Wide","v":{}}')


def test_a_subclass_that_is_defined_later_is_refused_too() -> None:
    class Base(BaseModel):
        n: int

    codec = ValueCodec(Base, what="it")
    assert codec.roundtrip(Base(n=1))[1] == Base(n=1)

    class Later(Base):
        more: int = 2

    with pytest.raises(PayloadError, match="a Later would be read back as a Base"):
        codec.encode(Later(n=1))
    assert codec.roundtrip(Base(n=1))[1] == Base(n=1)


def test_what_a_validator_makes_of_a_value_is_no_loss() -> None:
    codec = ValueCodec(Annotated[str, Field(max_length=9), StringConstraints(to_upper=True)], what="it")
    assert codec.roundtrip("a")[1] == "A"


def test_what_was_read_back_when_it_was_written_is_given_once() -> None:
    codec = ValueCodec(Order, what="it")
    raw = codec.encode(Order(id=1, when=NOON))
    first, second = codec.decode(raw), codec.decode(raw)
    assert first == second == Order(id=1, when=NOON)
    assert first is not second


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


@given(JSON)
def test_any_json_round_trips_without_annotation(value: Any) -> None:
    assert same(ValueCodec(Any, what="it").roundtrip(value)[1], value)


@given(
    st.builds(
        Tree,
        blob=st.binary(),
        weight=st.floats(),
        children=st.lists(st.builds(Tree, blob=st.binary(), weight=st.floats()), max_size=3),
    )
)
def test_any_bytes_and_floats_round_trip_in_models(tree: Tree) -> None:
    assert same(ValueCodec(Tree, what="it").roundtrip(tree)[1], tree)


@given(st.text(st.characters()))
def test_text_is_stored_exactly_or_refused(text: str) -> None:
    codec = ValueCodec(str, what="it")
    try:
        text.encode()
    except UnicodeEncodeError:
        with pytest.raises(PayloadError):
            codec.encode(text)
    else:
        assert codec.roundtrip(text)[1] == text

"""Forms from JSON Schema, and the values of their fields."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any

from pydantic import BaseModel, TypeAdapter

from romancy.viewer.forms import MISSING, Field, fields_of, read


class Size(Enum):
    SMALL = "small"
    TWO = 2


class Item(BaseModel):
    sku: str
    count: int = 1
    tags: list[str] = []


class Tree(BaseModel):
    value: int
    children: list[Tree] = []


class Order(BaseModel):
    customer: str
    items: list[Item]
    size: Size = Size.SMALL
    note: str | None = None
    when: date
    price: Decimal
    weight: float
    express: bool
    gift: bool | None = None
    extra: dict[str, int] = {}
    spare: Item | None = None
    tree: Tree | None = None
    either: int | str = 3


def schema() -> dict[str, Any]:
    made = TypeAdapter(Order).json_schema()
    definitions = made.pop("$defs")
    properties = {"order": made, "number": {"type": "integer"}}
    return {"type": "object", "properties": properties, "required": ["order", "number"], "$defs": definitions}


def by_path(form: Field) -> dict[str, Field]:
    found = {form.path: form}
    for one in form.fields:
        found |= by_path(one)
    return found


FILLED = {
    "/order/customer": "Ada",
    "/order/items/0/sku": "book",
    "/order/items/0/count": "3",
    "/order/items/0/tags/0": "new",
    "/order/items/0/tags/2": "blue",
    "/order/items/1/sku": "",
    "/order/items/1/count": "",
    "/order/items/7/sku": "lamp",
    "/order/items/7/count": "",
    "/order/size": "2",
    "/order/note": "",
    "/order/when": "2026-01-31",
    "/order/price": "1.20",
    "/order/weight": "2.5",
    "/order/express": "true",
    "/order/gift": "",
    "/order/extra": '{"a": 1}',
    "/order/either": "",
    "/number": "12345678901234567890",
}


def test_every_type_has_its_field() -> None:
    form = by_path(fields_of(schema()))
    assert {path.removeprefix("/order"): one.kind for path, one in form.items() if path.count("/") == 2} == {
        "/customer": "text",
        "/items": "array",
        "/size": "choice",
        "/note": "text",
        "/when": "date",
        "/price": "text",
        "/weight": "number",
        "/express": "boolean",
        "/gift": "boolean",
        "/extra": "json",
        "/spare": "object",
        "/tree": "object",
        "/either": "json",
    }
    assert form["/order/spare"].optional
    assert not form["/order/spare"].given
    assert form["/order/size"].value == '"small"'
    assert [one.value for one in form["/order/size"].options] == ['"small"', "2"]


def test_a_model_within_itself_ends_as_json() -> None:
    children = by_path(fields_of(schema()))["/order/tree/children"]
    assert children.blank is not None
    assert children.blank.kind == "json"


def test_places_of_new_items_are_told_apart_by_depth() -> None:
    items = by_path(fields_of(schema()))["/order/items"]
    assert items.blank is not None
    assert items.blank.path == "/order/items/__n0__"
    tags = by_path(items.blank)["/order/items/__n0__/tags"]
    assert tags.blank is not None
    assert tags.blank.path == "/order/items/__n0__/tags/__n1__"


def test_what_is_filled_in_becomes_a_value() -> None:
    reading = read(schema(), FILLED)
    assert reading.errors == {}
    assert reading.value == {
        "order": {
            "customer": "Ada",
            "items": [{"sku": "book", "count": 3, "tags": ["new", "blue"]}, {"sku": "lamp"}],
            "size": 2,
            "when": "2026-01-31",
            "price": "1.20",
            "weight": 2.5,
            "express": True,
            "extra": {"a": 1},
        },
        "number": 12345678901234567890,
    }
    Order.model_validate(reading.value["order"])


def test_an_optional_object_counts_when_its_box_is_ticked() -> None:
    posted = {**FILLED, "/order/spare#given": "1", "/order/spare/sku": "bulb"}
    assert read(schema(), posted).value["order"]["spare"] == {"sku": "bulb"}
    del posted["/order/spare#given"]
    assert "spare" not in read(schema(), posted).value["order"]


def test_what_cannot_be_read_is_shown_again_beside_its_error() -> None:
    reading = read(schema(), {**FILLED, "/number": "many", "/order/extra": "{", "/order/weight": ""})
    assert set(reading.errors) == {"/number", "/order/extra", "/order/weight"}
    form = by_path(fields_of(schema(), reading.value, reading.errors))
    assert (form["/number"].value, form["/number"].error) == ("many", "This is not a whole number.")
    assert form["/order/extra"].value == "{"
    assert form["/order/customer"].value == "Ada"


def test_a_form_is_filled_in_with_a_value_and_gives_it_back() -> None:
    value = read(schema(), FILLED).value
    posted: dict[str, str] = {}
    for path, one in by_path(fields_of(schema(), value)).items():
        if one.kind == "object" and one.optional and one.given:
            posted[f"{path}#given"] = "1"
        elif one.kind == "boolean" and not one.optional:
            posted |= {path: "true"} if one.value == "true" else {}
        elif one.kind not in ("object", "array"):
            posted[path] = one.value
    assert read(schema(), posted).value["order"] == {**value["order"]}


def test_names_with_slashes_and_quotes_are_paths_too() -> None:
    odd = {"type": "object", "properties": {'a/b~"<': {"type": "string"}}, "required": ['a/b~"<']}
    (field,) = fields_of(odd, {'a/b~"<': "x"}).fields
    assert (field.path, field.value) == ('/a~1b~0"<', "x")
    assert read(odd, {field.path: "y"}).value == {'a/b~"<': "y"}


def test_odd_schemas_become_json() -> None:
    odd: list[dict[str, Any]] = [
        {},
        {"type": ["string", "null"]},
        {"$ref": "#/$defs/none"},
        {"type": "array"},
        {"oneOf": [{}, {}]},
        {"prefixItems": []},
    ]
    assert {fields_of(one, MISSING).kind for one in odd} == {"json"}


def test_texts_that_no_field_can_carry_stand_there_as_json() -> None:
    plain = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a", "b"]}
    one, two = fields_of(plain, {"a": "x\0\r\u202e", "b": "two\nlines"}).fields
    assert (one.kind, one.escaped, two.kind) == ("json", True, "long")
    posted = {one.path: one.value, f"{one.path}#json": "1", two.path: "two\r\nlines"}
    assert read(plain, posted).value == {"a": "x\0\r\u202e", "b": "two\nlines"}

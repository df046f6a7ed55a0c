"""Events as the arguments of the workflows that they start."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel, Field
from tests.unit.instance_driver import Body
from typing_extensions import TypedDict

from romancy import (
    PayloadError,
    Workflow,
    WorkflowContext,
)
from romancy.model.messaging import (
    Event,
)
from romancy.registry.event_handlers import handler_arguments
from romancy.serde.external import takes_objects


class Payment(BaseModel):
    order_id: str = Field(alias="orderId")
    amount: Decimal


@dataclass
class Box:
    inner: object


class Pair(TypedDict):
    a: int


# --- events that start workflows


async def nothing_taken(ctx: WorkflowContext) -> None: ...
async def by_name(ctx: WorkflowContext, order_id: str, amount: Decimal, note: str = "") -> None: ...
async def only_by_name(ctx: WorkflowContext, /, *, order_id: str, n: int = 3) -> None: ...
async def a_model(ctx: WorkflowContext, payment: Payment) -> None: ...
async def maybe_a_model(ctx: WorkflowContext, payment: Payment | None = None) -> None: ...
async def a_dict(ctx: WorkflowContext, data: dict[str, Any]) -> None: ...
async def a_typed_dict(ctx: WorkflowContext, pair: Pair) -> None: ...
async def a_dataclass(ctx: WorkflowContext, box: Box) -> None: ...
async def a_number(ctx: WorkflowContext, number: int) -> None: ...
async def a_list(ctx: WorkflowContext, numbers: list[int]) -> None: ...
async def some_bytes(ctx: WorkflowContext, data: bytes) -> None: ...
async def anything(ctx: WorkflowContext, data) -> None: ...  # type: ignore[no-untyped-def]
async def the_rest(ctx: WorkflowContext, a: int, **rest: int) -> None: ...
async def several(ctx: WorkflowContext, *numbers: int, a: int = 1) -> None: ...
async def model_and_more(ctx: WorkflowContext, payment: Payment, n: int = 1) -> None: ...


PAYMENT = Payment(orderId="42", amount=Decimal("1.10"))
JSON = b'{"orderId":"42","amount":"1.10"}'


@pytest.mark.parametrize(
    ("body", "data", "call"),
    [
        (nothing_taken, b'{"a":1}', ((), {})),
        (nothing_taken, None, ((), {})),
        (by_name, b'{"amount":2,"order_id":"42"}', (("42", Decimal(2), ""), {})),
        (only_by_name, b'{"order_id":"42"}', ((), {"order_id": "42", "n": 3})),
        (a_model, JSON, ((PAYMENT,), {})),
        (maybe_a_model, JSON, ((PAYMENT,), {})),
        (maybe_a_model, None, ((None,), {})),
        (maybe_a_model, b"null", ((None,), {})),
        (a_dict, b'{"data":1}', (({"data": 1},), {})),
        (a_dict, b"{}", (({},), {})),
        (a_typed_dict, b'{"a":"1"}', (({"a": 1},), {})),
        (a_dataclass, b'{"inner":[1]}', ((Box([1]),), {})),
        (a_number, b"3", ((3,), {})),
        (a_number, b'{"number":3}', ((3,), {})),
        (a_list, b"[1,2]", (([1, 2],), {})),
        (some_bytes, b'"text"', ((b"text",), {})),
        (anything, b'{"data":1}', ((1,), {})),
        (anything, b'{"other":1}', (({"other": 1},), {})),
        (anything, b"[1]", (([1],), {})),
        (the_rest, b'{"a":1,"b":2,"c":3}', ((1,), {"b": 2, "c": 3})),
        (several, b'{"a":2}', ((), {"a": 2})),
        (model_and_more, b'{"payment":%s}' % JSON, ((PAYMENT, 1), {})),
    ],
)
def test_the_data_of_an_event_becomes_the_arguments(body: Body, data: bytes | None, call: Any) -> None:
    workflow: Workflow[..., Any] = Workflow(body, name="paid")
    raw = handler_arguments(workflow, Event("1", "/s", "paid", data))
    assert workflow.codec.decode(raw) == call


def test_binary_data_is_one_argument() -> None:
    workflow: Workflow[..., Any] = Workflow(some_bytes, name="paid")
    raw = handler_arguments(workflow, Event("1", "/s", "paid", b"\xff", binary=True))
    assert workflow.codec.decode(raw) == ((b"\xff",), {})


@pytest.mark.parametrize(
    ("body", "data", "words"),
    [
        (by_name, b'{"order_id":"42"}', "'amount' is missing"),
        (by_name, b'{"order_id":"42","amount":1,"colour":"red"}', "'colour' is not a parameter"),
        (by_name, b'{"order_id":"42","amount":"much"}', "amount"),
        (by_name, b"[1,2]", "is not an object"),
        (by_name, None, "'order_id' is missing"),
        (a_model, b'{"order_id":"42","amount":1}', "orderId"),
        (a_model, b"3", "is not a valid Payment"),
        (a_model, None, "is not a valid Payment"),
        (a_number, b'{"n":3}', "is not a valid int"),
        (a_number, b'{"number":3,"n":1}', "'n' is not a parameter"),
        (a_number, b"{}", "'number' is missing"),
        (several, b'{"numbers":[1]}', "'numbers' is not a parameter"),
        (the_rest, b'{"a":1,"b":"x"}', "b"),
        (a_dict, b"{", "not JSON"),
    ],
)
def test_data_that_does_not_fit_a_handler_is_named(body: Body, data: bytes | None, words: str) -> None:
    workflow: Workflow[..., Any] = Workflow(body, name="paid")
    with pytest.raises(PayloadError, match=rf"the data of event 'paid' \(/s, 1\).*{words}"):
        handler_arguments(workflow, Event("1", "/s", "paid", data))


@pytest.mark.parametrize(
    ("annotation", "takes"),
    [(Payment, True), (Payment | None, True), (dict, True), (Pair, True), (Box, True), (int, False), (list[Pair], False)],
)
def test_which_types_take_a_whole_object(annotation: Any, takes: bool) -> None:
    assert takes_objects(annotation) is takes

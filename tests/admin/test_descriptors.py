"""External input, checked against the stored descriptors of an app's workflows."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from romancy import Status, WorkflowContext, workflow
from romancy.admin.descriptors import (
    WorkflowDescriptor,
    bind_input,
    descriptor_key,
    read_descriptor,
    with_defaults,
    write_descriptor,
)
from romancy.admin.records import InputError
from romancy.admin.schemas import input_schema, read_input
from romancy.testing import TestEnvironment


class Kind(Enum):
    BOOK = "book"
    LAMP = "lamp"


class Line(BaseModel):
    sku: str
    count: int = 1
    kind: Kind | None = None
    more: list[Line] = []


@workflow(name="cards.whole")
async def whole(ctx: WorkflowContext, line: Line) -> str:
    return line.sku


@workflow(name="cards.many")
async def many(
    ctx: WorkflowContext,
    n: Annotated[int, Field(ge=0, lt=10)],
    lines: list[Line],
    price: Decimal = Decimal(1),
    mode: Literal["fast", "slow"] = "slow",
    by: dict[str, int] | None = None,
    when: date | None = None,
    either: int | str = 0,
    flag: bool = False,
    name: Annotated[str, Field(max_length=3)] = "",
) -> int:
    return n


GOOD: list[tuple[Any, dict[str, Any]]] = [
    (whole, {"sku": "a"}),
    (whole, {"line": {"sku": "a", "more": [{"sku": "b", "kind": "book"}]}}),
    (many, {"n": 0, "lines": []}),
    (many, {"n": "5", "lines": [{"sku": "a", "kind": None}], "price": "1.5", "by": {"a": 1}, "flag": "true"}),
    (many, {"n": 5.0, "lines": [], "price": 2, "mode": "fast", "when": "2024-01-01", "either": "x", "name": "abc"}),
]
BAD: list[tuple[Any, dict[str, Any], str]] = [
    (whole, {}, "line"),
    (whole, {"line": {"count": 1}}, "line.sku"),
    (whole, {"line": {"sku": "a", "more": [{"sku": 5}]}}, "line.more.0.sku"),
    (whole, {"line": {"sku": "a", "kind": "chair"}}, "line.kind"),
    (whole, {"line": "a"}, "line"),
    (many, {"n": -1, "lines": []}, "n"),
    (many, {"n": 10, "lines": []}, "n"),
    (many, {"n": 1.5, "lines": []}, "n"),
    (many, {"n": True, "lines": {}}, "lines"),
    (many, {"n": 1, "lines": [], "mode": "quick"}, "mode"),
    (many, {"n": 1, "lines": [], "by": {"a": "x"}}, "by.a"),
    (many, {"n": 1, "lines": [], "either": None}, "either"),
    (many, {"n": 1, "lines": [], "flag": "perhaps"}, "flag"),
    (many, {"n": 1, "lines": [], "name": "abcd"}, "name"),
    (many, {"n": 1, "line": []}, "line"),
]


@pytest.mark.parametrize(("of", "given"), GOOD)
def test_what_the_code_takes_is_taken_without_it(of: Any, given: dict[str, Any]) -> None:
    read_input(of, given)
    bind_input(of.name, read_descriptor(write_descriptor(of)).schema, given)


@pytest.mark.parametrize(("of", "given", "where"), BAD)
def test_what_the_code_refuses_is_refused_without_it(of: Any, given: dict[str, Any], where: str) -> None:
    with pytest.raises(InputError):
        read_input(of, given)
    with pytest.raises(InputError) as caught:
        bind_input(of.name, read_descriptor(write_descriptor(of)).schema, given)
    assert where in caught.value.fields


def test_defaults_are_put_in_all_the_way_down() -> None:
    schema = input_schema(whole)
    assert with_defaults(schema, {"line": {"sku": "a", "more": [{"sku": "b", "count": 2}]}}) == {
        "line": {"sku": "a", "count": 1, "kind": None, "more": [{"sku": "b", "count": 2, "kind": None, "more": []}]}
    }


def test_what_has_no_card_is_not_checked() -> None:
    assert read_descriptor(None) == WorkflowDescriptor(None, frozenset())
    assert bind_input("x", None, {"a": 1}) == {"a": 1}
    assert descriptor_key("n" * 2000, "") is None


async def test_input_that_does_not_fit_after_all_is_a_failed_instance() -> None:
    """No worker has run it, so no other code can resume it."""
    async with TestEnvironment(workflows=[whole]) as env:
        create = env.app._creation_by_name("cards.whole", (), {"line": {"sku": 5}}, env.app._clock.now())
        await env.app._require_committer().submit(create)
        await env.settle()
        found = await env.app.get_result(create.instance_id)
        assert found.status is Status.FAILED
        assert found.error is not None
        assert "argument 'line' of workflow 'cards.whole' cannot be read: line.sku" in found.error.message

"""The arguments of a function to a JSON object, and back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from typing_extensions import TypedDict, Unpack

from romancy.errors import ConfigurationError, PayloadError
from romancy.serde import CallCodec, result_codec, schema

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop as Context  # a name that does not exist when the program runs

T = TypeVar("T")


class Order(BaseModel):
    id: int
    blob: bytes = b""


class Extras(TypedDict, total=False):
    note: str
    blob: bytes


class Labels(BaseModel):
    names: set[str]


async def nothing(ctx: Context) -> None: ...
async def two(ctx: Context, order: Order, amount: int) -> Order:
    raise NotImplementedError


async def defaults(ctx: Context, a: int, b: str = "b", c: Order | None = None) -> None: ...
async def positional_only(ctx: Context, a: int, b: int = 2, /) -> None: ...
async def keyword_only(ctx: Context, a: int, *, k: bytes, z: float = 1.5) -> None: ...
async def stars(ctx: Context, a: int, *rest: bytes, k: int = 0, **more: float) -> None: ...
async def odd_names(ctx: Context, self: int, fn: int, ctx2: int, cls: int = 4, type: int = 5) -> None: ...
async def args_kwargs(ctx: Context, args: int, kwargs: str) -> None: ...
async def really_args(ctx: Context, *args: int, **kwargs: str) -> None: ...
async def plain(ctx, a, b=None):  # type: ignore[no-untyped-def]
    ...


async def implicit_optional(ctx: Context, a: str = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013  # pyright: ignore
async def unpacked(ctx: Context, **more: Unpack[Extras]) -> None: ...
async def labelled(ctx: Context, names: set[str], labels: Labels, deep: dict[str, list[frozenset[str]]]) -> None: ...
async def generic(ctx: Context, a: int, item: T) -> T:
    raise NotImplementedError


async def generic_list(ctx: Context, items: list[T]) -> T:
    raise NotImplementedError


async def unresolvable(ctx: Context, a: int, b: list[NoSuchThing]) -> None: ...  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore
async def opaque(ctx: Context, a: int, b: Opaque) -> Opaque:
    raise NotImplementedError


async def later(ctx: Context, a: DefinedLater) -> DefinedLater:
    raise NotImplementedError


class Opaque: ...


class DefinedLater(BaseModel):
    n: int


def codec(fn: Callable[..., Any]) -> CallCodec:
    return CallCodec(fn, what=f"activity {fn.__name__!r}")


Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str, tuple[Any, ...], dict[str, Any]]
ORDER = Order(id=1, blob=b"\xff")
ORDER_JSON = '{"id":1,"blob":"_w=="}'

CALLS: list[Call] = [
    (nothing, (), {}, "{}", (), {}),
    (two, (ORDER, 3), {}, f'{{"order":{ORDER_JSON},"amount":3}}', (ORDER, 3), {}),
    (two, (ORDER,), {"amount": 3}, f'{{"order":{ORDER_JSON},"amount":3}}', (ORDER, 3), {}),
    (two, (), {"amount": 3, "order": ORDER}, f'{{"order":{ORDER_JSON},"amount":3}}', (ORDER, 3), {}),
    (defaults, (1,), {}, '{"a":1,"b":"b","c":null}', (1, "b", None), {}),
    (defaults, (1,), {"c": ORDER}, f'{{"a":1,"b":"b","c":{ORDER_JSON}}}', (1, "b", ORDER), {}),
    (positional_only, (1,), {}, '{"a":1,"b":2}', (1, 2), {}),
    (keyword_only, (1,), {"k": b"\xff"}, '{"a":1,"k":"_w==","z":1.5}', (1,), {"k": b"\xff", "z": 1.5}),
    (stars, (1,), {}, '{"a":1,"rest":[],"k":0,"more":{}}', (1,), {"k": 0}),
    (
        stars,
        (1, b"\xff", b"x"),
        {"k": 7, "rest": 0.5, "a2": 2.0},
        '{"a":1,"rest":["_w==","eA=="],"k":7,"more":{"rest":0.5,"a2":2.0}}',
        (1, b"\xff", b"x"),
        {"k": 7, "rest": 0.5, "a2": 2.0},
    ),
    (odd_names, (1, 2), {"ctx2": 3}, '{"self":1,"fn":2,"ctx2":3,"cls":4,"type":5}', (1, 2, 3, 4, 5), {}),
    (args_kwargs, (1,), {"kwargs": "x"}, '{"args":1,"kwargs":"x"}', (1, "x"), {}),
    (
        really_args,
        (1, 2),
        {"self": "s", "fn": "f", "args": "a"},
        '{"args":[1,2],"kwargs":{"self":"s","fn":"f","args":"a"}}',
        (1, 2),
        {"self": "s", "fn": "f", "args": "a"},
    ),
    (plain, ((1, "x"),), {}, '{"a":[1,"x"],"b":null}', ([1, "x"], None), {}),
    (implicit_optional, (), {}, '{"a":null}', (None,), {}),
    (unpacked, (), {"blob": b"\xff"}, '{"more":{"blob":"_w=="}}', (), {"blob": b"\xff"}),
    (later, (DefinedLater(n=1),), {}, '{"a":{"n":1}}', (DefinedLater(n=1),), {}),
]


@pytest.mark.parametrize(("fn", "args", "kwargs", "raw", "seen", "seen_kwargs"), CALLS)
def test_a_call_is_an_object_of_its_parameters(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    raw: str,
    seen: tuple[Any, ...],
    seen_kwargs: dict[str, Any],
) -> None:
    call = codec(fn)
    assert call.encode(args, kwargs) == raw.encode()
    assert call.decode(raw.encode()) == (seen, seen_kwargs)
    assert call.roundtrip(args, kwargs) == (raw.encode(), seen, seen_kwargs)
    assert call.parameters == tuple(json.loads(raw))
    fn(None, *seen, **seen_kwargs).close()  # the decoded arguments fit the function


WRONG_CALLS: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = [
    (two, (), {}),
    (two, (ORDER,), {}),
    (two, (ORDER, 1, 2), {}),
    (two, (ORDER, 1), {"amount": 2}),
    (two, (ORDER,), {"amuont": 2}),
    (two, (ORDER, 1), {"ctx": 2}),
    (positional_only, (), {"a": 1}),
    (keyword_only, (1,), {}),
    (nothing, (1,), {}),
]


@pytest.mark.parametrize(("fn", "args", "kwargs"), WRONG_CALLS)
def test_a_wrong_call_raises_what_python_raises(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    with pytest.raises(TypeError) as pythons:
        fn(None, *args, **kwargs)
    with pytest.raises(TypeError) as ours:
        codec(fn).encode(args, kwargs)
    assert str(ours.value) == str(pythons.value)
    assert f"{fn.__name__}()" in str(ours.value)


REFUSED: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str, str]] = [
    (two, (ORDER, "3"), {}, "amount", "expected int, got str"),
    (two, ({"id": 1}, 3), {}, "order", "expected Order, got dict"),
    (two, (None, 3), {}, "order", "expected Order, got NoneType"),
    (defaults, (1, "\ud800"), {}, "b", "surrogates not allowed"),
    (keyword_only, (1,), {"k": "text"}, "k", "expected bytes, got str"),
    (stars, (1, b"x", "y"), {}, "rest", "input_value='y'"),
    (stars, (1,), {"x": "y"}, "more", "input_value='y'"),
    (plain, (1, {2: 3}), {}, "b", "annotate the parameter as dict[int, ...]"),
    (plain, (b"x",), {}, "a", "annotate the parameter or the result as bytes"),
    (plain, (1, object()), {}, "b", "unknown type"),
    (unpacked, (), {"note": 3}, "more", "expected Extras"),
]


@pytest.mark.parametrize(("fn", "args", "kwargs", "name", "words"), REFUSED)
def test_a_wrong_argument_is_named(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], name: str, words: str
) -> None:
    for write in (codec(fn).encode, codec(fn).roundtrip):
        with pytest.raises(PayloadError) as caught:
            write(args, kwargs)
        assert f"argument {name!r} of activity {fn.__name__!r} cannot be stored: " in str(caught.value)
        assert words in str(caught.value)


def test_code_may_gain_and_drop_parameters() -> None:
    assert codec(defaults).decode(b'{"a":1,"gone":[1]}') == ((1, "b", None), {})
    assert codec(stars).decode(b'{"a":1}') == ((1,), {"k": 0})
    assert codec(keyword_only).decode(b'{"a":1,"k":"eA=="}') == ((1,), {"k": b"x", "z": 1.5})


def test_a_later_default_does_not_change_a_call_that_was_made() -> None:
    async def before(ctx: Any, a: int = 1) -> None: ...
    async def after(ctx: Any, a: int = 2) -> None: ...

    assert codec(after).decode(codec(before).encode((), {})) == ((1,), {})


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b'{"order":{"id":1}}', "argument 'amount' of activity 'two' cannot be read: amount: Field required"),
        (b'{"order":{"id":"x"},"amount":1}', "argument 'order' of activity 'two' cannot be read: order.id: "),
        (b"[1, 2]", "the arguments of activity 'two' cannot be read: "),
        (b"{", "the arguments of activity 'two' cannot be read: Invalid JSON"),
    ],
)
def test_stored_arguments_that_do_not_fit_are_named(raw: bytes, words: str) -> None:
    with pytest.raises(PayloadError) as caught:
        codec(two).decode(raw)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (generic, "parameter 'item' of activity 'generic' is annotated with the type variable ~T"),
        (generic_list, "parameter 'items' of activity 'generic_list' is annotated with the type variable ~T"),
        (unresolvable, "parameter 'b' of activity 'unresolvable' is annotated 'list[NoSuchThing]'"),
        (opaque, "argument 'b' of activity 'opaque' is annotated Opaque, which pydantic cannot store"),
    ],
)
def test_annotations_that_mean_nothing_are_configuration_errors(fn: Callable[..., Any], words: str) -> None:
    call = codec(fn)  # the codec can be made, because classes may be defined later
    for use in (call.check, lambda: call.decode(b"{}"), lambda: call.encode((1, 2)[: len(call.parameters)], {})):
        with pytest.raises(ConfigurationError) as caught:
            use()
        assert words in str(caught.value)


def test_a_function_needs_a_context() -> None:
    async def bare() -> None: ...
    async def only_keywords(*, ctx: Any) -> None: ...

    for fn in (bare, only_keywords):
        with pytest.raises(ConfigurationError, match=f"'{fn.__name__}' has no context"):
            codec(fn)


def test_classes_of_an_enclosing_function_are_found() -> None:
    class Local(BaseModel):
        n: int

    async def local(ctx: Any, a: Local) -> list[Local]:
        raise NotImplementedError

    assert codec(local).decode(b'{"a":{"n":1}}') == ((Local(n=1),), {})
    assert result_codec(local, what="it").decode(b'[{"n":1}]') == [Local(n=1)]


def test_a_wrapped_function_is_read_as_the_one_it_wraps() -> None:
    @wraps(two)
    async def wrapper(*args: Any, **kwargs: Any) -> Any: ...

    assert codec(wrapper).parameters == ("order", "amount")
    assert codec(wrapper).decode(codec(two).encode((ORDER, 1), {})) == ((ORDER, 1), {})


def give_coroutine(ctx: Any) -> Coroutine[Any, Any, bytes]: ...  # type: ignore[empty-body]
def give_awaitable(ctx: Any) -> Awaitable[bytes]: ...  # type: ignore[empty-body]
def give_bytes(ctx: Any) -> bytes: ...  # type: ignore[empty-body]
async def give_later(ctx: Any) -> bytes: ...  # type: ignore[empty-body]


@pytest.mark.parametrize("fn", [give_coroutine, give_awaitable, give_bytes, give_later])
def test_the_result_is_what_awaiting_gives(fn: Callable[..., Any]) -> None:
    assert result_codec(fn, what="it").roundtrip(b"\xff") == (b'"_w=="', b"\xff")


def test_results_without_a_useful_annotation_are_json() -> None:
    async def never(ctx: Any) -> NoReturn:
        raise NotImplementedError

    assert result_codec(never, what="it").roundtrip([1]) == (b"[1]", [1])
    assert result_codec(plain, what="it").roundtrip((1,)) == (b"[1]", [1])
    with pytest.raises(PayloadError, match="result of it cannot be stored: expected None, got int"):
        result_codec(nothing, what="result of it").encode(1)
    with pytest.raises(ConfigurationError, match="type variable"):
        result_codec(generic, what="it").check()
    with pytest.raises(ConfigurationError, match=r"result of 'opaque' is annotated Opaque"):
        result_codec(opaque, what="result of 'opaque'").check()


# -- digests ----------------------------------------------------------------------------------------------------------

NAMES = {f"name-{n}" for n in range(20)}
SCRIPT = """
import sys; sys.path[:0] = [{src!r}, {root!r}]
from tests.unit.test_payload_calls import *
if {plain!r}:
    schema._REBUILDS = False
call = codec(labelled)
print(call.digest(call.encode((NAMES, Labels(names=NAMES), {{"a": [frozenset(NAMES)]}}), {{}})).hex(), *NAMES)
"""


@pytest.mark.parametrize("plain_pydantic", [False, True])
def test_the_digest_does_not_depend_on_the_order_of_a_set(plain_pydantic: bool) -> None:
    root = os.getcwd()
    source = SCRIPT.format(src=os.path.join(root, "src"), root=root, plain=plain_pydantic)
    seen = [
        subprocess.run(
            [sys.executable, "-c", source], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True
        ).stdout.split()
        for seed in ("1", "2")
    ]
    assert seen[0][1:] != seen[1][1:], "the processes must iterate in different orders, otherwise the test shows nothing"
    assert seen[0][0] == seen[1][0]
    assert len(bytes.fromhex(seen[0][0])) == 8


def test_the_digest_tells_calls_apart() -> None:
    call = codec(two)
    digests = {call.digest(call.encode((Order(id=i), 1), {})) for i in range(100)}
    assert len(digests) == 100
    assert {len(digest) for digest in digests} == {8}
    labels = codec(labelled)
    one, other = (labels.digest(labels.encode(({x}, Labels(names=set()), {}), {})) for x in ("a", "b"))
    assert one != other


def test_without_the_private_flag_plain_payloads_still_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "_REBUILDS", False)
    assert codec(keyword_only).roundtrip((1,), {"k": b"\xff"})[1:] == ((1,), {"k": b"\xff", "z": 1.5})
    with pytest.raises(PayloadError, match="argument 'order' of activity 'two'"):
        codec(two).encode((ORDER, 1), {})  # bytes inside a model: refused, not stored wrongly


@given(st.integers(), st.lists(st.binary()), st.integers(), st.dictionaries(st.sampled_from("bcdxyz"), st.floats()))
def test_any_call_round_trips(a: int, rest: list[bytes], k: int, more: dict[str, float]) -> None:
    call = codec(stars)
    args, kwargs = call.decode(call.encode((a, *rest), {"k": k, **more}))
    assert args == (a, *rest)
    assert repr(kwargs) == repr({"k": k, **more})  # by `repr`, because NaN differs from itself

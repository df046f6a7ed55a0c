"""Exceptions that are rebuilt as they were, and exceptions for which a stand-in is made."""

from __future__ import annotations

import asyncio
import enum
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from pydantic import BaseModel

from romancy import errors
from romancy.errors import ActivityError, PayloadError, RetryExhaustedError, TerminalError


class Colour(enum.Enum):
    RED = "red"


class Perm(enum.Flag):
    R = 1
    W = 2


class Item(BaseModel):
    sku: str
    blob: bytes = b"\xff"


@dataclass
class Point:
    x: float


class Row(NamedTuple):
    a: int
    b: tuple[int, ...]


class Failed(Exception):
    """Its `__init__` takes other arguments than its `args`: `cls(*args)` would repeat the message."""

    calls = 0

    def __init__(self, order_id: int) -> None:
        super().__init__(f"order {order_id} failed")
        Failed.calls += 1
        self.order_id = order_id


class KeywordOnly(Exception):
    def __init__(self, *, code: int, why: str) -> None:
        self.code, self.why = code, why

    def __str__(self) -> str:
        return f"{self.code}: {self.why}"


class Slotted(Exception):
    __slots__ = ("left", "message", "never")

    def __init__(self, left: int, message: str | None) -> None:
        super().__init__(left)
        self.left, self.message = left, message


class CustomNew(Exception):
    def __new__(cls, *args: Any) -> CustomNew:
        if args != ("made",):
            raise RuntimeError("__new__ of the user must not be called with the stored args")
        return super().__new__(cls, *args)

    def __init__(self, *_: Any) -> None:
        super().__init__("other", "args")


class Gone(OSError):
    def __init__(self, path: str) -> None:
        super().__init__(2, "gone", path)
        self.path = path


class Guarded(Exception):
    def __setattr__(self, name: str, value: object) -> None:
        raise TypeError("frozen")


@dataclass(frozen=True)
class FrozenError(Exception):
    code: int


class Rich(Exception):
    def __init__(self) -> None:
        super().__init__("rich", Decimal("1.10"), (1, b"\xff"))
        self.item = Item(sku="x")
        self.point = Point(float("inf"))
        self.colour = Colour.RED
        self.when = datetime(2024, 1, 1, tzinfo=UTC)
        self.id = UUID(int=7)
        self.seen = {1, 2}
        self.by_key = {1: "a", "$": "b"}


class NotFound(TerminalError):
    def __init__(self, sku: str, shelf: int) -> None:
        super().__init__(f"no {sku} on shelf {shelf}")
        self.sku, self.shelf = sku, shelf


class Outer:
    class InnerError(Exception): ...


class Batch(ExceptionGroup[Exception]):
    def derive(self, excs: Any) -> Batch:  # type: ignore[override]
        return Batch(self.message, excs)


class Response:
    """An object that cannot be stored, like the response in the errors of an HTTP client."""


class OtherText:
    """An object that cannot be stored, whose `str()` differs from its `repr()`."""

    def __str__(self) -> str:
        return "text"


class HttpError(Exception):
    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.status = 502
        self.response = Response()


class BadStr(Exception):
    def __init__(self) -> None:
        super().__init__()
        self.thing = Response()

    def __str__(self) -> str:
        return f"about {self.thing.__class__.__name__}"


class NoStr(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def caught(act: Callable[[], object]) -> BaseException:
    try:
        act()
    except BaseException as exc:
        return exc
    raise AssertionError("nothing was raised")


def chain(*links: BaseException) -> BaseException:
    for link, cause in pairwise(links):
        BaseException.__setattr__(link, "__cause__", cause)
    return links[0]


def own_code(exc: OSError) -> OSError:
    exc.errno = 99
    return exc


def with_note(exc: BaseException) -> BaseException:
    exc.__dict__["__notes__"] = ["first", "second\x00"]
    return exc


REBUILT: list[BaseException] = [
    ValueError("plain"),
    ValueError(),
    ValueError("two", 2),
    ValueError("\x00 ünïcödé"),
    ValueError(float("nan")),
    ValueError(2**100),
    ValueError((1, [2, {"a": b"\xff"}])),
    KeyError("missing"),
    IndexError(3),
    ZeroDivisionError("division by zero"),
    caught(lambda: dict[str, int]()["x"]),
    caught(lambda: list[int]()[0]),
    caught(lambda: None.nothing),  # type: ignore[attr-defined]  # pyright: ignore
    caught(lambda: int("x")),
    caught(lambda: Path("/no/such/file").read_text()),
    caught(lambda: b"\xff".decode()),
    caught(lambda: "\u20ac".encode("ascii")),
    caught(lambda: __import__("no_such_module")),
    caught(lambda: compile("1 +", "<text>", "eval")),
    caught(lambda: json.loads("{")),
    caught(lambda: no_such_name),  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore
    FileNotFoundError(2, "gone", "a", None, "b"),
    OSError("only words"),
    own_code(OSError(5, "io")),
    BlockingIOError(11, "later", 3),
    ImportError("broken", name="mod", path="/x"),
    TimeoutError("late"),
    Failed(7),
    KeywordOnly(code=3, why="tired"),
    Slotted(1, None),
    Slotted(1, "text"),
    CustomNew("made"),
    Gone("/x"),
    Guarded("stiff"),
    with_note(chain(Guarded("stiff"), Guarded("cause"))),
    FrozenError(4),
    Rich(),
    Outer.InnerError("inner"),
    with_note(Failed(1)),
    ExceptionGroup("several", [ValueError("a"), Failed(2)]),
    ExceptionGroup("nested", [ExceptionGroup("inner", [KeyError("k")])]),
    Batch("mine", [ValueError("a")]),
    TerminalError("stop"),
    NotFound("x", 3),
    RetryExhaustedError("gave up", attempts=5),
    ActivityError("some.Error", "words", {"a": (1,)}, "trace"),
    errors.ActivityTimeoutError("late"),
    PayloadError("wrong"),
    errors.StoreError("away"),
    errors.WorkflowTimeoutError("too long"),
]


def local_class() -> BaseException:
    class LocalError(Exception): ...

    return LocalError("local")


AS_TEXT: list[tuple[BaseException, str]] = [
    (ValueError("\ud800"), "args[0]"),
    (ValueError(Response), "args[0]"),
    (KeyError(Response()), "args[0]"),
    (ValueError([Response()]), "args[0]"),
    (ValueError("between", Response(), b"\xff", "and \ud800"), "args[1]"),
    (OSError(5, Response()), "args[1]"),
    (ValueError(OtherText()), "args[0]"),
    (ValueError(OtherText(), 1), "args[0]"),
    (ValueError(Perm.R | Perm.W), "args[0]"),
    (Failed(Response()), "order_id"),  # type: ignore[arg-type]  # pyright: ignore
    (TerminalError(Response()), "args[0]"),
    (ExceptionGroup("several", [ValueError(Response())]), ""),
    (Batch("\ud800", [ValueError(Response())]), "args[0]"),
]
"""Exceptions with attributes that cannot be stored: their class and message are kept."""

STAND_INS: list[tuple[BaseException, str, str]] = [
    (local_class(), "tests.unit.failure_cases.local_class.<locals>.LocalError", "local"),
    (BadStr(), "tests.unit.failure_cases.BadStr", "about Response"),
    (caught(lambda: Item.model_validate({})), "pydantic_core._pydantic_core.ValidationError", "1 validation error"),
    (asyncio.CancelledError("stop"), "asyncio.exceptions.CancelledError", "stop"),
    (SystemExit(3), "SystemExit", "3"),
    (KeyboardInterrupt(), "KeyboardInterrupt", ""),
    (GeneratorExit(), "GeneratorExit", ""),
    (StopIteration(1), "StopIteration", "1"),
    (StopAsyncIteration(), "StopAsyncIteration", ""),
    (BaseExceptionGroup("mixed", [KeyboardInterrupt()]), "BaseExceptionGroup", "mixed (1 sub-exception)"),
]

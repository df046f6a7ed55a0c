"""Exceptions as records, and back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.failure_cases import (
    AS_TEXT,
    REBUILT,
    STAND_INS,
    Failed,
    HttpError,
    NoStr,
    NotFound,
    caught,
    chain,
    local_class,
)

from romancy.errors import ActivityError, RetryExhaustedError, TerminalError
from romancy.serde import decode_failure, describe_failure, encode_failure, is_terminal


def state(exc: BaseException) -> dict[str, Any]:
    """All attributes as text, because NaN differs from itself."""
    names = {n for n in dir(exc) if not n.startswith("__") and n not in ("add_note", "with_traceback", "obj", "exceptions")}
    found = {name: getattr(exc, name, "<unset>") for name in names}
    return {name: repr(value) for name, value in found.items() if not callable(value)}


@pytest.mark.parametrize("exc", REBUILT, ids=lambda e: f"{type(e).__name__}-{str(e)[:20]!r}")
def test_the_same_exception_comes_back(exc: BaseException) -> None:
    calls = Failed.calls
    seen = decode_failure(encode_failure(exc))
    assert type(seen) is type(exc)
    assert str(seen) == str(exc)
    assert repr(seen.args) == repr(exc.args)
    assert state(seen) == state(exc)
    assert getattr(seen, "__notes__", []) == getattr(exc, "__notes__", [])
    if isinstance(exc, BaseExceptionGroup):
        assert repr(seen) == repr(exc)
    assert causes(seen) == causes(exc)
    assert Failed.calls == calls, "the user's `__init__` was called"
    again = decode_failure(encode_failure(seen))
    assert (type(again), str(again), state(again)) == (type(exc), str(exc), state(exc))


@pytest.mark.parametrize(("exc", "lost"), AS_TEXT, ids=lambda v: repr(v)[:30])
def test_arguments_that_cannot_be_stored_leave_their_words_and_the_class(exc: BaseException, lost: str) -> None:
    seen = decode_failure(encode_failure(exc))
    assert type(seen) is type(exc)
    assert str(seen) == str(exc).encode("utf-8", "backslashreplace").decode()
    assert len(seen.args) == len(exc.args)
    assert lost in " ".join(getattr(seen, "__notes__", []))
    again = decode_failure(encode_failure(seen))
    assert (type(again), str(again), repr(again.args)) == (type(seen), str(seen), repr(seen.args))


def test_arguments_that_can_be_stored_stay_what_they_are() -> None:
    thing = object()
    seen = decode_failure(encode_failure(ValueError(1, {"a": b"\xff"}, thing)))
    assert seen.args[:2] == (1, {"a": b"\xff"})
    assert repr(seen.args[2]) == repr(thing)
    assert isinstance(seen.args[2], str)


def test_the_words_of_an_argument_that_has_none() -> None:
    class Mute:
        __str__ = __repr__ = None  # type: ignore[assignment]  # pyright: ignore

    seen = decode_failure(encode_failure(KeyError("x", Mute())))
    assert isinstance(seen, ActivityError), "its `str()` fails, but that of the rebuilt exception would not"


@pytest.mark.parametrize(("exc", "name", "message"), STAND_INS, ids=lambda v: repr(v)[:30])
def test_what_cannot_be_rebuilt_is_an_activity_error(exc: BaseException, name: str, message: str) -> None:
    seen = decode_failure(encode_failure(exc))
    assert type(seen) is ActivityError
    assert seen.type.endswith(name.rpartition(".")[2]) if "pydantic" in name else seen.type == name
    assert seen.message.startswith(message)
    assert seen.trace
    assert isinstance(seen.data, dict)


def test_an_exception_without_words_comes_back_without_words() -> None:
    raw = encode_failure(NoStr("secret"))
    seen = decode_failure(raw)
    assert (type(seen), seen.args) == (NoStr, ("secret",))
    assert describe_failure(raw).message == "<str() of the exception failed: RuntimeError>"


def test_more_digits_than_can_be_read_are_not_stored() -> None:
    seen = decode_failure(encode_failure(ValueError(10**4999)))
    assert isinstance(seen, ActivityError)
    assert "str() of the exception failed" in seen.message


def test_the_stand_in_keeps_what_is_data() -> None:
    exc = local_class()
    exc.code = 7  # type: ignore[attr-defined]  # pyright: ignore
    seen = decode_failure(encode_failure(exc))
    assert isinstance(seen, ActivityError)
    assert seen.data == {"args": ["local"], "code": 7}
    assert "LocalError: local" in seen.trace


def test_an_attribute_that_is_no_data_is_left_out_with_a_note() -> None:
    seen = decode_failure(encode_failure(HttpError("bad gateway")))
    assert type(seen) is HttpError
    assert (str(seen), seen.status) == ("bad gateway", 502)
    assert not hasattr(seen, "response")
    assert seen.__notes__ == ["not recorded: response (a tests.unit.failure_cases.Response is not plain data)"]


def causes(exc: BaseException | None) -> list[str]:
    return [] if exc is None else [repr(exc), *causes(exc.__cause__)]


def test_causes_come_along_five_deep() -> None:
    exc = chain(RetryExhaustedError("gave up", 3), *(Failed(n) for n in range(8)))
    assert causes(decode_failure(encode_failure(exc))) == causes(exc)[:6]


def test_contexts_come_along_unless_suppressed() -> None:
    def fail(quiet: bool) -> None:
        try:
            raise KeyError("inner")
        except KeyError:
            if quiet:
                raise ValueError("outer") from None
            raise ValueError("outer")  # noqa: B904

    loud = decode_failure(encode_failure(caught(lambda: fail(quiet=False))))
    quiet = decode_failure(encode_failure(caught(lambda: fail(quiet=True))))
    assert (repr(loud.__context__), loud.__cause__, loud.__suppress_context__) == ("KeyError('inner')", None, False)
    assert (quiet.__context__, quiet.__cause__, quiet.__suppress_context__) == (None, None, True)


def test_a_circle_of_causes_ends() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert causes(decode_failure(encode_failure(one))) == ["ValueError('one')", "ValueError('two')"]
    assert not is_terminal(one)


def test_terminal_is_the_error_and_what_is_raised_from_it() -> None:
    assert is_terminal(TerminalError("x"))
    assert is_terminal(NotFound("x", 1))
    assert is_terminal(chain(ValueError("outer"), KeyError("middle"), TerminalError("x")))
    assert is_terminal(decode_failure(encode_failure(chain(ValueError("outer"), NotFound("x", 1)))))
    within: list[Any] = [chain(KeyError("y"), NotFound("x", 1))]
    group = ExceptionGroup("some", [ValueError("x"), ExceptionGroup("more", within)])
    assert is_terminal(group)
    assert is_terminal(chain(ValueError("outer"), group))
    assert is_terminal(decode_failure(encode_failure(group)))
    assert not is_terminal(ExceptionGroup("some", [ValueError("x"), ExceptionGroup("more", [KeyError("y")])]))
    assert not is_terminal(ValueError("x"))
    implicit = ValueError("outer")
    implicit.__context__ = TerminalError("x")
    assert not is_terminal(implicit)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"{}", b"null", b"\xff", b'{"type":3,"rebuild":true}'])
def test_reading_never_raises(raw: bytes) -> None:
    seen = decode_failure(raw)
    assert isinstance(seen, ActivityError)
    assert "cannot be read" in seen.message
    assert "cannot be read" in describe_failure(raw).message


@pytest.mark.parametrize(
    "change",
    [
        {"type": "no_such_module:Failed"},
        {"type": "tests.unit.failure_cases:Gone2"},
        {"type": "tests.unit.failure_cases:local_class"},
        {"type": "os:system"},
        {"attrs": {"a": {"$": "model", "c": "os:system", "v": 1}}},
        {"attrs": {"a": {"$": "unheard-of", "v": 1}}},
    ],
)
def test_a_class_that_changed_since_gives_a_stand_in(change: dict[str, Any]) -> None:
    record = json.loads(encode_failure(Failed(1))) | change
    seen = decode_failure(json.dumps(record).encode())
    assert isinstance(seen, ActivityError)
    assert seen.message == "order 1 failed"


def test_the_decision_is_in_the_record() -> None:
    record = json.loads(encode_failure(Failed(1)))
    assert record["rebuild"] is True
    seen = decode_failure(json.dumps(record | {"rebuild": False}).encode())
    assert isinstance(seen, ActivityError)


# -- messages ---------------------------------------------------------------------------------------------------------


def fail_here(words: str) -> None:
    raise ValueError(words)


def fail_elsewhere(words: str) -> None:
    raise ValueError(words)


def test_a_description_has_type_message_trace_and_cause() -> None:
    info = describe_failure(encode_failure(chain(caught(lambda: fail_here("outer")), Failed(1))))
    assert (info.type, info.message) == ("ValueError", "outer")
    assert "in fail_here" in info.trace
    assert "raise ValueError(words)" in info.trace
    assert info.cause is not None
    assert (info.cause.type, info.cause.message) == ("tests.unit.failure_cases.Failed", "order 1 failed")
    assert info.cause.cause is None


def test_the_fingerprint_is_type_and_place_without_words_and_lines() -> None:
    def print_of(act: Callable[[], object]) -> str:
        return describe_failure(encode_failure(caught(act))).fingerprint

    here = print_of(lambda: fail_here("one"))
    assert here == print_of(lambda: fail_here("two"))
    assert here != print_of(lambda: fail_elsewhere("one"))
    in_library = print_of(lambda: json.loads("{"))
    assert in_library == print_of(lambda: json.loads("[")), "the last frame of the user's code counts, not the library's"


def test_the_trace_is_limited() -> None:
    def deep(n: int) -> None:
        if n == 0:
            raise ValueError("x" * 50_000)
        deep(n - 1)

    exc = chain(caught(lambda: deep(200)), caught(lambda: fail_here("cause")))
    info = describe_failure(encode_failure(exc))
    assert info.cause is not None
    assert 0 < len(info.trace) + len(info.cause.trace) <= 20_000
    assert str(decode_failure(encode_failure(exc))) == str(exc)


# -- another process --------------------------------------------------------------------------------------------------

PROGRAM = """
import sys
sys.path.insert(0, {src!r})
from romancy.serde import decode_failure, encode_failure

class Mine(Exception):
    def __init__(self, n):
        super().__init__(f"mine {{n}}")
        self.n = n

if __name__ == "__main__":
    if len(sys.argv) > 1:
        seen = decode_failure(bytes.fromhex(sys.argv[1]), near="__main__")
        print(type(seen) is Mine)
    else:
        print(encode_failure(Mine(3)).hex())
"""


def test_a_class_of_main_is_found_near_the_activity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "a_users_program.py"
    program.write_text(PROGRAM.format(src=os.path.join(os.getcwd(), "src")))

    def run(*args: str) -> str:
        done = subprocess.run([sys.executable, str(program), *args], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    raw = bytes.fromhex(run())
    assert json.loads(raw)["type"] == "__main__:Mine"
    assert isinstance(decode_failure(raw), ActivityError), "the program is not known"

    monkeypatch.syspath_prepend(tmp_path)
    seen: Any = decode_failure(raw, near="a_users_program")
    assert (type(seen).__module__, type(seen).__name__, str(seen), seen.n) == ("a_users_program", "Mine", "mine 3", 3)
    # The other way round: recorded by a worker that imported the program, read by the program itself.
    assert run(encode_failure(seen).hex()) == "True"
    monkeypatch.delitem(sys.modules, "a_users_program")


# -- forged names of classes ------------------------------------------------------------------------------------------


def forged(**change: Any) -> bytes:
    return json.dumps(json.loads(encode_failure(Failed(1))) | change).encode()


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Modules that can be imported and are not loaded; each leaves a file when it is executed."""
    ran = "import pathlib; pathlib.Path(__file__).with_suffix('.ran').touch()\n"
    (tmp_path / "a_package.py").write_text(ran + "class Wrong(Exception): ...\nclass Bag(tuple): _fields = _make = ()\n")
    shop = tmp_path / "a_shop"
    shop.mkdir()
    (shop / "__init__.py").write_text(ran + "def __getattr__(name):\n    import a_package\n    return a_package.Wrong\n")
    (shop / "errors.py").write_text(ran + "class Wrong(Exception): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("near", [None, "__main__", "a_shop.activities", "tests.unit.test_failure"])
@pytest.mark.parametrize(
    "change",
    [
        {"type": "a_package:Wrong", "attrs": {}, "args": []},
        {"attrs": {"bag": {"$": "namedtuple", "c": "a_package:Bag", "v": []}}},
        {"cause": json.loads(encode_failure(ValueError())) | {"type": "a_package:Wrong"}},
    ],
    ids=["error", "attribute", "cause"],
)
def test_a_record_does_not_import_a_module_that_is_not_loaded(
    modules: Path, near: str | None, change: dict[str, Any]
) -> None:
    decode_failure(forged(**change), near)
    assert not (modules / "a_package.ran").exists()


def test_a_record_may_name_what_lies_in_the_package_of_its_activity(modules: Path) -> None:
    raw = forged(type="a_shop.errors:Wrong", attrs={}, args=[])
    assert isinstance(decode_failure(raw), ActivityError), "no package was given"
    assert not (modules / "a_shop" / "errors.ran").exists()
    assert type(decode_failure(raw, "a_shop.activities")).__module__ == "a_shop.errors"


def test_looking_up_a_name_runs_no_code_of_its_module(modules: Path) -> None:
    assert isinstance(decode_failure(forged(type="a_shop:Lazy", attrs={}, args=[]), "a_shop"), ActivityError)
    assert (modules / "a_shop" / "__init__.ran").exists()
    assert not (modules / "a_package.ran").exists()


@pytest.mark.parametrize("name", ["KeyboardInterrupt", "SystemExit", "GeneratorExit", "StopIteration", "BaseException"])
def test_a_record_makes_nothing_that_is_no_error(name: str) -> None:
    assert isinstance(decode_failure(forged(type=f"builtins:{name}", attrs={}, args=[])), ActivityError)

"""Exceptions to records and back.

What a workflow catches live it must catch in replay, so the live path goes through the record too. A record holds the
type by name, the message, args, attributes, notes, the cause (or context), the members of a group, the text of the
traceback, and whether the exception can be rebuilt: decided once, by trying it, so that every later reader agrees.

What cannot be rebuilt comes back as `ActivityError`: classes that cannot be imported, a `str()` that would differ, and
everything that is no `Exception` or cannot pass through a future.
Of an argument that cannot be stored the words are kept, and an attribute is left out; a note on the exception says so.
"""

from __future__ import annotations

import hashlib
import sys
import traceback
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from pydantic_core import from_json, to_json

from romancy.codec import encoding_of, is_encoded
from romancy.errors import ActivityError, PayloadError, TerminalError
from romancy.serde.class_lookup import class_path, find_class
from romancy.serde.exception_state import fields_of, rebuild_exception, set_field
from romancy.serde.tagged import Unkept, decode_data, encode_data, from_tagged, to_tagged

__all__ = [
    "FailureInfo",
    "decode_data",
    "decode_failure",
    "describe_failure",
    "encode_data",
    "encode_failure",
    "is_terminal",
]

_MAX_TRACE = 20_000
_MAX_FRAMES = 60
_MAX_DEPTH = 5

# Exceptions to Python, but a future refuses them and a coroutine turns them into a RuntimeError.
_UNRAISABLE = (StopIteration, StopAsyncIteration)

_Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FailureInfo:
    """A recorded failure for people: what to print, and by what to group."""

    type: str
    message: str
    trace: str
    fingerprint: str
    cause: FailureInfo | None = None


def encode_failure(exc: BaseException) -> bytes:
    """The exception as a record. Never raises: what the exception does not give away is left out."""
    try:
        raw = to_json(_Recorder().record(exc, 0), inf_nan_mode="constants")
        from_json(raw)  # the reader has limits that the writer has not: nesting, digits
    except Exception as error:
        return to_json(_minimal_record(exc, error))
    return raw


def decode_failure(raw: bytes, near: str | None = None) -> BaseException:
    """The recorded exception, or an `ActivityError` in its place. Never raises.

    `near` is the module of the activity that failed, where a class once known as `__main__` is likely to be.
    """
    try:
        return _rebuild(from_json(raw), near)
    except Exception as error:
        return ActivityError("unknown", f"the record of the failure cannot be read: {error}")


def describe_failure(raw: bytes) -> FailureInfo:
    """The record in words. Never raises."""
    if is_encoded(raw):
        return FailureInfo("encoded", encoding_of(raw), "", "")
    try:
        return _describe(from_json(raw))
    except Exception as error:
        return FailureInfo("unknown", f"the record of the failure cannot be read: {error}", "", "")


def is_terminal(exc: BaseException) -> bool:
    """Whether trying again is useless: a `TerminalError`, an error raised `from` one, or a group that holds either."""
    seen: set[int] = set()
    links: list[BaseException | None] = [exc]
    while links:
        link = links.pop()
        if link is None or id(link) in seen:
            continue
        if isinstance(link, TerminalError):
            return True
        seen.add(id(link))
        links.append(link.__cause__)
        if isinstance(link, BaseExceptionGroup):
            links += cast(BaseExceptionGroup[BaseException], link).exceptions
    return False


# -- recording --------------------------------------------------------------------------------------------------------


class _Recorder:
    """Records one exception and those it hangs together with; they share the room for traceback text."""

    def __init__(self) -> None:
        self._room = _MAX_TRACE
        self._open: set[int] = set()  # those being recorded: an exception may be its own cause's cause

    def record(self, exc: BaseException, depth: int) -> _Record:
        self._open.add(id(exc))
        record: _Record = {"type": class_path(type(exc)), "message": _message(exc), "trace": self._trace(exc)}
        record["fingerprint"] = _fingerprint(exc)
        lost = _record_state(exc, record)
        if depth < _MAX_DEPTH:
            if _is_group(exc):
                record["group"] = [self.record(member, depth + 1) for member in cast(Any, exc).exceptions]
            self._record_chain(exc, record, depth)
        if lost:
            record["lost"] = lost
        record["rebuild"] = _can_be_rebuilt(exc, record)
        self._open.discard(id(exc))
        return record

    def _trace(self, exc: BaseException) -> str:
        try:
            lines = traceback.format_exception(type(exc), exc, exc.__traceback__, limit=-_MAX_FRAMES, chain=False)
        except Exception as error:  # a user's __str__ or __notes__ may do anything
            lines = [f"<the traceback cannot be formatted: {type(error).__name__}>"]
        text = _storable("".join(lines))
        text = text[-self._room :] if self._room else ""
        self._room -= len(text)
        return text

    def _record_chain(self, exc: BaseException, record: _Record, depth: int) -> None:
        cause, context = exc.__cause__, exc.__context__
        if cause is not None:
            if id(cause) not in self._open:
                record["cause"] = self.record(cause, depth + 1)
        elif exc.__suppress_context__:
            record["suppress"] = True
        elif context is not None and id(context) not in self._open:
            record["context"] = self.record(context, depth + 1)


def _minimal_record(exc: BaseException, error: Exception) -> _Record:
    """The record of an exception that cannot be looked into."""
    reason = f"everything but the type ({type(error).__name__})"
    state: _Record = {"args": None, "attrs": {}, "fields": {}, "lost": [reason], "rebuild": False}
    return {"type": class_path(type(exc)), "message": _message(exc), "trace": "", "fingerprint": "", **state}


def _record_state(exc: BaseException, record: _Record) -> list[str]:
    """Put args, attributes, fields and notes into the record; return what could not be."""
    lost: list[str] = []
    record["args"] = None
    try:
        args: list[Any] = [cast(Any, exc).message] if _is_group(exc) else list(exc.args)
        record["args"] = [_stored_argument(place, value, lost) for place, value in enumerate(args)]
    except Exception as error:
        lost.append(f"args ({_storable(str(error))})")
    attributes = dict(vars(exc))
    notes = attributes.pop("__notes__", None)
    if isinstance(notes, list | tuple):
        record["notes"] = [_storable(str(note)) for note in cast(list[Any], notes)]
    record["attrs"] = _storable_items(attributes, lost)
    record["fields"] = _storable_items(fields_of(exc), lost)
    return lost


def _stored_argument(index: int, value: Any, lost: list[str]) -> Any:
    """The argument, or else its words: what an exception is must not depend on what it was given to hold."""
    try:
        return _stored(value)
    except Exception as error:
        lost.append(_storable(f"args[{index}], but as text ({error})"))
        return to_tagged(Unkept(_words(str, value), _words(repr, value)))


def _words(render: Callable[[object], str], value: Any) -> str:
    try:
        return _storable(render(value))
    except Exception:
        return f"<{class_path(type(value)).replace(':', '.')}>"


def _storable_items(values: dict[str, Any], lost: list[str]) -> dict[str, Any]:
    stored: dict[str, Any] = {}
    for name, value in values.items():
        try:
            stored[_checked_name(name)] = _stored(value)
        except Exception as error:
            lost.append(_storable(f"{name} ({error})"))
    return stored


def _stored(value: Any) -> Any:
    """The value in terms of JSON, after a look whether it can be read: a model may refuse its own data."""
    tagged = to_tagged(value)
    from_tagged(from_json(to_json(tagged, inf_nan_mode="constants")))
    return tagged


def _checked_name(name: str) -> str:
    name.encode()
    return name


def _can_be_rebuilt(exc: BaseException, record: _Record) -> bool:
    cls = type(exc)
    if not isinstance(exc, Exception) or isinstance(exc, _UNRAISABLE):
        return False
    if record["args"] is None or find_class(record["type"]) is not cls:
        return False
    try:
        # Through bytes, as a reader will get it: what the JSON writer changes must show here.
        made = _make(cls, from_json(to_json(record, inf_nan_mode="constants")), None)
        return type(made) is cls and _message(made) == record["message"]
    except Exception:
        return False


def _message(exc: BaseException) -> str:
    try:
        return _storable(str(exc))
    except Exception as error:
        return f"<str() of the exception failed: {type(error).__name__}>"


def _is_group(exc: BaseException) -> bool:
    return BaseExceptionGroup in type(exc).__mro__


def _storable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


# -- fingerprint ------------------------------------------------------------------------------------------------------


def _fingerprint(exc: BaseException) -> str:
    """Type and place, the place without lines and directories: the same after a deploy and on another machine."""
    locations = [frame.f_globals.get("__name__", "") + "." + frame.f_code.co_qualname for frame in _frames(exc)]
    text = f"{class_path(type(exc))}|{locations[-1] if locations else ''}"
    return hashlib.blake2b(_storable(text).encode(), digest_size=8).hexdigest()


def _frames(exc: BaseException) -> list[types.FrameType]:
    """The user's frames, or, if there are none, all."""
    frames: list[types.FrameType] = []
    link = exc.__traceback__
    while link is not None:
        frames.append(link.tb_frame)
        link = link.tb_next
    return [frame for frame in frames if _is_users(frame)] or frames


def _is_users(frame: types.FrameType) -> bool:
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    file = frame.f_code.co_filename
    installed = "site-packages" in file or "dist-packages" in file
    return package != "romancy" and package not in sys.stdlib_module_names - {"__main__"} and not installed


# -- reading ----------------------------------------------------------------------------------------------------------


def _rebuild(record: _Record, near: str | None) -> BaseException:
    exc = _rebuild_same(record, near) or _stand_in(record, near)
    notes = list(record.get("notes", ()))
    if lost := record.get("lost"):
        notes.append("not recorded: " + ", ".join(lost))
    if notes:
        set_field(exc, "__notes__", notes)
    if "cause" in record:
        set_field(exc, "__cause__", _rebuild(record["cause"], near))
    elif "context" in record:
        set_field(exc, "__context__", _rebuild(record["context"], near))
    elif record.get("suppress"):
        set_field(exc, "__suppress_context__", True)
    return exc


def _rebuild_same(record: _Record, near: str | None) -> BaseException | None:
    cls = find_class(record["type"], near) if record["rebuild"] else None
    if cls is None or not issubclass(cls, Exception) or issubclass(cls, _UNRAISABLE):
        return None  # nobody has recorded such a one as one that can be rebuilt
    try:
        return _make(cls, record, near)
    except Exception:  # a class that changed since: a replay must not fail for it
        return None


def _make(cls: type[BaseException], record: _Record, near: str | None) -> BaseException:
    args = tuple(from_tagged(record["args"], near))
    if BaseExceptionGroup in cls.__mro__:
        args = (args[0], [_rebuild(member, near) for member in record["group"]])
    made = rebuild_exception(cls, args, from_tagged(record["attrs"], near), from_tagged(record["fields"], near))
    return cast(BaseException, made)


def _stand_in(record: _Record, near: str | None) -> ActivityError:
    data: dict[str, Any] = {}
    for name, value in {"args": record["args"], **record["attrs"], **record["fields"]}.items():
        try:
            data[name] = from_tagged(value, near)
        except (PayloadError, ValueError, TypeError, KeyError):
            continue  # of a class that is gone
    return ActivityError(_dotted(record["type"]), record["message"], data, record["trace"])


def _dotted(path: str) -> str:
    return path.removeprefix("builtins:").replace(":", ".")


def _describe(record: _Record) -> FailureInfo:
    deeper = record.get("cause") or record.get("context")
    return FailureInfo(
        type=_dotted(record["type"]),
        message=record["message"],
        trace=record["trace"],
        fingerprint=record["fingerprint"],
        cause=None if deeper is None else _describe(deeper),
    )

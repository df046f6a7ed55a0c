"""Encodes exceptions as records, and decodes them.

A workflow must catch the same exception live and in a replay, so a live exception passes through its record too. A record
holds the name of the type, the message, args, attributes, notes, the cause (or context), the members of a group, the text
of the traceback, and whether the exception can be rebuilt. This is tried once, when the record is written, so that every
later reader of the record agrees.

An exception that cannot be rebuilt is decoded as `ActivityError`: its class cannot be imported, its `str()` would differ, it
is not an `Exception`, or it cannot pass through a future. Of an argument that cannot be stored, the text is kept; an
attribute that cannot be stored is left out. In both cases, a note on the exception says so.
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

# A future refuses these exceptions, and a coroutine turns them into a RuntimeError.
_UNRAISABLE = (StopIteration, StopAsyncIteration)

_Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FailureInfo:
    """A recorded failure as text for users, and a fingerprint by which failures are grouped."""

    type: str
    message: str
    trace: str
    fingerprint: str
    cause: FailureInfo | None = None


def encode_failure(exc: BaseException) -> bytes:
    """Encode an exception as a record. Never raises: parts of the exception that cannot be read are left out."""
    try:
        raw = to_json(_Recorder().record(exc, 0), inf_nan_mode="constants")
        from_json(raw)  # the reader has limits that the writer does not have: nesting, digits
    except Exception as error:
        return to_json(_minimal_record(exc, error))
    return raw


def decode_failure(raw: bytes, near: str | None = None) -> BaseException:
    """Decode a record: return the exception, or an `ActivityError` in its place. Never raises.

    `near` is the module of the activity that failed; classes that were recorded in `__main__` are looked up there.
    """
    try:
        return _rebuild(from_json(raw), near)
    except Exception as error:
        return ActivityError("unknown", f"the record of the failure cannot be read: {error}")


def describe_failure(raw: bytes) -> FailureInfo:
    """Describe a record. Never raises."""
    if is_encoded(raw):
        return FailureInfo("encoded", encoding_of(raw), "", "")
    try:
        return _describe(from_json(raw))
    except Exception as error:
        return FailureInfo("unknown", f"the record of the failure cannot be read: {error}", "", "")


def is_terminal(exc: BaseException) -> bool:
    """Whether a retry is useless: a `TerminalError`, an error raised `from` one, or a group that contains either."""
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
    """Records an exception with its causes, contexts and group members, which share a limit of traceback text."""

    def __init__(self) -> None:
        self._room = _MAX_TRACE
        self._open: set[int] = set()  # exceptions that are being recorded: causes may form a cycle

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
        except Exception as error:  # a user's __str__ or __notes__ may raise anything
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
    """Make the record of an exception whose state cannot be read."""
    reason = f"everything but the type ({type(error).__name__})"
    state: _Record = {"args": None, "attrs": {}, "fields": {}, "lost": [reason], "rebuild": False}
    return {"type": class_path(type(exc)), "message": _message(exc), "trace": "", "fingerprint": "", **state}


def _record_state(exc: BaseException, record: _Record) -> list[str]:
    """Put args, attributes, fields and notes into the record; return which of them could not be recorded."""
    lost: list[str] = []
    record["args"] = None
    try:
        args: list[Any] = [cast(Any, exc).message] if _is_group(exc) else list(exc.args)
        record["args"] = [_stored_argument(index, value, lost) for index, value in enumerate(args)]
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
    """Return the stored form of an argument, or of its text: the type to catch must not depend on the arguments."""
    try:
        return _stored(value)
    except Exception as error:
        lost.append(_storable(f"args[{index}], kept as text ({error})"))
        return to_tagged(Unkept(_render(str, value), _render(repr, value)))


def _render(render: Callable[[object], str], value: Any) -> str:
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
    """Return the value in terms of JSON. It is read back here too, since a model may refuse its own data."""
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
        # Encode and decode the record, as for a later reader: changes that the JSON writer makes must be noticed here.
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
    """Hash the type and the function that raised, without lines and directories, which differ between deployments."""
    locations = [frame.f_globals.get("__name__", "") + "." + frame.f_code.co_qualname for frame in _frames(exc)]
    text = f"{class_path(type(exc))}|{locations[-1] if locations else ''}"
    return hashlib.blake2b(_storable(text).encode(), digest_size=8).hexdigest()


def _frames(exc: BaseException) -> list[types.FrameType]:
    """Return the frames of user code, or all frames if there are none."""
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
        return None  # an exception of such a class is never recorded as one that can be rebuilt
    try:
        return _make(cls, record, near)
    except Exception:  # the class has changed since: a replay must not fail because of that
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
            continue  # its class is gone
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

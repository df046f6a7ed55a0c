"""Strict JSON for untrusted input: a text is either decoded or refused with an error that says why.

Python's own decoder accepts input that JSON does not allow (NaN, duplicate keys, numbers that exceed every float), and
recurses until its stack is exhausted. A value that is read here can be written again, and means the same to every decoder.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, NoReturn

MAX_DEPTH = 100
"""The maximum nesting of arrays and objects; pydantic reads at most 200 levels."""

MAX_CONTAINERS = 250_000
"""The maximum number of arrays and objects in a text. Python decodes a text in one call that other threads cannot interrupt:
millions of them would block the process for seconds."""

# An unterminated string matches up to the end of the text. Otherwise the search would restart at every quote in it.
_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKETS = b"[]{}"
_REST = bytes(set(range(256)) - set(_BRACKETS))
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_BOM = b"\xef\xbb\xbf"


def read(raw: bytes) -> Any:
    """Return the value of a JSON text. Raises ValueError with the reason."""
    if raw.startswith(_BOM):
        raise ValueError("it begins with a byte order mark, which JSON does not have")
    _check_nesting(raw)
    try:
        return _DECODER.decode(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from error


def write(value: Any) -> bytes:
    """Return a value of `read` as compact UTF-8. Raises ValueError with the reason."""
    try:
        return _ENCODER.encode(value).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError("it contains a lone surrogate, which cannot be encoded") from error
    except ValueError as error:
        raise ValueError("it contains a number that is too large") from error  # 1e999 was read as infinity


def _check_nesting(raw: bytes) -> None:
    """Raise ValueError if there are too many arrays and objects, or they are nested too deeply, without recursion."""
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return
    brackets = _STRINGS.sub(b"", raw).translate(None, _REST)
    if brackets.count(b"[") + brackets.count(b"{") > MAX_CONTAINERS:
        raise ValueError(f"it contains more than {MAX_CONTAINERS} arrays and objects")
    if max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > MAX_DEPTH:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")


def _unique(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {twice[:100]!a} appears twice in one object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not valid in JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)

"""JSON from strangers: read strictly, or refused with a sentence.

Python's own reader takes what JSON does not allow (NaN, a key twice, numbers beyond every float) and follows nesting
until its stack ends. What passes here can be written again and means the same to every other reader.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, NoReturn

MAX_DEPTH = 100
"""How deep arrays and objects may be nested; pydantic reads no deeper than 200."""

MAX_CONTAINERS = 250_000
"""How many arrays and objects one text may hold. Python reads it in one go, which no thread interrupts: millions of them
would hold up everything else in the process for seconds."""

# One that does not end goes to the end of the text: were it passed over, the search would begin anew at each quote within.
_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKETS = b"[]{}"
_REST = bytes(set(range(256)) - set(_BRACKETS))
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_BOM = b"\xef\xbb\xbf"


def read(raw: bytes) -> Any:
    """The value of a JSON text. Raises ValueError with a sentence."""
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
    """A value that `read` gave, as compact UTF-8. Raises ValueError with a sentence."""
    try:
        return _ENCODER.encode(value).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError("it contains a lone surrogate, which cannot be encoded") from error
    except ValueError as error:
        raise ValueError("it contains a number that is too large") from error  # 1e999 was read as infinity


def _check_nesting(raw: bytes) -> None:
    """Raise ValueError if arrays and objects are too many or too deep, which is found without following them."""
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

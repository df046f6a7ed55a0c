"""The fingerprint of a workflow's code.

An instance that does not fit the code is blocked for that fingerprint, and tried again by code with any other. A fix may be
in a helper, and not in the workflow's own module, so the fingerprint covers every loaded module of the same top-level
package.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

_SIZE_LIMIT = 20_000_000


def source_of(fn: Callable[..., Any]) -> str:
    """Return the source of a function, or an empty text if it is not available."""
    try:
        return inspect.getsource(fn)
    except (OSError, TypeError):
        return ""


def fingerprint(fn: Callable[..., Any]) -> str:
    """Return a short hash that changes with the code of the function or of a module in its package."""
    digest = blake2b(source_of(fn).encode(), digest_size=8)
    digest.update(_code_bytes(fn))
    digest.update(_package_digest(fn.__module__.partition(".")[0]))
    return digest.hexdigest()


def _code_bytes(fn: Callable[..., Any]) -> bytes:
    code = getattr(fn, "__code__", None)
    return code.co_code + repr(code.co_names).encode() if code is not None else b""


@functools.lru_cache(maxsize=64)
def _package_digest(package: str) -> bytes:
    digest = blake2b(digest_size=8)
    left = _SIZE_LIMIT
    for path in sorted(_files(package)):
        try:
            content = Path(path).read_bytes()
        except OSError:
            continue
        left -= len(content)
        if left < 0:
            break
        digest.update(content)
    return digest.digest()


def _files(package: str) -> list[str]:
    found: list[str] = []
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if path and path.endswith(".py") and name.partition(".")[0] == package:
            found.append(path)
    return found

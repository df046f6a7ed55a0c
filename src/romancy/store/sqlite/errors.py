"""Translates the driver's errors to `StoreError`."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from romancy.errors import StoreError

BAD_DATA = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    OverflowError,
    ValueError,
    TypeError,
)
"""Errors of the driver for data that it cannot store; `ValueError` covers text that is not Unicode (lone surrogates)."""

# PROTOCOL: several processes opened or closed the log at the same moment.
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})

_MESSAGES: dict[int, tuple[str, bool]] = {
    sqlite3.SQLITE_FULL: (
        "is full: there is no space left on its disk. Free some space; the call can then be repeated",
        True,
    ),
    sqlite3.SQLITE_BUSY: ("has been locked by another process for too long. Find the process that holds the lock", True),
    sqlite3.SQLITE_LOCKED: (
        "has been locked by another connection for too long. Find the connection that holds the lock",
        True,
    ),
    sqlite3.SQLITE_PROTOCOL: ("is opened and closed by too many processes at once. Try again", True),
    sqlite3.SQLITE_IOERR: ("could not be read or written by the operating system. Check the disk", True),
    sqlite3.SQLITE_CORRUPT: ("is damaged. Restore it from a backup, or recover it with `sqlite3 FILE .recover`", False),
    sqlite3.SQLITE_NOTADB: ("is not a SQLite database. Give another path, or move the file away", False),
    sqlite3.SQLITE_READONLY: ("cannot be written. Allow this process to write the file and its folder", False),
    sqlite3.SQLITE_PERM: ("cannot be opened. Allow this process to read and write the file and its folder", False),
    sqlite3.SQLITE_AUTH: ("cannot be opened. Allow this process to read and write the file and its folder", False),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", False),
    sqlite3.SQLITE_NOMEM: ("needs more memory than is available", True),
    sqlite3.SQLITE_TOOBIG: ("was given a value that is larger than SQLite can store", False),
}


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection blocks this one: the same call will work later."""
    return _primary_code(error) in _BUSY


def translate(error: BaseException, path: str) -> StoreError:
    """Return the `StoreError` for an error of the driver, with the error as its cause."""
    message, retryable = _MESSAGES.get(_primary_code(error), ("refused", False))
    if _primary_code(error) == sqlite3.SQLITE_CANTOPEN:
        message = _explain_cannot_open(path)
    return _store_error(f"The database {path} {message}. ({error})", error, retryable=retryable)


def not_open(path: str) -> StoreError:
    """Return the error of a store that is closed, not opened yet, or was killed by a crash point."""
    return StoreError(f"The store of the database {path} is not open. Open it first, and do not use it after its close.")


def _store_error(text: str, cause: BaseException, *, retryable: bool = False) -> StoreError:
    error = StoreError(text)
    error.retryable = retryable
    error.__cause__ = cause
    return error


def _primary_code(error: BaseException) -> int:
    # The low byte of SQLite's extended codes is the primary one.
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def _explain_cannot_open(path: str) -> str:
    file = Path(path)
    if file.is_dir():
        return "is a folder. Give the path of a file"
    if not file.parent.is_dir():
        return f"cannot be opened: there is no folder {file.parent}. Create the folder first"
    return "cannot be opened. Allow this process to read and write the file and its folder"

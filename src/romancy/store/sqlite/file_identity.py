"""Checks that the open database file is still the one at its path.

A file that is deleted, moved or replaced stays open and accepts writes: they are lost with it, or no other process sees
them.
"""

from __future__ import annotations

import os

from romancy.clock import monotonic
from romancy.errors import StoreError

_CHECK_INTERVAL = 0.01


class FileIdentity:
    """The identity of the database file and of its log when the database was opened."""

    def __init__(self, path: str) -> None:
        self._label = path
        paths = path, f"{os.path.realpath(path)}-wal"  # the log lies beside the file that a link leads to
        self._known = [(item, found) for item in paths if (found := _read_file_id(item)) is not None]
        self._lost = False
        self._checked_at = monotonic()

    def require_throttled(self) -> None:
        """Like `require`, but at most a hundred times a second: a check may cost as much as a small write."""
        now = monotonic()
        if now - self._checked_at >= _CHECK_INTERVAL:
            self._checked_at = now
            self.require()

    def require(self) -> None:
        """Raise `StoreError` if another file is at one of the paths now, or none."""
        for path, known in self._known:
            found = _read_file_id(path)
            if found != known:
                self._lost = True
                raise self._moved_error(path, found is None)
        self._lost = False

    def require_if_lost(self) -> None:
        """Check again before a write, but only if the last check failed."""
        if self._lost:
            self.require()

    def _moved_error(self, path: str, gone: bool) -> StoreError:
        what = "was deleted or moved" if gone else "was replaced by another"
        error = StoreError(
            f"The file {path} of the database {self._label} {what} while it is open here. What was written since may be "
            "lost, and nothing more is acknowledged: put the file back, or restart the process."
        )
        error.retryable = True
        return error


def _read_file_id(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino

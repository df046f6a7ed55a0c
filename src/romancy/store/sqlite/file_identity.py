"""Whether the file that is open is still the one at its path.

A file that is deleted, moved or replaced stays open, and takes writes: they are lost with it, or nobody else sees them.
"""

from __future__ import annotations

import os

from romancy.clock import monotonic
from romancy.errors import StoreError

_CHECK_INTERVAL = 0.01


class FileIdentity:
    """What a path led to when the database was opened: the file, and the log beside it."""

    def __init__(self, path: str) -> None:
        self._label = path
        places = path, f"{os.path.realpath(path)}-wal"  # SQLite goes by the file that a link leads to
        self._known = [(place, found) for place in places if (found := _read_file_id(place)) is not None]
        self._lost = False
        self._checked_at = monotonic()

    def require_throttled(self) -> None:
        """As `require`, at most a hundred times in a second: a look may cost as much as a small write."""
        now = monotonic()
        if now - self._checked_at >= _CHECK_INTERVAL:
            self._checked_at = now
            self.require()

    def require(self) -> None:
        """Raise `StoreError` if something else is there now, or nothing."""
        for place, known in self._known:
            found = _read_file_id(place)
            if found != known:
                self._lost = True
                raise self._moved_error(place, found is None)
        self._lost = False

    def require_if_lost(self) -> None:
        """Before something is written: only if something else was there at the last look."""
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

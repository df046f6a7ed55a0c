"""Log of one client: an append-only file with a line for each request and each answer.

asked     the request is about to be sent
done      it was acknowledged
unknown   there was no answer, or one that leaves the outcome open
refused   the answer says that nothing was done
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any


class CallKind(StrEnum):
    """The kinds of requests."""

    START = "start"
    EVENT = "event"
    MESSAGE = "message"
    CANCEL = "cancel"


class State(StrEnum):
    """What the client knows about a request."""

    ASKED = "asked"
    DONE = "done"
    UNKNOWN = "unknown"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log."""

    kind: CallKind
    id: str
    """The id of an instance or event; of a message its data, because it has no id of its own."""
    state: State
    at: float
    """Seconds on a clock that all clients share."""
    about: str = ""
    """The channel of a message, the type of an event, or the intended end of an order."""
    why: str = ""
    """The text of an answer that was not an acknowledgement."""


class ClientLog:
    """The log of one client."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def write(self, kind: CallKind, id: str, state: State, about: str = "", why: str = "") -> None:
        """Append a line; it is in the file when this returns."""
        line = Line(kind, id, state, time.monotonic(), about, why)
        self._file.write(json.dumps(asdict(line)) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read(folder: Path) -> list[Line]:
    """The lines of all clients, ordered by time."""
    texts = (line for path in sorted(folder.glob("*.calls")) for line in path.read_text("utf-8").splitlines())
    return sorted((_parsed(text) for text in texts), key=lambda line: line.at)


def _parsed(text: str) -> Line:
    parts: dict[str, Any] = json.loads(text)
    kind, state = CallKind(parts.pop("kind")), State(parts.pop("state"))
    return Line(kind=kind, state=state, **parts)


@dataclass(slots=True)
class CallRecord:
    """What a client knows about one call, over all its requests."""

    kind: CallKind
    id: str
    about: str
    asked_at: float
    """When the first request was sent."""
    done_at: float | None = None
    """When it was first acknowledged."""
    unknown: bool = False
    """Whether the outcome of any request is unknown."""
    refused: str | None = None

    @property
    def done(self) -> bool:
        """Whether it was acknowledged."""
        return self.done_at is not None

    @property
    def cannot_be(self) -> bool:
        """Whether every request was refused."""
        return self.refused is not None and not self.done and not self.unknown


def call_records(lines: Iterable[Line]) -> dict[tuple[CallKind, str], CallRecord]:
    """The lines grouped by call."""
    found: dict[tuple[CallKind, str], CallRecord] = {}
    open_requests: dict[tuple[CallKind, str], int] = {}
    for line in lines:
        key = (line.kind, line.id)
        record = found.setdefault(key, CallRecord(line.kind, line.id, line.about, line.at))
        open_requests[key] = open_requests.get(key, 0) + (1 if line.state is State.ASKED else -1)
        if line.state is State.DONE and record.done_at is None:
            record.done_at = line.at
        elif line.state is State.UNKNOWN:
            record.unknown = True
        elif line.state is State.REFUSED:
            record.refused = line.why
    for key, count in open_requests.items():
        found[key].unknown |= count > 0  # the client ended before the answer
    return found

"""What a client was told: a file that only grows, a line for each thing it asked for and each answer.

asked     it is about to be sent
done      it was acknowledged
unknown   no answer, or one that says nothing: it may have been done, or may yet be
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
    """What a client can ask for."""

    START = "start"
    EVENT = "event"
    MESSAGE = "message"
    CANCEL = "cancel"


class State(StrEnum):
    """What is known of it."""

    ASKED = "asked"
    DONE = "done"
    UNKNOWN = "unknown"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Line:
    """One line."""

    kind: CallKind
    id: str
    """Of an instance, an event, or a message: the last has none but what is in it."""
    state: State
    at: float
    """Seconds of a clock that all clients share."""
    about: str = ""
    """What it is for: the channel of a message, the type of an event, the fate of an order."""
    why: str = ""
    """What the answer said, where it was none."""


class Ledger:
    """The book of one client."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def write(self, kind: CallKind, id: str, state: State, about: str = "", why: str = "") -> None:
        """Add a line; it is in the file when this returns."""
        line = Line(kind, id, state, time.monotonic(), about, why)
        self._file.write(json.dumps(asdict(line)) + "\n")
        self._file.flush()

    def close(self) -> None:
        """No more lines."""
        self._file.close()


def read(folder: Path) -> list[Line]:
    """The lines of all clients, in the order of their times."""
    texts = (line for path in sorted(folder.glob("*.ledger")) for line in path.read_text("utf-8").splitlines())
    return sorted((_parsed(text) for text in texts), key=lambda line: line.at)


def _parsed(text: str) -> Line:
    parts: dict[str, Any] = json.loads(text)
    kind, state = CallKind(parts.pop("kind")), State(parts.pop("state"))
    return Line(kind=kind, state=state, **parts)


@dataclass(slots=True)
class Account:
    """All that a client was told of one thing."""

    kind: CallKind
    id: str
    about: str
    asked_at: float
    """When it was first sent."""
    done_at: float | None = None
    """When it was first acknowledged."""
    unknown: bool = False
    """Of some request nothing is known."""
    refused: str | None = None

    @property
    def done(self) -> bool:
        """It was acknowledged."""
        return self.done_at is not None

    @property
    def cannot_be(self) -> bool:
        """Every request was refused."""
        return self.refused is not None and not self.done and not self.unknown


def accounts(lines: Iterable[Line]) -> dict[tuple[CallKind, str], Account]:
    """The lines, brought together for each thing."""
    found: dict[tuple[CallKind, str], Account] = {}
    open_requests: dict[tuple[CallKind, str], int] = {}
    for line in lines:
        key = (line.kind, line.id)
        account = found.setdefault(key, Account(line.kind, line.id, line.about, line.at))
        open_requests[key] = open_requests.get(key, 0) + (1 if line.state is State.ASKED else -1)
        if line.state is State.DONE and account.done_at is None:
            account.done_at = line.at
        elif line.state is State.UNKNOWN:
            account.unknown = True
        elif line.state is State.REFUSED:
            account.refused = line.why
    for key, count in open_requests.items():
        found[key].unknown |= count > 0  # the client has not lived to hear of it
    return found

"""What the log says of failures: which instance, which activity, which attempt, and the user's line that raised.

A codec may hide what payloads say, and errors often repeat it: with a codec, the log names the type and the line only.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

from romancy.clock import MICROS
from romancy.errors import RetryExhaustedError
from romancy.serde.failure import FailureInfo, describe_failure

if TYPE_CHECKING:
    from romancy.model.history import Attempt as AttemptRow
    from romancy.worker.attempt import Attempt

_log = logging.getLogger("romancy.worker")
_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+), in (?P<name>.+)$', re.MULTILINE)
_OURS = str(Path(__file__).parents[1])
_LONGEST = 300
"""Characters of a message in the log."""


def attempt_failed(attempt: Attempt, row: AttemptRow) -> None:
    """An attempt failed, and another follows."""
    if _log.isEnabledFor(logging.INFO) and row.error is not None and row.next_at is not None and row.ended_at is not None:
        wait = (row.next_at - row.ended_at) / MICROS
        told = _told(attempt, row.error)
        _log.info("attempt %d of %s failed, the next begins in %.3g s: %s", row.attempt, _about(attempt), wait, told)


def activity_failed(attempt: Attempt, error: bytes) -> None:
    """An activity has used up its attempts, or trying again would be useless."""
    _log.warning("%s failed for good with attempt %d: %s", _about(attempt), attempt.number, _told(attempt, error))


def instance_failed(instance_id: str, workflow: str, error: bytes | None, *, hidden: bool) -> None:
    """An instance has failed, durably."""
    why = "" if error is None else f": {_words(describe_failure(error), hidden=hidden)}"
    _log.warning("%r of %s failed%s", instance_id, workflow, why)


def _about(attempt: Attempt) -> str:
    host, work = attempt.host, attempt.work
    what = work.op if work.undo is None else f"{work.name}, which undoes {work.issue.op},"
    return f"{what} in {host.instance_id!r} of {host.workflow.label}"


def _told(attempt: Attempt, error: bytes) -> str:
    failure = describe_failure(error)
    if failure.cause is not None and failure.type.endswith(RetryExhaustedError.__name__):
        failure = failure.cause  # that the attempts are used up is said already
    return _words(failure, hidden=attempt.host.worker.hides_payloads)


def _words(failure: FailureInfo, *, hidden: bool) -> str:
    name = failure.type.rpartition(".")[2]
    what = name if hidden or not failure.message else f"{name}: {_printable(failure.message)}"
    where = _where(failure)
    return f"{what} ({where})" if where else what


def _where(failure: FailureInfo | None) -> str:
    """The last line of the user's own code that the failure, or what caused it, came through."""
    while failure is not None:
        frames = [frame for frame in _FRAME.finditer(failure.trace) if not frame["file"].startswith(_OURS)]
        if frames:
            last = frames[-1]
            return f"{last['file']}:{last['line']} in {last['name']}"
        failure = failure.cause
    return ""


def _printable(text: str) -> str:
    """One line that no terminal takes for a command."""
    cut = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in cut)

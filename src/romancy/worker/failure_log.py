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
    from romancy.model.history import AttemptRow
    from romancy.worker.attempt import Attempt

_log = logging.getLogger("romancy.worker")
_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+), in (?P<name>.+)$', re.MULTILINE)
_PACKAGE_DIR = str(Path(__file__).parents[1])
_LONGEST = 300
"""Characters of a message in the log."""


def log_attempt_failed(attempt: Attempt, row: AttemptRow) -> None:
    """An attempt failed, and another follows."""
    if _log.isEnabledFor(logging.INFO) and row.error is not None and row.next_at is not None and row.ended_at is not None:
        wait = (row.next_at - row.ended_at) / MICROS
        text = _describe_error(attempt, row.error)
        _log.info(
            "attempt %d of %s failed, the next begins in %.3g s: %s", row.attempt, _describe_attempt(attempt), wait, text
        )


def log_activity_failed(attempt: Attempt, error: bytes) -> None:
    """An activity has used up its attempts, or trying again would be useless."""
    _log.warning(
        "%s failed for good with attempt %d: %s", _describe_attempt(attempt), attempt.number, _describe_error(attempt, error)
    )


def log_instance_failed(instance_id: str, workflow: str, error: bytes | None, *, hidden: bool) -> None:
    """An instance has failed, durably."""
    why = "" if error is None else f": {_failure_text(describe_failure(error), hidden=hidden)}"
    _log.warning("%r of %s failed%s", instance_id, workflow, why)


def _describe_attempt(attempt: Attempt) -> str:
    runner, work = attempt.runner, attempt.work
    what = work.op if work.pending_compensation is None else f"{work.name}, which undoes {work.issue.op},"
    return f"{what} in {runner.instance_id!r} of {runner.workflow.label}"


def _describe_error(attempt: Attempt, error: bytes) -> str:
    failure = describe_failure(error)
    if failure.cause is not None and failure.type.endswith(RetryExhaustedError.__name__):
        failure = failure.cause  # that the attempts are used up is said already
    return _failure_text(failure, hidden=attempt.runner.worker.hides_payloads)


def _failure_text(failure: FailureInfo, *, hidden: bool) -> str:
    name = failure.type.rpartition(".")[2]
    what = name if hidden or not failure.message else f"{name}: {_printable(failure.message)}"
    where = _user_location(failure)
    return f"{what} ({where})" if where else what


def _user_location(failure: FailureInfo | None) -> str:
    """The last line of the user's own code that the failure, or what caused it, came through."""
    while failure is not None:
        frames = [frame for frame in _FRAME.finditer(failure.trace) if not frame["file"].startswith(_PACKAGE_DIR)]
        if frames:
            last = frames[-1]
            return f"{last['file']}:{last['line']} in {last['name']}"
        failure = failure.cause
    return ""


def _printable(text: str) -> str:
    """One line that no terminal takes for a command."""
    cut = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in cut)

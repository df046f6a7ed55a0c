"""Logs failures: which instance, which activity, which attempt, and the line of user code that raised.

With a codec, only the type and the line are logged, not the message: error messages often contain parts of payloads, which
the codec may encrypt.
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
"""Characters of an error message that are logged."""


def log_attempt_failed(attempt: Attempt, row: AttemptRow) -> None:
    """Log that an attempt failed and will be retried."""
    if _log.isEnabledFor(logging.INFO) and row.error is not None and row.next_at is not None and row.ended_at is not None:
        wait = (row.next_at - row.ended_at) / MICROS
        text = _describe_error(attempt, row.error)
        _log.info(
            "attempt %d of %s failed, the next one starts in %.3g s: %s", row.attempt, _describe_attempt(attempt), wait, text
        )


def log_activity_failed(attempt: Attempt, error: bytes) -> None:
    """Log that an activity failed for good: its attempts are used up, or the error is not retryable."""
    _log.warning(
        "%s failed permanently in attempt %d: %s",
        _describe_attempt(attempt),
        attempt.number,
        _describe_error(attempt, error),
    )


def log_instance_failed(instance_id: str, workflow: str, error: bytes | None, *, hidden: bool) -> None:
    """Log that an instance has failed."""
    why = "" if error is None else f": {_failure_text(describe_failure(error), hidden=hidden)}"
    _log.warning("instance %r of %s failed%s", instance_id, workflow, why)


def _describe_attempt(attempt: Attempt) -> str:
    runner, work = attempt.runner, attempt.work
    what = work.op if work.pending_compensation is None else f"{work.name}, which compensates {work.issue.op},"
    return f"{what} in {runner.instance_id!r} of {runner.workflow.label}"


def _describe_error(attempt: Attempt, error: bytes) -> str:
    failure = describe_failure(error)
    if failure.cause is not None and failure.type.endswith(RetryExhaustedError.__name__):
        failure = failure.cause  # the log line says already that the attempts are used up
    return _failure_text(failure, hidden=attempt.runner.worker.hides_payloads)


def _failure_text(failure: FailureInfo, *, hidden: bool) -> str:
    name = failure.type.rpartition(".")[2]
    what = name if hidden or not failure.message else f"{name}: {_printable(failure.message)}"
    where = _user_location(failure)
    return f"{what} ({where})" if where else what


def _user_location(failure: FailureInfo | None) -> str:
    """The innermost frame of user code in the trace of the failure, or else of its cause."""
    while failure is not None:
        frames = [frame for frame in _FRAME.finditer(failure.trace) if not frame["file"].startswith(_PACKAGE_DIR)]
        if frames:
            last = frames[-1]
            return f"{last['file']}:{last['line']} in {last['name']}"
        failure = failure.cause
    return ""


def _printable(text: str) -> str:
    """The text on one line, with control characters escaped: a terminal might interpret them."""
    cut = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in cut)

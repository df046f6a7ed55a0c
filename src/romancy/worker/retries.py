"""The earlier attempts of an instance's operations, and the back-offs before the next ones.

Numbering continues over crashes: an attempt that was cut off with its worker keeps its number and its row, but it is not a
failure of the activity, so the retry policy does not count it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from romancy.core.retry import is_retryable, next_attempt_at
from romancy.errors import LeaseLostError, PayloadError, RetryExhaustedError, TerminalError
from romancy.model.history import AttemptRow
from romancy.model.retry import RetryPolicy
from romancy.serde.failure import describe_failure, encode_failure, is_terminal
from romancy.worker.attempt import Attempt, WorkItem


@dataclass(slots=True)
class Backoff:
    """An operation between two attempts."""

    work: WorkItem
    next_at: int
    thread: asyncio.Future[Any] | None = None
    """The thread of the last attempt, if it is still running."""


class Retries:
    """The earlier attempts of one instance's operations."""

    def __init__(self) -> None:
        self.ended_attempts: dict[str, list[AttemptRow]] = {}
        """The attempts that have ended, by operation; usually empty."""
        self.waiting: dict[str, Backoff] = {}

    def restore(self, rows: Iterable[AttemptRow], now: int) -> list[AttemptRow]:
        """Take over the attempts of an earlier owner. Return the rows to write: open attempts, now marked as cut off."""
        cut: list[AttemptRow] = []
        for row in rows:
            if row.open:
                lost = LeaseLostError(f"The worker {row.worker} was lost during this attempt.")
                row = replace(row, open=False, ended_at=now, error=encode_failure(lost))
                cut.append(row)
            self.ended_attempts.setdefault(row.op, []).append(row)
        return cut

    def number(self, op: str) -> int:
        """The number of the next attempt."""
        before = self.ended_attempts.get(op)
        return before[-1].attempt + 1 if before else 1

    def details(self, op: str) -> bytes | None:
        """The details of the last heartbeat of an earlier attempt."""
        return next((row.details for row in reversed(self.ended_attempts.get(op, ())) if row.details is not None), None)

    def due_at(self, op: str) -> int | None:
        """When the next attempt may start, if an earlier one failed."""
        failed = [row.next_at for row in self.ended_attempts.get(op, ()) if row.next_at is not None]
        return failed[-1] if failed else None

    def failed_count(self, op: str) -> int:
        """How many attempts have failed."""
        return sum(row.next_at is not None for row in self.ended_attempts.get(op, ()))

    def fail(self, attempt: Attempt, error: BaseException, policy: RetryPolicy, key: str, now: int) -> AttemptRow | None:
        """Record a failed attempt. Return the row to write if a retry follows, None if the policy allows none."""
        op = attempt.work.op
        if not is_retryable(policy, _as_exception(error), terminal=is_terminal(error)):
            return None
        before = self.ended_attempts.setdefault(op, [])
        first_at = before[0].started_at if before else attempt.started_at
        next_at = next_attempt_at(policy, attempt=self.failed_count(op) + 1, first_at=first_at, now=now, key=key)
        if next_at is None:
            return None
        row = attempt.to_row(open=False, ended_at=now, next_at=next_at, error=encode_failure(error))
        before.append(row)
        thread = attempt.thread if attempt.thread is not None and not attempt.thread.done() else None
        self.waiting[op] = Backoff(attempt.work, next_at, thread)
        return row

    def final_error(self, op: str, error: BaseException, policy: RetryPolicy) -> BaseException:
        """The error that the workflow catches: the error itself if it is not retryable, otherwise a RetryExhaustedError."""
        if isinstance(error, TerminalError | PayloadError):
            return error
        if is_terminal(error):
            return _with_cause(TerminalError(describe_failure(encode_failure(error)).message), error)
        if not is_retryable(policy, _as_exception(error), terminal=False):
            return error
        tries = self.failed_count(op) + 1
        text = f"{op} failed {tries} time{'s' * (tries > 1)}; the last error: {_error_text(error)}"
        return _with_cause(RetryExhaustedError(text, tries), error)

    def take_due(self, now: int) -> list[Backoff]:
        """Remove and return the back-offs that are over."""
        due = [backoff for backoff in self.waiting.values() if backoff.next_at <= now]
        for backoff in due:
            del self.waiting[backoff.work.op]
        return due

    def has_due_by(self, when: int) -> bool:
        """A back-off ends by that time."""
        return any(backoff.next_at <= when for backoff in self.waiting.values())

    def retrying_since(self) -> int | None:
        """When the first attempt of an operation that is being retried started."""
        return min([self.ended_attempts[op][0].started_at for op in self.waiting]) if self.waiting else None


def _as_exception(error: BaseException) -> BaseException:
    """An activity that raises CancelledError or SystemExit itself counts as failed, like with any exception."""
    return error if isinstance(error, Exception) else RuntimeError(repr(error))


def _error_text(error: BaseException) -> str:
    """The `repr` of an error, or the name of its type if that raises."""
    try:
        return repr(error)
    except Exception:
        return type(error).__qualname__


def _with_cause(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error

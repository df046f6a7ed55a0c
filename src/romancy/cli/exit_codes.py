"""The exit codes, and the exit code of each error."""

from __future__ import annotations

from enum import IntEnum

from romancy.admin.remote import AccessError
from romancy.errors import (
    ChannelModeConflictError,
    ConfigurationError,
    InstanceConflictError,
    InvalidWorkflowStateError,
    PayloadError,
    RomancyError,
    StoreError,
    WorkflowNotFoundError,
)


class Exit(IntEnum):
    """The exit code of a command."""

    OK = 0
    FAILED = 1
    """The command failed, or a part of it did."""
    USAGE = 2
    ACCESS = 3
    NOT_FOUND = 4
    WRONG_STATE = 5
    UNREACHABLE = 6
    """The database or the app does not respond, or a time limit was reached."""
    INTERRUPTED = 130


class UsageError(RomancyError):
    """The arguments of a command are missing or not valid."""


_CODES: tuple[tuple[type[Exception], Exit], ...] = (
    (UsageError, Exit.USAGE),
    (ConfigurationError, Exit.USAGE),
    (PayloadError, Exit.USAGE),
    (AccessError, Exit.ACCESS),
    (WorkflowNotFoundError, Exit.NOT_FOUND),
    (InvalidWorkflowStateError, Exit.WRONG_STATE),
    (InstanceConflictError, Exit.WRONG_STATE),
    (ChannelModeConflictError, Exit.WRONG_STATE),
    (StoreError, Exit.UNREACHABLE),
    (TimeoutError, Exit.UNREACHABLE),
)
_BY_NAME = {kind.__name__: code for kind, code in _CODES} | {
    "RefusedDataError": Exit.USAGE,
    "WorkflowNotCancellableError": Exit.WRONG_STATE,
}


def code_of(error: Exception) -> Exit:
    """Return the exit code of a command that raised this error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.FAILED)


def code_of_name(error_type: str | None) -> Exit:
    """Return the exit code for the name of an error."""
    return _BY_NAME.get((error_type or "").rpartition(".")[2], Exit.FAILED)

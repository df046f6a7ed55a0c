"""Exit codes, and which error ends with which."""

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
    """How a command ends."""

    OK = 0
    FAILED = 1
    """It failed, or a part of it did."""
    USAGE = 2
    ACCESS = 3
    NOT_FOUND = 4
    WRONG_STATE = 5
    UNREACHABLE = 6
    """What was asked does not answer, or time is over."""
    INTERRUPTED = 130


class UsageError(RomancyError):
    """The command was not given what it needs."""


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
    """How a command ends that raised this."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.FAILED)


def code_of_name(error_type: str | None) -> Exit:
    """The same, by the name of the error."""
    return _BY_NAME.get((error_type or "").rpartition(".")[2], Exit.FAILED)

"""Classifies the driver's errors, and translates them to `StoreError`."""

from __future__ import annotations

import asyncio

import asyncpg

from romancy.errors import StoreError
from romancy.store.sql.server import ErrorClass

_CONFLICT = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
    asyncpg.QueryCanceledError,  # an operator cancelled it
)
_UNAVAILABLE = (
    OSError,
    EOFError,
    asyncio.TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.IdleSessionTimeoutError,
    asyncpg.TransactionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.PostgresIOError,
    asyncpg.TargetServerAttributeNotMatched,
    asyncpg.InternalClientError,  # a connection broke at a moment when the driver did not expect it
)
_INVALID_DATA = (
    asyncpg.DataError,
    asyncpg.PostgresSyntaxError,
    asyncpg.exceptions.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.ProgramLimitExceededError,
    OverflowError,
    ValueError,
    TypeError,
)

DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""Errors that only the driver raises."""

_MESSAGES: tuple[tuple[type[BaseException], str], ...] = (
    (asyncpg.InvalidPasswordError, "refuses the user or the password. Check both in the address"),
    (asyncpg.InvalidAuthorizationSpecificationError, "refuses the user or the password. Check both in the address"),
    (asyncpg.InvalidCatalogNameError, "does not exist on its server. Create it first (createdb)"),
    (
        asyncpg.InsufficientPrivilegeError,
        "does not grant its user a required privilege. Grant the user USAGE and CREATE on the schema, and SELECT, INSERT, "
        "UPDATE and DELETE on the tables",
    ),
    (asyncpg.UndefinedTableError, "lacks a table. Migrate it: `romancy migrate up`, or auto_migrate=True"),
    (asyncpg.TooManyConnectionsError, "has no connection left. Raise max_connections, or lower pool_size"),
    (asyncpg.DiskFullError, "is full: there is no space left on its disk. Free some space; the call can then be repeated"),
    (asyncpg.ReadOnlySQLTransactionError, "cannot be written: it is a standby, or read-only"),
    (asyncpg.TargetServerAttributeNotMatched, "has no server that matches target_session_attrs at the moment"),
)


def classify(error: BaseException) -> ErrorClass:
    """Return the class of an error."""
    if isinstance(error, _CONFLICT):
        return ErrorClass.CONFLICT
    if _is_refused_by_pooler(error):
        return ErrorClass.FATAL
    if isinstance(error, asyncpg.InterfaceError) and not isinstance(error, ValueError):
        return ErrorClass.UNAVAILABLE  # the connection was closed while it was in use
    if isinstance(error, _UNAVAILABLE):
        return ErrorClass.UNAVAILABLE
    return ErrorClass.INVALID_DATA if isinstance(error, _INVALID_DATA) else ErrorClass.FATAL


def _is_refused_by_pooler(error: BaseException) -> bool:
    """Whether PgBouncer refuses a transaction in its mode `statement`: it sends this text and disconnects."""
    return isinstance(error, asyncpg.PostgresConnectionError) and "statement pooling" in str(error)


def may_only_read(error: BaseException) -> bool:
    """Whether the error means that the user has no right to write."""
    return isinstance(error, asyncpg.InsufficientPrivilegeError) and "policy" not in str(error)


def translate(error: BaseException, label: str) -> StoreError:
    """Return the `StoreError` for an error of the driver, with the error as its cause."""
    message = next((text for kind, text in _MESSAGES if isinstance(error, kind)), None)
    if _is_refused_by_pooler(error):
        message = "is behind a pooler that assigns connections for each statement. Set pool_mode = transaction or session"
    if message is None:
        unavailable = classify(error) is ErrorClass.UNAVAILABLE
        message = "cannot be reached. Check that its server runs, and its address" if unavailable else "refused"
    found = StoreError(f"The database {label} {message}. ({type(error).__name__}: {error})")
    found.retryable = classify(error) in (ErrorClass.UNAVAILABLE, ErrorClass.CONFLICT)
    found.__cause__ = error
    return found

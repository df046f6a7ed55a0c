"""The driver's errors, sorted and translated once."""

from __future__ import annotations

import asyncio

import asyncpg

from romancy.errors import StoreError
from romancy.store.sql.server import ErrorClass

_CONFLICT = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
    asyncpg.QueryCanceledError,  # somebody stopped it
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
"""What the driver raises, and nobody else."""

_MESSAGES: tuple[tuple[type[BaseException], str], ...] = (
    (asyncpg.InvalidPasswordError, "refuses the user or the password. Check both in the address"),
    (asyncpg.InvalidAuthorizationSpecificationError, "refuses the user or the password. Check both in the address"),
    (asyncpg.InvalidCatalogNameError, "does not exist on its server. Create it first (createdb)"),
    (
        asyncpg.InsufficientPrivilegeError,
        "refuses a right that is needed. Grant the user USAGE and CREATE on the schema, and SELECT, INSERT, UPDATE and "
        "DELETE on the tables",
    ),
    (asyncpg.UndefinedTableError, "lacks a table. Migrate it: `romancy migrate up`, or auto_migrate=True"),
    (asyncpg.TooManyConnectionsError, "has no connection left. Raise max_connections, or lower pool_size"),
    (asyncpg.DiskFullError, "is full: there is no room left on its disk. Make room; the call can then be repeated"),
    (asyncpg.ReadOnlySQLTransactionError, "cannot be written: it is a standby, or read-only"),
    (asyncpg.TargetServerAttributeNotMatched, "has no server that fits target_session_attrs now"),
)


def classify(error: BaseException) -> ErrorClass:
    """What an error means."""
    if isinstance(error, _CONFLICT):
        return ErrorClass.CONFLICT
    if _is_refused_by_pooler(error):
        return ErrorClass.FATAL
    if isinstance(error, asyncpg.InterfaceError) and not isinstance(error, ValueError):
        return ErrorClass.UNAVAILABLE  # the connection was closed under our hands
    if isinstance(error, _UNAVAILABLE):
        return ErrorClass.UNAVAILABLE
    return ErrorClass.INVALID_DATA if isinstance(error, _INVALID_DATA) else ErrorClass.FATAL


def _is_refused_by_pooler(error: BaseException) -> bool:
    """PgBouncer hands out connections by the statement: it says so in these words, and hangs up."""
    return isinstance(error, asyncpg.PostgresConnectionError) and "statement pooling" in str(error)


def may_only_read(error: BaseException) -> bool:
    """The user has no right to write."""
    return isinstance(error, asyncpg.InsufficientPrivilegeError) and "policy" not in str(error)


def translate(error: BaseException, label: str) -> StoreError:
    """The `StoreError` for an error of the driver, with the error as its cause."""
    saying = next((text for kind, text in _MESSAGES if isinstance(error, kind)), None)
    if _is_refused_by_pooler(error):
        saying = "is behind a pooler that hands out connections by the statement. Set pool_mode = transaction or session"
    if saying is None:
        away = classify(error) is ErrorClass.UNAVAILABLE
        saying = "cannot be reached. Check that its server runs, and its address" if away else "refused"
    found = StoreError(f"The database {label} {saying}. ({type(error).__name__}: {error})")
    found.retryable = classify(error) in (ErrorClass.UNAVAILABLE, ErrorClass.CONFLICT)
    found.__cause__ = error
    return found

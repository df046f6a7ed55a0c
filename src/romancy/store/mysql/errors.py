"""Classifies the driver's errors, and translates them to `StoreError`."""

from __future__ import annotations

from asyncmy import errors

from romancy.errors import StoreError
from romancy.store.sql.server import ErrorClass

MAX_NAME_BYTES = 1020
"""Most bytes of a name that statements search for."""

_CONFLICT = frozenset({
    1020,  # the row has changed since it was read
    1205,  # waited too long for a lock
    1213,  # a deadlock: the server has rolled this transaction back
    1317,  # interrupted
    3572,  # a lock that a NOWAIT statement did not get
})  # fmt: skip
_UNAVAILABLE = frozenset({
    1021, 1114, 3675,  # no room
    1040, 1203, 1226,  # too many connections
    1047, 1053, 1077, 1079,  # not ready yet, or shutting down
    1180,  # a COMMIT failed, but other nodes of the cluster may have made it
    1152, 1158, 1159, 1160, 1161, 1184, 1927, 3169, 4031,  # the connection was cut
    1290, 1792, 1836,  # read-only now
    2002, 2003, 2005, 2006, 2013, 2055,  # errors of the driver
})  # fmt: skip
_INVALID_DATA = frozenset({1048, 1062, 1118, 1153, 1264, 1300, 1301, 1366, 1406, 3105})

DRIVER_ERRORS = (errors.MySQLError,)
"""Errors that only the driver raises."""

_MESSAGES = {
    1045: "refuses the user or the password. Check both in the address",
    1698: "refuses the user or the password. Check both in the address",
    1130: "refuses connections from this host. Create its user for this host, or for '%'",
    1044: "does not exist, or its user has no privileges on it. Grant all rights on the database to the user",
    1142: "does not grant the user a required privilege. Grant the user all rights on the database",
    1049: "does not exist on its server. Create it first (CREATE DATABASE)",
    1146: "lacks a table. Migrate it: `romancy migrate up`, or auto_migrate=True",
    1040: "has no connection left. Raise max_connections, or lower pool_size",
    1203: "has no connection left for its user. Raise max_user_connections, or lower pool_size",
    1021: "is full: there is no space left on its disk. Free some space; the call can then be repeated",
    1114: "is full: there is no space left on its disk. Free some space; the call can then be repeated",
    1290: "cannot be written: it is a replica, or read-only",
    1836: "cannot be written: it is a replica, or read-only",
}


def error_number(error: BaseException) -> int:
    """Return the number of an error, the server's or the driver's; 0 if it has none."""
    first = error.args[0] if isinstance(error, errors.MySQLError) and error.args else 0
    return first if isinstance(first, int) else 0


def classify(error: BaseException) -> ErrorClass:
    """Return the class of an error."""
    number = error_number(error)
    if number in _CONFLICT:
        return ErrorClass.CONFLICT
    if number in _UNAVAILABLE or isinstance(error, OSError | EOFError | errors.InterfaceError):
        return ErrorClass.UNAVAILABLE
    if isinstance(error, errors.InternalError) and number == 0:
        return ErrorClass.UNAVAILABLE  # replies do not match the requests: the connection is unusable
    if number in _INVALID_DATA or isinstance(error, errors.DataError | errors.IntegrityError | ValueError | TypeError):
        return ErrorClass.INVALID_DATA
    return ErrorClass.FATAL


def may_only_read(error: BaseException) -> bool:
    """Whether the error means that the user has no right to write."""
    return error_number(error) in (1142, 1143)  # of a table, of a column


def translate(error: BaseException, label: str) -> StoreError:
    """Return the `StoreError` for an error of the driver, with the error as its cause."""
    kind = classify(error)
    unknown = (
        "cannot be reached. Check that its server runs, and its address" if kind is ErrorClass.UNAVAILABLE else "refused"
    )
    message = _MESSAGES.get(error_number(error), unknown)
    found = StoreError(f"The database {label} {message}. ({type(error).__name__}: {error})")
    found.retryable = kind in (ErrorClass.UNAVAILABLE, ErrorClass.CONFLICT)
    found.__cause__ = error
    return found


def refusal(error: BaseException) -> str:
    """Return why the database refuses data, with advice."""
    if error_number(error) == 1406:
        return f"{error} (a name may have {MAX_NAME_BYTES} bytes in UTF-8, that is 255 characters or more)"
    return str(error)

"""The driver's errors, sorted and translated once."""

from __future__ import annotations

from asyncmy import errors

from romancy.errors import StoreError
from romancy.store.sql.server import Trouble

LONGEST = 1020
"""Bytes of a name that is looked up."""

_AGAIN = frozenset({
    1020,  # the row has changed since it was read
    1205,  # waited too long for a lock
    1213,  # a deadlock, which we were chosen to end
    1317,  # interrupted
    3572,  # a lock that was not to be waited for
})  # fmt: skip
_AWAY = frozenset({
    1021, 1114, 3675,  # no room
    1040, 1203, 1226,  # too many connections
    1047, 1053, 1077, 1079,  # not ready yet, or shutting down
    1180,  # a COMMIT failed: it may have been made all the same, on the other nodes
    1152, 1158, 1159, 1160, 1161, 1184, 1927, 3169, 4031,  # the connection was cut
    1290, 1792, 1836,  # read-only now
    2002, 2003, 2005, 2006, 2013, 2055,  # what the driver says
})  # fmt: skip
_DATA = frozenset({1048, 1062, 1118, 1153, 1264, 1300, 1301, 1366, 1406, 3105})

OF_THE_DRIVER = (errors.MySQLError,)
"""What the driver raises, and nobody else."""

_SAYINGS = {
    1045: "refuses the user or the password. Check both in the address",
    1698: "refuses the user or the password. Check both in the address",
    1130: "refuses connections from this host. Create its user for this host, or for '%'",
    1044: "does not exist, or its user has no right to it. Grant all rights on the database to the user",
    1142: "refuses a right that is needed. Grant the user all rights on the database",
    1049: "does not exist on its server. Create it first (CREATE DATABASE)",
    1146: "lacks a table. Migrate it: `romancy migrate up`, or auto_migrate=True",
    1040: "has no connection left. Raise max_connections, or lower pool_size",
    1203: "has no connection left for its user. Raise max_user_connections, or lower pool_size",
    1021: "is full: there is no room left on its disk. Make room; the call can then be repeated",
    1114: "is full: there is no room left on its disk. Make room; the call can then be repeated",
    1290: "cannot be written: it is a replica, or read-only",
    1836: "cannot be written: it is a replica, or read-only",
}


def number_of(error: BaseException) -> int:
    """The server's number for an error, or the driver's; 0 if it has none."""
    first = error.args[0] if isinstance(error, errors.MySQLError) and error.args else 0
    return first if isinstance(first, int) else 0


def trouble_of(error: BaseException) -> Trouble:
    """What an error means."""
    number = number_of(error)
    if number in _AGAIN:
        return Trouble.AGAIN
    if number in _AWAY or isinstance(error, OSError | EOFError | errors.InterfaceError):
        return Trouble.AWAY
    if isinstance(error, errors.InternalError) and number == 0:
        return Trouble.AWAY  # answers that do not fit the questions: the connection is of no use
    if number in _DATA or isinstance(error, errors.DataError | errors.IntegrityError | ValueError | TypeError):
        return Trouble.DATA
    return Trouble.WRONG


def may_only_read(error: BaseException) -> bool:
    """The user has no right to write."""
    return number_of(error) in (1142, 1143)  # of a table, of a column


def translate(error: BaseException, label: str) -> StoreError:
    """The `StoreError` for an error of the driver, with the error as its cause."""
    trouble = trouble_of(error)
    unknown = "cannot be reached. Check that its server runs, and its address" if trouble is Trouble.AWAY else "refused"
    saying = _SAYINGS.get(number_of(error), unknown)
    found = StoreError(f"The database {label} {saying}. ({type(error).__name__}: {error})")
    found.retryable = trouble in (Trouble.AWAY, Trouble.AGAIN)
    found.__cause__ = error
    return found


def refusal(error: BaseException) -> str:
    """Why the database refuses data, with what is good to know about it."""
    if number_of(error) == 1406:
        return f"{error} (a name may have {LONGEST} bytes in UTF-8, that is 255 characters or more)"
    return str(error)

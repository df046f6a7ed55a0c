"""The messaging lock: the row that serialized transactions lock, and how it is restored when it is missing.

Without the row every transaction would believe that it holds the lock: senders and waiting instances would miss each other,
and a message would be given to two consumers. The row can get lost by a TRUNCATE or a copy of the schema without its rows,
or be hidden by row-level security.
"""

from __future__ import annotations

import logging

from romancy.errors import StoreError
from romancy.store.sql.cursor import Cursor

_log = logging.getLogger("romancy.store")


def lock_messaging(cursor: Cursor) -> None:
    """Take the messaging lock in a transaction that has begun without it."""
    if cursor.first("lock_messaging") is None:
        restore_messaging_lock(cursor)


def restore_messaging_lock(cursor: Cursor) -> None:
    """Insert the missing row and lock it. Raises `StoreError` if the row cannot be seen even then.

    Of several transactions that do so at once, one inserts the row and has the lock; the others wait for the same key.
    """
    cursor.run("restore_messaging_lock")
    if cursor.first("lock_messaging") is None:
        raise StoreError(
            "The row of the table romancy_messaging_lock that serializes transactions cannot be seen, though it is there. "
            "Allow the user to read and lock it: is there row-level security on the table, or are reads sent to another "
            "server?"
        )
    _log.warning(
        "The row of the table romancy_messaging_lock was missing, and was put back: it serializes transactions. Was the "
        "table emptied, or copied without its rows? Then check whether other tables were, too."
    )

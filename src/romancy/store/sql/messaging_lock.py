"""The row that transactions lock to take turns, when it is not there.

Without it everybody would believe that it is their turn: speakers and listeners would miss each other, and messages would be
given to two. It is lost with a TRUNCATE, with a copy of the schema without its rows, or to rules that hide it (row-level
security).
"""

from __future__ import annotations

import logging

from romancy.errors import StoreError
from romancy.store.sql.cursor import Cursor

_log = logging.getLogger("romancy.store")


def lock_messaging(cursor: Cursor) -> None:
    """Wait for the turn, in a transaction that has begun without it."""
    if cursor.first("lock_messaging") is None:
        restore_messaging_lock(cursor)


def restore_messaging_lock(cursor: Cursor) -> None:
    """Put the row back, and take the turn; raises `StoreError` if it is not to be seen even then.

    Of several who do so at once, one inserts the row and has the turn, and the others wait for its key.
    """
    cursor.run("restore_messaging_lock")
    if cursor.first("lock_messaging") is None:
        raise StoreError(
            "The row of the table romancy_messaging_lock that transactions lock to take turns cannot be seen, though it is there. Let "
            "the user see and lock it: is there row-level security on the table, or are reads sent to another server?"
        )
    _log.warning(
        "The row of the table romancy_messaging_lock was missing, and was put back: transactions lock it to take turns. Was the table "
        "emptied, or copied without its rows? Then look whether other tables were, too."
    )

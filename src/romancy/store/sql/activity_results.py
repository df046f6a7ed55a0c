"""Results that activities store in their own transactions, on connections that do not belong to the engine."""

from __future__ import annotations

from romancy.model.transition import RESULT_ITEM, Refused, ResultStored, TransactionalResult
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.messaging import MessagingTransaction
from romancy.store.sql.messaging_lock import lock_messaging
from romancy.store.sql.transitions import start


def store_result(cursor: Cursor, result: TransactionalResult) -> ResultStored | Refused:
    """Put a result into its instance's inbox and emit its effects, if the worker still owns the instance."""
    if result.effects:  # before the fence, which locks the instance's row: waiting here with a locked row could deadlock
        lock_messaging(cursor)
    fence = (result.instance_id, result.generation, result.epoch, result.worker)
    if cursor.first("fence", fence) is None:
        return Refused()
    messaging = MessagingTransaction(cursor, result.now, start)
    for effect in result.effects:
        messaging.emit(result.instance_id, effect)
    body = cursor.codec.encode(result.body, inbox_context(result.instance_id, result.op))
    item_id = cursor.insert("store_result", (result.instance_id, RESULT_ITEM, result.op, body, result.now))
    assert item_id is not None
    return ResultStored(item_id, tuple(messaging.woken), tuple(messaging.started))


def find_result(cursor: Cursor, result: TransactionalResult) -> int | None:
    """Return the inbox item of a result that was committed, or None."""
    # Waits for a transaction of the activity that is still in flight: it has locked the instance's row.
    cursor.first("lock_instance", (result.instance_id,))
    context = inbox_context(result.instance_id, result.op)
    for item_id, body in cursor.rows("stored_results", (result.instance_id, RESULT_ITEM, result.op)):
        if cursor.codec.try_decode(body, context) == result.body:
            return int(item_id)
    return None


def inbox_context(instance_id: str, op: str) -> tuple[str, ...]:
    """Return the encoding context of a result in an inbox. Stored data is bound to these words: they must not change."""
    return "mail", instance_id, op

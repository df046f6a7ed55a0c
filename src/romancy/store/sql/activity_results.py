"""What activities leave with transactions of their own: on connections that are not the engine's."""

from __future__ import annotations

from romancy.model.transition import RESULT_ITEM, Refused, ResultStored, TransactionalResult
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.messaging import MessagingTransaction
from romancy.store.sql.messaging_lock import lock_messaging
from romancy.store.sql.transitions import start


def store_result(cursor: Cursor, result: TransactionalResult) -> ResultStored | Refused:
    """Put a result into its instance's inbox and say what is to be said, if the run still has the instance."""
    if result.effects:
        lock_messaging(cursor)
    fence = (result.instance_id, result.generation, result.epoch, result.worker)
    if cursor.first("fence", fence) is None:
        return Refused()
    messaging = MessagingTransaction(cursor, result.now, start)
    for effect in result.effects:
        messaging.emit(result.instance_id, effect)
    body = cursor.codec.encode(result.body, inbox_context(result.instance_id, result.op))
    mail = cursor.insert("store_result", (result.instance_id, RESULT_ITEM, result.op, body, result.now))
    assert mail is not None
    return ResultStored(mail, tuple(messaging.woken), tuple(messaging.started))


def find_result(cursor: Cursor, result: TransactionalResult) -> int | None:
    """Whether a deposit has been made. A transaction that is still under way is waited for."""
    cursor.first("lock_instance", (result.instance_id,))
    context = inbox_context(result.instance_id, result.op)
    for mail, body in cursor.rows("stored_results", (result.instance_id, RESULT_ITEM, result.op)):
        if cursor.codec.try_decode(body, context) == result.body:
            return int(mail)
    return None


def inbox_context(instance_id: str, op: str) -> tuple[str, ...]:
    """The place of a result that lies in an inbox."""
    return "mail", instance_id, op

"""What activities leave with transactions of their own: on connections that are not the engine's."""

from __future__ import annotations

from romancy.model.transition import RESULT, Deposit, Left, Refused
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.talk import Talk
from romancy.store.sql.transitions import start
from romancy.store.sql.turn import join_turn


def leave(cursor: Cursor, deposit: Deposit) -> Left | Refused:
    """Put a result into its instance's inbox and say what is to be said, if the run still has the instance."""
    if deposit.deeds:
        join_turn(cursor)
    fence = (deposit.instance_id, deposit.generation, deposit.epoch, deposit.worker)
    if cursor.first("fence", fence) is None:
        return Refused()
    talk = Talk(cursor, deposit.now, start)
    for deed in deposit.deeds:
        talk.do(deposit.instance_id, deed)
    body = cursor.coder.encode(deposit.body, mail_place(deposit.instance_id, deposit.op))
    mail = cursor.insert("leave_result", (deposit.instance_id, RESULT, deposit.op, body, deposit.now))
    assert mail is not None
    return Left(mail, tuple(talk.woken), tuple(talk.started))


def find(cursor: Cursor, deposit: Deposit) -> int | None:
    """Whether a deposit has been made. A transaction that is still under way is waited for."""
    cursor.first("hold", (deposit.instance_id,))
    place = mail_place(deposit.instance_id, deposit.op)
    for mail, body in cursor.rows("results_left", (deposit.instance_id, RESULT, deposit.op)):
        if cursor.coder.as_far_as_possible(body, place) == deposit.body:
            return int(mail)
    return None


def mail_place(instance_id: str, op: str) -> tuple[str, ...]:
    """The place of a result that lies in an inbox."""
    return "mail", instance_id, op

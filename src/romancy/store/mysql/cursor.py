"""Named statements on a connection of asyncmy."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Protocol, TypeAlias

from romancy.codec import NO_CODEC, Codec
from romancy.store.mysql.pool import MySqlResult
from romancy.store.mysql.statements import get_statement
from romancy.store.sql.cursor import RawRow, Values
from romancy.store.sql.greenlet_bridge import wait
from romancy.store.sql.json_params import as_json

WaitFunction: TypeAlias = Callable[[Any], MySqlResult]

_DEFERRED_STATEMENTS = frozenset({
    "begin_generation", "clear_deliveries", "clear_inbox", "clear_members", "clear_open_attempts", "clear_subscriptions",
    "clear_waits", "close_attempts", "consume_inbox_items", "deliver", "deliver_to_members", "deliver_to_subscribers",
    "drop_deliveries_of", "drop_delivery", "drop_messages", "drop_wait", "forget_attempts", "forget_history",
    "forget_payload", "forget_waits", "free", "join_group", "save_memberships", "bump_inbox_version", "match_and_wake", "match_waits",
    "note_each", "put_wait", "set_role", "mark_unrunnable", "subscribe", "claim_instances", "consume_event", "unsubscribe", "mark_event_consumed", "wake",
    "withdraw_waits",
})  # fmt: skip
"""Statements of which nobody wants to know how many rows they changed: they are sent together with the next one."""

_EVENT_COLUMNS = ("source", "id", "type", "subject", "target", "body")


class StatementSender(Protocol):
    """A connection, of ours or of others."""

    def defer(self, statement: bytes) -> None:
        """Send a statement, at the latest with the next one that is asked about."""
        ...

    def execute(self, statement: bytes) -> Any:
        """Send a statement; the answer to it, or something to wait for that gives it."""
        ...


class MySqlCursor:
    """What the deciding code runs its statements with; only in work that the bridge does, or another like it."""

    has_bulk_statements = True

    def __init__(self, link: StatementSender, wait: WaitFunction = wait, codec: Codec = NO_CODEC) -> None:
        self._link = link
        self._wait = wait
        self.codec = codec

    def run(self, name: str, values: Values = ()) -> int:
        """Change something; how many rows."""
        if name in _DEFERRED_STATEMENTS:
            if (text := get_statement(name).text(values)) is not None:
                self._link.defer(text)
            return 0
        return self._execute(name, values).changed

    def insert(self, name: str, values: Values) -> int | None:
        """Insert one row; its number, or None if there was one already."""
        done = self._execute(name, values)
        return done.number if done.changed else None

    def many(self, name: str, rows: Sequence[Sequence[Any]]) -> None:
        """The same statement for many rows of values."""
        for text in get_statement(name).texts(rows):
            self._link.defer(text)

    def first(self, name: str, values: Values = ()) -> RawRow | None:
        """The first row of a result, if there is one."""
        found = self.rows(name, values)
        return found[0] if found else None

    def only(self, name: str, values: Values = ()) -> RawRow:
        """The row of a result that always has one."""
        return self.rows(name, values)[0]

    def rows(self, name: str, values: Values = ()) -> list[RawRow]:
        """Every row of a result."""
        if name == "accept_events":
            assert isinstance(values, Mapping)
            return self._accept_events(values)
        return list(self._execute(name, values).rows)

    def json_rows(self, name: str, values: Values = ()) -> list[Any]:
        """Every row of a result; of a single column its values."""
        if name == "load_states_row_locked":  # in two steps: what is read must be younger than the lock
            values = (as_json(row[0] for row in self.rows("lock_states_row_locked", values)),)
        found = self.rows(name, values)
        return [row[0] for row in found] if found and len(found[0]) == 1 else found

    def _accept_events(self, values: Mapping[str, Any]) -> list[RawRow]:
        """Accept events, but not writes of which one starts a workflow: those are named."""
        types = json.dumps(sorted(set(values["type"])))
        handled = set(self.json_rows("handled_types", (types,)))
        left_out = {write for write, type in zip(values["write"], values["type"], strict=True) if type in handled}
        events = zip(*(values[column] for column in _EVENT_COLUMNS), strict=True)
        kept = [event for write, event in zip(values["write"], events, strict=True) if write not in left_out]
        found = list(self._execute("accept_events", {"now": values["now"], "events": kept}).rows) if kept else []
        found.sort(key=itemgetter(0))  # in the order of the events, which a query of many queries does not promise
        return found + [(None, None, str(write), None, None, None, 0, 0) for write in sorted(left_out)]

    def _execute(self, name: str, values: Values) -> MySqlResult:
        text = get_statement(name).text(values)
        return MySqlResult() if text is None else self._wait(self._link.execute(text))

"""Runs named statements on a connection of asyncmy, or of a synchronous driver."""

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
    "forget_payload", "forget_waits", "free", "join_group", "save_memberships", "bump_inbox_version", "match_and_wake",
    "match_waits", "note_each", "put_wait", "set_role", "mark_unrunnable", "subscribe", "claim_instances", "consume_event",
    "unsubscribe", "mark_event_consumed", "wake", "withdraw_waits",
})  # fmt: skip
"""Statements whose number of changed rows the callers do not use: they are sent together with the next statement."""

_EVENT_COLUMNS = ("source", "id", "type", "subject", "target", "body")


class StatementSender(Protocol):
    """A connection of the pool, or a user's."""

    def defer(self, statement: bytes) -> None:
        """Send a statement, at the latest with the next one that is executed."""
        ...

    def execute(self, statement: bytes) -> Any:
        """Send a statement; return its result, or an awaitable of it."""
        ...


class MySqlCursor:
    """The `Cursor` of `romancy.store.sql` on MySQL; only for work that the greenlet bridge runs, or with another `wait`."""

    has_bulk_statements = True

    def __init__(self, link: StatementSender, wait: WaitFunction = wait, codec: Codec = NO_CODEC) -> None:
        self._link = link
        self._wait = wait
        self.codec = codec

    def run(self, name: str, values: Values = ()) -> int:
        """Run a statement that changes rows; return their number."""
        if name in _DEFERRED_STATEMENTS:
            if (text := get_statement(name).text(values)) is not None:
                self._link.defer(text)
            return 0
        return self._execute(name, values).changed

    def insert(self, name: str, values: Values) -> int | None:
        """Insert one row; return its number, or None if the row was there already."""
        done = self._execute(name, values)
        return done.number if done.changed else None

    def many(self, name: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each row of values."""
        for text in get_statement(name).texts(rows):
            self._link.defer(text)

    def first(self, name: str, values: Values = ()) -> RawRow | None:
        """Return the first row of a result, or None if it is empty."""
        found = self.rows(name, values)
        return found[0] if found else None

    def only(self, name: str, values: Values = ()) -> RawRow:
        """Return the row of a result that always has one."""
        return self.rows(name, values)[0]

    def rows(self, name: str, values: Values = ()) -> list[RawRow]:
        """Return all rows of a result."""
        if name == "accept_events":
            assert isinstance(values, Mapping)
            return self._accept_events(values)
        return list(self._execute(name, values).rows)

    def json_rows(self, name: str, values: Values = ()) -> list[Any]:
        """Return all rows of a result; of a single column its values."""
        if name == "load_states_row_locked":  # in two statements: the rows must be read after they were locked
            values = (as_json(row[0] for row in self.rows("lock_states_row_locked", values)),)
        found = self.rows(name, values)
        return [row[0] for row in found] if found and len(found[0]) == 1 else found

    def _accept_events(self, values: Mapping[str, Any]) -> list[RawRow]:
        """Accept events, except the writes with an event that starts a workflow: extra rows return their indexes."""
        types = json.dumps(sorted(set(values["type"])))
        handled = set(self.json_rows("handled_types", (types,)))
        left_out = {write for write, type in zip(values["write"], values["type"], strict=True) if type in handled}
        events = zip(*(values[column] for column in _EVENT_COLUMNS), strict=True)
        accepted = [event for write, event in zip(values["write"], events, strict=True) if write not in left_out]
        found = list(self._execute("accept_events", {"now": values["now"], "events": accepted}).rows) if accepted else []
        found.sort(key=itemgetter(0))  # in the order of the events, which UNION ALL does not guarantee
        return found + [(None, None, str(write), None, None, None, 0, 0) for write in sorted(left_out)]

    def _execute(self, name: str, values: Values) -> MySqlResult:
        text = get_statement(name).text(values)
        return MySqlResult() if text is None else self._wait(self._link.execute(text))

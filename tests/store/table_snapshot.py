"""The contents of a database's tables, in a form in which two databases can be compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests import databases

# A star marks a blob, a plus a number that counts rows in the order of insertion. The time of an instance's last write is
# left out, because some dialects add entries without writing the instance's row.
_TABLES = {
    "instances": "id workflow version status generation round epoch owner wake_at inbox_version inbox_version_seen "
    "cancel_requested_at deadline_at retrying_since blocked_by fingerprint created_at started_at ended_at code python "
    "digest* created_at_event_seq",
    "payloads": "instance_id generation input* output* error* begun_at memberships",
    "history": "instance_id generation seq kind op outcome at name role digest* input* value* attempt site scheduled_at "
    "started_at ended_at worker epoch",
    "attempts": "instance_id generation op attempt name open worker epoch site scheduled_at started_at ended_at next_at "
    "error* details* heartbeat_at",
    "waits": "instance_id op kind since due key subject match* site matched_seq",
    "inbox": "instance_id id+ kind op body* at",
    "journal": "instance_id id+ at kind detail worker epoch",
    "workers": "id label service hostname pid python workflows started_at heartbeat_at",
    "events": "seq+ source id type subject target consumed accepted_at body*",
    "consumed_events": "instance_id seq",  # without the selector, which some dialects store as a digest
    "handlers": "workflow version saved_at",
    "subscriptions": "channel instance_id mode since",
    "messages": "seq+ channel pooled created_at body*",
    "deliveries": "instance_id channel seq",
    "group_members": "name instance_id since",
}
_WIDTH = max(len(columns.split()) for columns in _TABLES.values())

Row = dict[str, str | None]
Tables = dict[str, list[Row]]


def read_tables(address: str) -> Tables:
    """Every row of every table, with all values as texts, in the order of insertion where it matters."""
    tables: Tables = {name: [] for name in _TABLES}
    columns = {name: [column.rstrip("*+") for column in listed.split()] for name, listed in _TABLES.items()}
    for table, *values in databases.execute(address, _query(address)):
        tables[table].append(dict(zip(columns[table], values, strict=False)))
    for name, listed in _TABLES.items():
        counted = [column.rstrip("+") for column in listed.split() if column.endswith("+")]
        tables[name].sort(key=lambda row: [int(row[column] or 0) for column in counted])
    return tables


def compared(tables: Tables, *, inbox_versions: bool) -> dict[str, list[tuple[str | None, ...]]]:
    """The tables with positions instead of sequence numbers, which may have gaps; inbox versions can be left out."""
    events, messages = _places(tables["events"]), _places(tables["messages"])
    for row in tables["instances"]:
        row["created_at_event_seq"] = str(sum(int(seq) <= int(row["created_at_event_seq"] or 0) for seq in events))
        if not inbox_versions:
            row["inbox_version"], row["inbox_version_seen"] = str(row["inbox_version"] != row["inbox_version_seen"]), None
    for row in tables["waits"]:
        if row["matched_seq"] is not None:
            row["matched_seq"] = (events if row["kind"] == "event" else messages).get(row["matched_seq"], "gone")
    for row in tables["consumed_events"]:
        row["seq"] = events.get(row["seq"] or "", "gone")
    for row in tables["deliveries"]:
        row["seq"] = messages.get(row["seq"] or "", "gone")
    for row in tables["payloads"]:
        row["memberships"] = row["memberships"] and json.dumps(_sorted(json.loads(row["memberships"])))
    for name, listed in _TABLES.items():
        for place, row in enumerate(tables[name]):
            row.update({column.rstrip("+"): f"{place:06}" for column in listed.split() if column.endswith("+")})
    for name in ("inbox", "journal"):  # their order matters within an instance
        tables[name].sort(key=lambda row: (row["instance_id"] or "", row["id"] or ""))
        for row in tables[name]:
            row["id"] = None
    ordered = ("inbox", "journal")
    rows = {name: [tuple(row.values()) for row in found] for name, found in tables.items()}
    return {name: found if name in ordered else sorted(found, key=str) for name, found in rows.items()}


def _places(rows: list[Row]) -> dict[str, str]:
    return {row["seq"] or "": f"{place}" for place, row in enumerate(rows)}


def _sorted(value: Any) -> Any:
    return {key: sorted(values) for key, values in value.items()}


def _query(address: str) -> str:
    text, hexed, quote = _DIALECTS[address.partition(":")[0] if "://" in address else "sqlite"]
    parts: list[str] = []
    for name, listed in _TABLES.items():
        columns = [column.rstrip("+") for column in listed.split()]
        cells = [hexed(quote(column[:-1])) if column.endswith("*") else text(quote(column)) for column in columns]
        parts.append(f"SELECT '{name}', {', '.join(cells + ['NULL'] * (_WIDTH - len(cells)))} FROM romancy_{name}")
    return " UNION ALL ".join(parts)


Dialect = Callable[[str], str]
_DIALECTS: dict[str, tuple[Dialect, Dialect, Dialect]] = {
    "sqlite": ("CAST({} AS TEXT)".format, "CASE WHEN {0} IS NOT NULL THEN lower(hex({0})) END".format, '"{}"'.format),
    "postgresql": ("{}::text".format, "encode({}, 'hex')".format, '"{}"'.format),
    "mysql": ("CAST({} AS BINARY)".format, "lower(hex({}))".format, "`{}`".format),
}

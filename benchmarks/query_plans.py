"""PostgreSQL's plans for each of the store's statements, and their faults.

A connection keeps its statements prepared. The server plans the first five executions of a statement with their values, and
from the sixth on with or without them, whichever it estimates to be cheaper: both plans have to be good.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from benchmarks.seeded_tables import BROKER, CHANNEL, GROUP, SMALL, TYPE, WORKER, WORKFLOW
from romancy.store.postgres.statements import get_statement, statement_names

Plan = dict[str, Any]

HOUR = 3600 * 1_000_000
MANY = 20
"""Number of writes in a batch."""
WALKED = {
    # They read the newest event, from the end of the index.
    "accept_event": "romancy_events_pkey",
    "accept_events": "romancy_events_pkey",
    "add_instances": "romancy_events_pkey",
    "fast_path": "romancy_events_pkey",
    # It reads from one kind to the next.
    "kinds_waiting": "romancy_instances_claimable",
    # As many rows as instances run at a time.
    "count_running": "romancy_instances_owned",
    "list_running": "romancy_instances_owned",
    "scan_owned": "romancy_instances_owned",
    "scan_running": "romancy_instances_owned",
    "count_running_by_workflow": "romancy_instances_owned",
    "orphans": "romancy_instances_owned",
    "abort_bulk_action": "romancy_bulk_actions_running",
    "claim_bulk_action": "romancy_bulk_actions_running",
    "save_bulk_action": "romancy_bulk_actions_running",
    # No rows while no event is dead.
    "count_outbox": "romancy_outbox_dead",
    "old_outbox": "romancy_outbox_dead",
}
"""Statements that may read along an index without a condition on it."""
ENDS = frozenset({"sequences_behind"})
"""Statements that read the last rows of indexes."""
_VALUES: dict[str, Any] = {
    "id": "waiting-1",
    "ids": "waiting-1",
    "instance_id": "waiting-1",
    "target": "waiting-1",
    "workflow": WORKFLOW,
    "version": "",
    "status": "waiting_for_event",
    "high": "waiting-2",
    "low": "waiting-1",
    "owner": WORKER,
    "worker": WORKER,
    "type": TYPE,
    "key": TYPE,
    "kind": "event",
    "subject": "filled-1",
    "op": "event:1",
    "channel": CHANNEL,
    "name": GROUP,
    "broker": BROKER,
    "claimed_by": "relay",
    "selector": '["wakeup", "1", null]',
    "token": "token-1",
    "source": "/bench",
}
"""The most frequent value of a column, or the usual one of a parameter of this name."""
_ANYTHING = ("workflow", "instance")
"""Filters of lists, which are usually not given."""
_FIELDS = """
SELECT a.attname, t.typname FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid
WHERE a.attrelid = $1::text::regclass ORDER BY a.attnum
"""
_KINDS = json.dumps([[WORKFLOW, "", "code"]])


def statements() -> list[str]:
    """Return the names of all statements, in order."""
    return sorted(statement_names())


async def plans(connection: Any, name: str, *, now: int) -> dict[str, Plan]:
    """Return the plans of a statement: with values, and without."""
    return {"custom": await custom(connection, name, now=now), "generic": await generic(connection, name)}


async def custom(connection: Any, name: str, *, now: int) -> Plan:
    """Return the plan for usual values."""
    statement = get_statement(name)
    prepared = await connection.prepare(statement.text)
    types = [parameter.name for parameter in prepared.get_parameters()]
    values = [
        await _records(connection, type_, now)
        if type_.startswith("romancy_")
        else _value(statement.text, number, label, type_, now)
        for number, (label, type_) in enumerate(zip(statement.names, types, strict=True), 1)
    ]
    return _root(await connection.fetchval(f"EXPLAIN (FORMAT JSON) {statement.text}", *values))


async def _records(connection: Any, type_: str, now: int) -> list[tuple[Any, ...]]:
    fields = await connection.fetch(_FIELDS, type_.removesuffix("[]"))
    return [tuple(_value("", 0, name, kind, now) for name, kind in fields)] * MANY


async def generic(connection: Any, name: str) -> Plan:
    """Return the plan that is made without values."""
    statement = get_statement(name)
    given = f"({', '.join(['NULL'] * len(statement.names))})" if statement.names else ""
    await connection.execute(f"SET plan_cache_mode = force_generic_plan; PREPARE explained AS {statement.text}")
    try:
        return _root(await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE explained{given}"))
    finally:
        await connection.execute("DEALLOCATE explained; RESET plan_cache_mode")


def faults(name: str, plan: Plan) -> list[str]:
    """Return the steps of a statement that read a whole table which may be large, or a whole index of one."""
    found = [step for step in steps(plan) if _reads_all(step) and step.get("Index Name") != WALKED.get(name, "")]
    if name in ENDS:
        limited = [step for limit in steps(plan) if limit["Node Type"] == "Limit" for step in limit["Plans"]]
        found = [step for step in found if step not in limited or "Index Name" not in step]
    return [_described(step) for step in found]


def steps(plan: Plan) -> Iterator[Plan]:
    """Yield the steps of a plan, from the outermost inwards."""
    yield plan
    for part in plan.get("Plans", ()):
        yield from steps(part)


def _reads_all(step: Plan) -> bool:
    table = step.get("Relation Name", "romancy_" if "Index Name" in step else "")  # a bitmap's index does not name its table
    if not table.startswith("romancy_") or table in SMALL:
        return False
    return step["Node Type"].endswith("Seq Scan") or ("Index Name" in step and "Index Cond" not in step)


def _described(step: Plan) -> str:
    where = step.get("Index Name", step.get("Relation Name"))
    return f"{step['Node Type']} on {where}, where {step.get('Filter', 'true')}"


def _root(text: str) -> Plan:
    plan: Plan = json.loads(text)[0]["Plan"]
    return plan


def _value(text: str, number: int, label: str, type_: str, now: int) -> Any:
    """Return a usual value for a parameter: by the column it is compared with, else by its name, else by its type."""
    compared = re.search(rf"(\w+)\"? (?:=|<|>|<=|>=|<>) \${number}\b", text)
    column = label if label in _VALUES or not compared else compared[1]
    match type_:
        case "jsonb":
            return _json(text, number, label)
        case "text" | "varchar":
            if label in _ANYTHING:
                return None
            return _VALUES.get(column, _VALUES.get(label, "some"))
        case "bytea":
            return b"{}"
        case "bool":
            return False
        case _ if type_.endswith("[]"):
            return [_value(text, 0, f"{label}", type_.removesuffix("[]"), now)] * MANY
        case _:
            return _number(text, number, label if label == "before" else column, now)


def _number(text: str, number: int, column: str, now: int) -> int | None:
    if column == "before":
        return None  # most waits have no deadline
    if re.search(rf"LIMIT \${number}\b", text):
        return 100
    if column in ("generation", "epoch", "seq", "after", "attempt", "round", "open"):
        return 1
    if re.search(rf"(?:_at|\bat) < \${number}\b", text):
        return now - HOUR  # retention deletes older rows only
    return now if column.endswith("_at") or column in ("now", "at", "until", "due", "created") else 0


def _json(text: str, number: int, label: str) -> str:
    if label == "kinds":
        return _KINDS
    if re.search(rf"jsonb_array_elements_text\(\${number}::jsonb\)::bigint", text):
        return json.dumps(list(range(1, MANY + 1)))
    if f"jsonb_array_elements_text(${number}::jsonb)" in text:
        return json.dumps([f"waiting-{n}" for n in range(1, MANY + 1)])
    return json.dumps([[n, f"waiting-{n}", "event:1", TYPE, None, None, "selector"] for n in range(1, MANY + 1)])

"""The state of the database at the end of a campaign."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.chaos import hotel_workload, order_workflows
from tests.chaos.campaign.campaign_workflows import WITH_ROWS
from tests.chaos.worker_processes import HISTORY_WITH_GAPS, LEFT_BEHIND, RECORDED_TWICE, WITHOUT_WAKE_SOURCE


class Instance(NamedTuple):
    """An instance."""

    workflow: str
    status: str
    output: Any = None


class Receipt(NamedTuple):
    """A message that an instance received, or an event that it consumed."""

    instance: str
    workflow: str
    about: str
    """The channel of the message or the type of the event."""
    id: str
    """The data of the message or the id of the event."""


class Row(NamedTuple):
    """A row that an activity wrote through its session."""

    instance: str
    name: str
    key: str
    tag: str


@dataclass
class DatabaseState:
    """Everything that the comparison needs from the database."""

    instances: dict[str, Instance] = field(default_factory=dict[str, Instance])
    events: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """The source and id of each event."""
    messages: list[Receipt] = field(default_factory=list[Receipt])
    """Messages in the order in which each instance received them."""
    consumed: list[Receipt] = field(default_factory=list[Receipt])
    rows: list[Row] = field(default_factory=list[Row])
    recorded: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """How often each instance has recorded each activity that writes a row."""
    broken: list[str] = field(default_factory=list[str])
    """Violated invariants."""


_INSTANCES = """
    SELECT i.id, i.workflow, i.status, p.output FROM romancy_instances AS i
    JOIN romancy_payloads AS p ON p.instance_id = i.id AND p.generation = i.generation
"""
_HEARD = """
    SELECT h.instance_id, i.workflow, h.kind, h.value FROM romancy_history AS h
    JOIN romancy_instances AS i ON i.id = h.instance_id
    WHERE h.kind IN ('message', 'event') AND h.outcome = 'ok' ORDER BY h.instance_id, h.generation, h.seq
"""
_NAMES = ", ".join(f"'{name}'" for name in WITH_ROWS)
_RECORDED = f"""
    SELECT instance_id, name, count(*) FROM romancy_history
    WHERE kind IN ('activity', 'compensation') AND outcome = 'ok' AND name IN ({_NAMES})
    GROUP BY instance_id, name
"""
# The result of an activity with a session is first an inbox item; the next owner records it with the old worker's name.
# Times are not compared: a claim has the time before it waited for a silent connection or for the lock of a file.
_EPOCH_FALLS = f"{hotel_workload.EPOCH_FALLS} AND b.name NOT IN ({_NAMES})"
_NEVER = (
    ("an activity is recorded twice", RECORDED_TWICE),
    ("there is a gap in a history", HISTORY_WITH_GAPS),
    ("something was left behind", LEFT_BEHIND),
    ("nothing would wake the instance", WITHOUT_WAKE_SOURCE),
    ("two workers have written in one epoch", hotel_workload.TWO_WRITERS),
    ("the epoch decreases in a history", _EPOCH_FALLS),
)


async def read_database(address: str, folder: Path) -> DatabaseState:
    """Read the database. All processes must have ended."""
    found = DatabaseState(
        events=[(source, id) for source, id in await hotel_workload.rows(address, "SELECT source, id FROM romancy_events")]
    )
    for id, workflow, status, output in await hotel_workload.rows(address, _INSTANCES):
        found.instances[id] = Instance(workflow, status, None if output is None else json.loads(output))
    for instance, workflow, kind, value in await hotel_workload.rows(address, _HEARD):
        whole = json.loads(value)
        if kind == "message":
            found.messages.append(Receipt(instance, workflow, whole["channel"], whole["data"]))
        else:
            found.consumed.append(Receipt(instance, workflow, whole["type"], whole["id"]))
    rows = await hotel_workload.rows(address, "SELECT instance_id, name, idem, tag FROM chaos_rows")
    found.rows = [Row(*row) for row in rows]
    for instance, name, times in await hotel_workload.rows(address, _RECORDED):
        found.recorded[instance, name] = times
    for what, sql in _NEVER:
        found.broken += [f"{what}: {row}" for row in await hotel_workload.rows(address, sql)]
    found.broken += await hotel_workload.wrong_repetitions(address, order_workflows.read(folder / "effects"))
    return found

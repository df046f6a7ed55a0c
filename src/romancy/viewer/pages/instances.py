"""The list of instances."""

from __future__ import annotations

from romancy.admin.records import ActionKind, InstancePage
from romancy.errors import ConfigurationError
from romancy.viewer.renderer import PageRequest, View, link

PRESETS = (
    ("In flight", "status:live"),
    ("Retrying", "retrying"),
    ("Failed in last 24 h", "status:failed newer:24h"),
    ("Waiting", "status:waiting"),
    ("Overdue", "overdue"),
    ("Compensating", "status:compensating"),
    ("All", ""),
)
"""Preset filters: title and filter."""
ROWS = 50
BULK = (ActionKind.CANCEL, ActionKind.RETRY, ActionKind.PAUSE, ActionKind.RESUME, ActionKind.TERMINATE)


async def instances(visit: PageRequest) -> View:
    """List the instances that match the filter, newest first."""
    line = visit.get("q").strip()
    problem = ""
    try:
        found = await visit.manager.list_instances(line, limit=ROWS, page_token=visit.get("after") or None)
    except ConfigurationError as error:
        found, problem = InstancePage([]), str(error)
    return View(
        "instances.html",
        {
            "line": line,
            "found": found,
            "problem": problem,
            "presets": [(title, preset, link("instances", q=preset), preset == line) for title, preset in PRESETS],
            "first": not visit.get("after"),
            "bulk": BULK,
        },
        400 if problem else 200,
    )

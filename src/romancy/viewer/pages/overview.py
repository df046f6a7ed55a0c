"""The first page: what needs attention, and how things go."""

from __future__ import annotations

from typing import Any

from romancy.manage.records import Attention, Overview
from romancy.model.status import Status
from romancy.viewer.page import View, Visit, link
from romancy.viewer.words import FACES, TROUBLES

_ELSEWHERE = {"dead_letters": link("outbox", dead="1"), "silent_workers": "workers"}


async def overview(visit: Visit) -> View:
    """What needs attention, in flight, rates, workers."""
    found = await visit.manager.overview()
    empty = not (found.in_flight or found.points or found.workflows or any(one.count.value for one in found.attention))
    return View(
        "overview.html",
        {
            "troubles_found": [_trouble(one) for one in found.attention if one.count.value],
            "in_flight": _in_flight(found),
            "points": found.points,
            "workers": found.workers,
            "empty": empty,
        },
    )


def _trouble(one: Attention) -> dict[str, Any]:
    title, icon, tone = TROUBLES.get(one.what, (one.what.replace("_", " ").capitalize(), "stop", "failed"))
    where = _ELSEWHERE.get(one.what) or link("instances", q=one.filter)
    return {"title": title, "icon": icon, "tone": tone, "count": one.count, "link": where}


def _in_flight(found: Overview) -> list[dict[str, Any]]:
    return [
        {"face": FACES[Status(name)], "count": count, "link": link("instances", q=f"status:{name}")}
        for name, count in found.in_flight.items()
    ]

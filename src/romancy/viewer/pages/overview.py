"""The first page: what needs attention, and current rates."""

from __future__ import annotations

from typing import Any

from romancy.admin.records import AttentionItem, Overview
from romancy.model.status import Status
from romancy.viewer.formatters import ATTENTION_LABELS, SINGULAR_LABELS, STATUS_LABELS
from romancy.viewer.renderer import PageRequest, View, link

_ELSEWHERE = {"dead_letters": link("outbox", dead="1"), "silent_workers": "workers"}


async def overview(visit: PageRequest) -> View:
    """Show what needs attention, the instances in flight, the rates and the workers."""
    found = await visit.manager.overview()
    ended = any(point.completed or point.failed for point in found.points)
    going = any(count.value for count in found.in_flight.values())
    empty = not (ended or going or any(one.count.value for one in found.attention))
    return View(
        "overview.html",
        {
            "attention": [_attention_tile(one) for one in found.attention if one.count.value],
            "in_flight": _in_flight(found),
            "points": found.points if ended else [],
            "workers": found.workers,
            "empty": empty,
        },
    )


def _attention_tile(one: AttentionItem) -> dict[str, Any]:
    title, icon, tone = ATTENTION_LABELS.get(one.what, (one.what.replace("_", " ").capitalize(), "stop", "failed"))
    if one.count.value == 1:
        title = SINGULAR_LABELS.get(one.what, title)
    where = _ELSEWHERE.get(one.what) or link("instances", q=one.filter)
    return {"title": title, "icon": icon, "tone": tone, "count": one.count, "link": where}


def _in_flight(found: Overview) -> list[dict[str, Any]]:
    return [
        {"face": STATUS_LABELS[Status(name)], "count": count, "link": link("instances", q=f"status:{name}")}
        for name, count in found.in_flight.items()
        if count.value
    ]

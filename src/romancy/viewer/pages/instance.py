"""The page of one instance."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from romancy.admin.records import ActionKind, Explanation, InstanceDetail
from romancy.errors import RomancyError
from romancy.model.instance import AttemptEntry, HistoryEntry, WaitingFor
from romancy.model.status import Status
from romancy.viewer import diagram, values
from romancy.viewer.diagram.source_lines import list_source
from romancy.viewer.renderer import GENERATIONS, PageRequest, View, link
from romancy.viewer.timeline.svg import ROWS, draw_timeline

_ENTRIES = 200
_DRAWN = 1000
"""Most entries of the history that the diagram and the code view use."""
_RIBBON = 50
_LISTED = 10
"""Generations in one page of the generations view."""


async def instance(visit: PageRequest) -> View:
    """Show the header, explanation, error, timeline, payloads, and one of the views."""
    instance_id, generation = visit.get("id"), visit.number("gen", GENERATIONS)
    manager = visit.manager
    detail = await manager.get_instance(instance_id, generation=generation)
    view = visit.get("view", "history")
    chosen = view if view in _VIEWS else "history"
    shown = generation or detail.summary.generation
    past = detail.summary.status is Status.RECURRED
    here: dict[str, Any] = {"id": instance_id, "gen": generation}
    timeline = await manager.get_timeline(instance_id, generation=generation)
    explanation = None if past or shown != detail.generations else await manager.explain(instance_id)
    rows = min(visit.number("rows") or ROWS, 20 * ROWS)
    return View(
        "instance.html",
        {
            "detail": detail,
            "one": detail.summary,
            "here": here,
            "shown": shown,
            "ribbon": range(max(1, detail.generations - _RIBBON + 1), detail.generations + 1),
            "actions": [] if past or shown != detail.generations else detail.actions,
            "explanation": explanation,
            "remedies": [] if explanation is None else _remedies(explanation, detail),
            "sites": _sites(detail),
            "user_frame": user_frame(detail.error.trace) if detail.error else "",
            "timeline": timeline,
            "drawing": draw_timeline(timeline, **_drawn(visit, here), limit=rows),
            "opened": visit.get("open"),
            "rows": rows,
            "did": visit.get("did"),
            "view": chosen,
            "views": list(_VIEWS),
            **await _VIEWS[chosen](visit, detail, generation),
        },
    )


def _remedies(explanation: Explanation, detail: InstanceDetail) -> list[dict[str, Any]]:
    """Return the suggested remedies, except the actions that the header already has as buttons."""
    remedies: list[dict[str, Any]] = []
    for one in explanation.remedies:
        if one.name in ("send_event", "publish"):
            where = link("event", id=detail.summary.instance_id, op=one.values.get("op"))
            remedies.append({"label": one.label, "link": where, "icon": "envelope"})
        elif one.name not in set(ActionKind):
            remedies.append({"label": one.label, "link": "", "icon": ""})
    return remedies


def _sites(detail: InstanceDetail) -> list[tuple[str, str]]:
    """Return the names and call sites of the open waits and the running attempts."""
    waits = [(one.key, one.site) for one in detail.summary.waiting_for]
    return [(name, site) for name, site in [*waits, *((one.name, one.site) for one in detail.attempts if one.open)] if site]


def user_frame(trace: str) -> str:
    """Return the last frame of a traceback that is in the user's own code, not in romancy or an installed package."""
    frames = ("\n" + trace).split("\n  File ")[1:]
    own = [one for one in frames if not any(path in one.partition("\n")[0] for path in _LIBRARY_PATHS)]
    if not own:
        return ""
    location, *code = own[-1].split("\n")[:3]
    return "\n".join([f"File {location}", *(line for line in code if line.startswith("    ") and set(line) - set(" ^~"))])


_LIBRARY_PATHS = ("site-packages", "/romancy/", "/asyncio/", "/lib/python")


def _drawn(visit: PageRequest, here: dict[str, Any]) -> dict[str, Any]:
    """Return the links of spans and gaps, and which gaps are expanded."""
    open_link = link("instance", **here, view=visit.get("view"), open=f"{given}," if (given := visit.get("open")) else "")
    return {
        "link": link("instance", **here, view="history"),
        "open_link": open_link if given else f"{open_link}&open=",
        "opened": _opened(visit),
    }


def _opened(visit: PageRequest) -> list[int] | None:
    """Return the offsets of the expanded gaps of the timeline; None: all are expanded."""
    given = visit.get("open")
    if given == "all":
        return None
    return [int(part) for part in given.split(",")[:100] if part.isascii() and part.isdecimal() and len(part) < 19]


# --- views


async def _history(visit: PageRequest, detail: InstanceDetail, generation: int | None) -> dict[str, Any]:
    after = visit.number("after") or 0
    page = await visit.manager.get_history(detail.summary.instance_id, generation=generation, after=after, limit=_ENTRIES)
    return {"history": page, "full": visit.get("full") == "1", "after": after}


async def _diagram(visit: PageRequest, detail: InstanceDetail, generation: int | None) -> dict[str, Any]:
    source, entries, now = await _known(visit, detail, generation)
    return {"diagram": diagram.draw(source, entries, open=now, status=detail.summary.status.value)}


async def _code(visit: PageRequest, detail: InstanceDetail, generation: int | None) -> dict[str, Any]:
    source, entries, now = await _known(visit, detail, generation)
    return {"listings": list_source(source, entries, open=now)}


async def _known(
    visit: PageRequest, detail: InstanceDetail, generation: int | None
) -> tuple[str | None, list[HistoryEntry], list[WaitingFor | AttemptEntry]]:
    """Return what the diagram and the code view need: the source, the history, and the open waits and attempts."""
    source = await visit.manager.get_source(detail.summary.instance_id)
    entries = await visit.manager.get_history(detail.summary.instance_id, generation=generation, limit=_DRAWN)
    return source, entries.items, [*detail.summary.waiting_for, *detail.attempts]


async def _generations(visit: PageRequest, detail: InstanceDetail, generation: int | None) -> dict[str, Any]:
    last = visit.number("upto", GENERATIONS) or detail.generations
    numbers = range(last, max(0, last - _LISTED), -1)
    found: list[tuple[int, InstanceDetail | None]] = []
    for number in numbers:
        found.append((number, await _archived(visit, detail.summary.instance_id, number)))
    return {"listed": found, "older": numbers[-1] - 1 if numbers else 0}


async def _archived(visit: PageRequest, instance_id: str, number: int) -> InstanceDetail | None:
    try:
        return await visit.manager.get_instance(instance_id, generation=number)
    except RomancyError:  # its archive was deleted
        return None


async def _audit(visit: PageRequest, detail: InstanceDetail, generation: int | None) -> dict[str, Any]:
    page = await visit.manager.list_audit(instance_id=detail.summary.instance_id, before=visit.number("before"))
    return {"audit": page}


_VIEWS: dict[str, Callable[[PageRequest, InstanceDetail, int | None], Awaitable[dict[str, Any]]]] = {
    "history": _history,
    "diagram": _diagram,
    "code": _code,
    "generations": _generations,
    "audit": _audit,
}


# --- payloads as files


async def payload(visit: PageRequest) -> tuple[str, bytes]:
    """Return the file name and the JSON of an input, output or error, for download."""
    detail = await visit.manager.get_instance(visit.get("id"), generation=visit.number("gen", GENERATIONS))
    what = visit.get("what")
    if what == "error":
        found = (
            {"type": detail.error.type, "message": detail.error.message, "trace": detail.error.trace}
            if detail.error
            else None
        )
    else:
        what = "output" if what == "output" else "input"
        found = detail.output if what == "output" else detail.input
    return f"{what}.json", values.plain(found, indent=2).encode()

"""Actions of an operator: confirmation, application, results."""

from __future__ import annotations

from urllib.parse import unquote

from romancy.admin.records import ActionKind, Preview
from romancy.errors import RomancyError
from romancy.http.problems import MalformedRequestError
from romancy.viewer.renderer import PageRequest, Redirect, View

_PREVIEWS = 3
"""Most instances whose effects the confirmation lists."""


async def confirm(visit: PageRequest) -> View:
    """Show what an action would do."""
    action, ids = _read_action(visit), _ids(visit)
    previews: list[Preview] = []
    problem = ""
    if ids is not None:
        for one in ids[:_PREVIEWS]:
            try:
                previews.append(await visit.manager.preview(action, one))
            except RomancyError as error:
                problem = problem or str(error)
    return _confirmation(visit, action, ids, previews, problem)


async def apply(visit: PageRequest) -> View | Redirect:
    """Apply an action, or start a batch that does."""
    action, ids = _read_action(visit), _ids(visit)
    reason = visit.get("reason").strip() or None
    if ids is None:
        if visit.get("word").strip().lower() != action.value:
            return _confirmation(visit, action, ids, [], f"Type {action.value} to confirm.", 400)
        batch = await visit.manager.start_bulk_action(action, visit.get("q"), reason=reason, actor=visit.actor)
        return Redirect("batches", {"id": batch.batch_id})
    done = await visit.manager.apply(action, ids, reason=reason, actor=visit.actor)
    if len(done) == 1 and done[0].ok:
        return Redirect("instance", {"id": done[0].instance_id, "did": action.value})
    return View("action_results.html", {"action": action, "done": done, "failed": [one for one in done if not one.ok]})


async def requeue(visit: PageRequest) -> Redirect:
    """Send dead letters again: the selected ones, or all."""
    selected = [int(one) for one in visit.all("letter") if one.isascii() and one.isdecimal() and len(one) < 19]
    if not selected and visit.get("all") != "1":
        raise MalformedRequestError("Select the dead letters to send again.")
    count = await visit.manager.requeue_outbox(None if visit.get("all") == "1" else selected, actor=visit.actor)
    return Redirect("outbox", {"dead": "1", "requeued": count})


async def abort(visit: PageRequest) -> Redirect:
    """Abort a batch."""
    batch = await visit.manager.abort_bulk_action(visit.get("id"), actor=visit.actor)
    return Redirect("batches", {"id": batch.batch_id})


def _confirmation(
    visit: PageRequest, action: ActionKind, ids: list[str] | None, previews: list[Preview], problem: str, status: int = 200
) -> View:
    values = {"action": action, "ids": ids, "line": visit.get("q"), "previews": previews, "problem": problem}
    return View("confirm.html", {**values, "reason": visit.get("reason")}, status)


def _read_action(visit: PageRequest) -> ActionKind:
    try:
        return ActionKind(visit.get("action"))
    except ValueError:
        raise MalformedRequestError(
            f"{visit.get('action')[:40]!a} is not an action: use one of {', '.join(ActionKind)}."
        ) from None


def _ids(visit: PageRequest) -> list[str] | None:
    """Return the ids of the selected instances; None: all that match the filter."""
    if visit.get("all") == "1":
        return None
    # The form holds the ids percent-encoded, because browsers change the line breaks of plain values.
    ids = list(dict.fromkeys((visit.all("key") and [unquote(one) for one in visit.all("key")]) or visit.all("id")))
    if not ids:
        raise MalformedRequestError("Select at least one instance.")
    if any("\0" in one for one in ids):
        raise MalformedRequestError("An id contains a NUL character.")
    return ids

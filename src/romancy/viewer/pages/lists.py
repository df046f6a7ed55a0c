"""The pages with tables: workflows, workers, channels, groups, outbox, batches, audit."""

from __future__ import annotations

from romancy.admin.records import ChannelPage, SubscriberPage
from romancy.viewer.renderer import PageRequest, View


async def workflows(visit: PageRequest) -> View:
    """List the workflows with their rates and durations."""
    return View("workflows.html", {"workflows": await visit.manager.list_workflows()})


async def workers(visit: PageRequest) -> View:
    """List the worker processes."""
    return View("workers.html", {"workers": await visit.manager.list_workers()})


async def channels(visit: PageRequest) -> View:
    """List the channels, or the subscribers of one."""
    name, after = visit.get("name"), visit.get("after")
    if name:
        found: ChannelPage | SubscriberPage = await visit.manager.list_subscribers(name, after=after)
    else:
        found = await visit.manager.list_channels(after=after)
    return View("channels.html", {"name": name, "found": found, "notice": visit.get("notice")})


async def groups(visit: PageRequest) -> View:
    """List the groups, or the members of one."""
    name, after = visit.get("name"), visit.get("after")
    found = await (visit.manager.list_members(name, after=after) if name else visit.manager.list_groups(after=after))
    return View("groups.html", {"name": name, "found": found})


async def outbox(visit: PageRequest) -> View:
    """List the pending events and the dead letters."""
    dead = {"1": True, "0": False}.get(visit.get("dead"))
    found = await visit.manager.list_outbox(dead=dead, after=visit.number("after") or 0)
    return View("outbox.html", {"found": found, "dead": dead, "requeued": visit.number("requeued")})


async def batches(visit: PageRequest) -> View:
    """List the latest batches, or show one of them."""
    batch_id = visit.get("id")
    found = [await visit.manager.get_bulk_action(batch_id)] if batch_id else await visit.manager.list_bulk_actions()
    return View("batches.html", {"batches": found, "single": bool(batch_id)})


async def audit(visit: PageRequest) -> View:
    """List the actions of operators."""
    return View("audit.html", {"audit": await visit.manager.list_audit(before=visit.number("before"))})

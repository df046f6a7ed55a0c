"""Combines the API, the login and the viewer into the extra routes of an app."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.routing import BaseRoute

from romancy.admin.port import Manager
from romancy.api import login
from romancy.api.endpoints import needs
from romancy.api.routes import routes
from romancy.api.watcher import Watcher, WatchSettings
from romancy.client import Client
from romancy.clock import Clock
from romancy.http.gateway import ExtraRoutes
from romancy.http.types import HTTPSettings
from romancy.model.instance import InstanceProgress


def mount(
    manager: Manager, pages: Sequence[BaseRoute], settings: HTTPSettings, clock: Clock, watcher: Watcher | None
) -> ExtraRoutes:
    """Return the routes of the API, the login and the viewer, with the access that they need."""
    return ExtraRoutes(
        routes=[*routes(manager, settings=settings, watcher=watcher), *pages, *login.routes(settings, clock)],
        needs={**needs(), **login.NEEDS},
        render_refusal=login.render_refusal,
    )


def watcher_of(client: Client, settings: WatchSettings | None = None) -> Watcher:
    """Return a watcher that is notified of the same changes as the client or app."""

    async def read_progress(ids: Sequence[str]) -> Mapping[str, InstanceProgress]:
        return await client._store.progress(ids)

    watcher = Watcher(read_progress, settings)
    client._on_change = watcher.notify
    return watcher

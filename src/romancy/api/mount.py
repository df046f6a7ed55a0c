"""Everything that operators reach over HTTP, put together for the application of an app."""

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
    """The API, the way in for browsers, and the pages of the viewer."""
    return ExtraRoutes(
        routes=[*routes(manager, settings=settings, watcher=watcher), *pages, *login.routes(settings, clock)],
        needs={**needs(), **login.NEEDS},
        render_refusal=login.render_refusal,
    )


def watcher_of(client: Client, settings: WatchSettings | None = None) -> Watcher:
    """A watcher that hears what a client or app hears."""

    async def read_progress(ids: Sequence[str]) -> Mapping[str, InstanceProgress]:
        return await client._store.progress(ids)

    watcher = Watcher(read_progress, settings)
    client._on_change = watcher.notify
    return watcher

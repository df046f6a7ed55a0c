"""Everything that operators reach over HTTP, put together for the application of an app."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.routing import BaseRoute

from romancy.api import login
from romancy.api.routes import routes
from romancy.api.table import needs
from romancy.api.watch import Pace, Watcher
from romancy.client import Client
from romancy.clock import Clock
from romancy.ingress.asgi import More
from romancy.ingress.types import HTTPSettings
from romancy.manage.port import Manager
from romancy.model.instance import Standing


def mount(
    manager: Manager, pages: Sequence[BaseRoute], settings: HTTPSettings, clock: Clock, watcher: Watcher | None
) -> More:
    """The API, the way in for browsers, and the pages of the viewer."""
    return More(
        routes=[*routes(manager, settings=settings, watcher=watcher), *pages, *login.routes(settings, clock)],
        needs={**needs(), **login.NEEDS},
        refuse=login.refuse,
    )


def watcher_of(client: Client, pace: Pace | None = None) -> Watcher:
    """A watcher that hears what a client or app hears."""

    async def look(ids: Sequence[str]) -> Mapping[str, Standing]:
        return await client._store.standings(ids)

    watcher = Watcher(look, pace)
    client._on_change = watcher.hear
    return watcher

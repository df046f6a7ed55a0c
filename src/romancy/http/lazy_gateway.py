"""Builds the ASGI applications of an app, and imports Starlette only when the first one is built."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

from romancy.auth import CallerRole
from romancy.clock import Clock
from romancy.errors import ConfigurationError
from romancy.http.access import Need
from romancy.http.types import ASGIApp, HTTPSettings, Service

if TYPE_CHECKING:
    from romancy.http.gateway import ExtraRoutes


def open_http(
    service: Service, settings: HTTPSettings, clock: Clock, extra_routes: Callable[[], ExtraRoutes] | None = None
) -> ASGIApp:
    """Return the ASGI application of an app. Raises `ConfigurationError` if the extra `http` is not installed."""
    # Not imported at the top: without HTTP, the library must work without Starlette.
    asgi = load_extra("romancy.http.gateway", needs="starlette", extra="http", what="HTTP")
    app: ASGIApp = asgi.build(service, settings, clock, extra_routes() if extra_routes is not None else None)
    return app


def open_guarded(inner: ASGIApp, role: str, service: Service, settings: HTTPSettings, clock: Clock) -> ASGIApp:
    """Return `inner` behind the access control of the app, for callers with this role."""
    try:
        need = {"admin": Need.ADMIN, "read": Need.READ, "events": Need.EVENTS}[role]
    except KeyError:
        raise ConfigurationError(f"role={role!r}: give one of {', '.join(CallerRole)}.") from None
    asgi = load_extra("romancy.http.gateway", needs="starlette", extra="http", what="HTTP")
    app: ASGIApp = asgi.guard(inner, need, service, settings, clock)
    return app


def load_extra(module: str, *, needs: str, extra: str, what: str) -> ModuleType:
    """Import a module of romancy. Raises `ConfigurationError` if the package that it needs is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != needs:
            raise
        raise ConfigurationError(f"{what} needs {needs}, which is not installed: pip install 'romancy[{extra}]'") from error

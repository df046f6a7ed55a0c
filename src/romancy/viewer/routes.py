"""The routes of the viewer, below /viewer."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable
from functools import cache, partial
from http import HTTPStatus
from pathlib import Path
from typing import TypeAlias

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from romancy.admin.port import Manager
from romancy.clock import Clock, SystemClock
from romancy.errors import ConfigurationError, InvalidWorkflowStateError, PayloadError, RomancyError, WorkflowNotFoundError
from romancy.http.body import Bodies, ClientDisconnected
from romancy.http.headers import HTML_HEADERS, JSON_HEADERS
from romancy.http.problems import HTTPProblem, NotFoundError
from romancy.http.types import HTTPSettings
from romancy.viewer.pages import actions, instance, instances, lists, overview, start
from romancy.viewer.renderer import THEME, THEMES, PageRequest, Redirect, View, link, respond

Handler: TypeAlias = Callable[[PageRequest], Awaitable[View | Redirect]]

_LOG = logging.getLogger("romancy.http")
_ASSETS = Path(__file__).parent / "assets"
_YEAR = 365 * 86400
_KINDS = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}  # fixed: the system's table may differ

_READS: dict[str, Handler] = {
    "": overview.overview,
    "instances": instances.instances,
    "instance": instance.instance,
    "workflows": lists.workflows,
    "workers": lists.workers,
    "channels": lists.channels,
    "groups": lists.groups,
    "outbox": lists.outbox,
    "batches": lists.batches,
    "audit": lists.audit,
    "start": start.start_form,
    "event": start.event_form,
    "confirm": actions.confirm,
}
_WRITES: dict[str, Handler] = {
    "start": start.start,
    "event": start.event,
    "confirm": actions.confirm,
    "do": actions.apply,
    "requeue": actions.requeue,
    "abort": actions.abort,
}


def routes(manager: Manager, *, clock: Clock | None = None, settings: HTTPSettings | None = None) -> list[BaseRoute]:
    """Return the routes at and below /viewer. The caller is authorized before a route is reached."""
    settings = settings or HTTPSettings()
    bodies = Bodies(settings.max_body_size, settings.request_timeout)
    visit = partial(PageRequest, manager=manager, clock=clock or SystemClock(), bodies=bodies)
    return [
        Route("/viewer", _to_front),
        Route("/viewer/theme", _theme),
        Route("/viewer/payload", _payload(visit)),
        Route("/viewer/assets/{name}", _asset),
        *(Route(f"/viewer/{name}", _page(page, visit)) for name, page in _READS.items()),
        *(Route(f"/viewer/{name}", _page(page, visit), methods=["POST"]) for name, page in _WRITES.items()),
    ]


def _page(page: Handler, visited: Callable[[Request], PageRequest]) -> Callable[[Request], Awaitable[Response]]:
    async def respond_to(request: Request) -> Response:
        visit = visited(request)
        try:
            if request.method == "POST":
                await visit.read_form()
            visit.check()
            made = await page(visit)
        except ClientDisconnected:
            raise
        except Exception as error:
            made = _failure(error)
        if isinstance(made, Redirect):
            return RedirectResponse(link(made.page, **made.query), 303, HTML_HEADERS)
        return respond(made, visit)

    return respond_to


_STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (WorkflowNotFoundError, 404),
    (InvalidWorkflowStateError, 409),
    (PayloadError, 400),
    (ConfigurationError, 400),
)


def _failure(error: Exception) -> View:
    """Return the page of an error."""
    message = str(error)
    if isinstance(error, HTTPProblem):
        status = error.status
    elif isinstance(error, RomancyError):
        status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 503)
    else:
        _LOG.error("A page of the viewer failed with an unexpected error.", exc_info=error)
        status, message = 500, "An unexpected error occurred. See the log of the app for details."
    return View("failure.html", {"title": HTTPStatus(status).phrase, "message": message, "status": status}, status)


async def _to_front(request: Request) -> Response:
    # A relative URL, because the app does not know where it is mounted.
    return RedirectResponse("viewer/", 307, HTML_HEADERS)


async def _theme(request: Request) -> Response:
    """Set the theme: light, dark, or that of the system. A GET may do this, because a forged request does no harm."""
    response = RedirectResponse(_back(request), 303, HTML_HEADERS)
    wanted = request.query_params.get("to", "")
    if wanted in THEMES:
        response.set_cookie(THEME, wanted, max_age=_YEAR, samesite="lax", path=_viewer_path(request))
    else:
        response.delete_cookie(THEME, path=_viewer_path(request))
    return response


def _viewer_path(request: Request) -> str:
    """Return the path of the viewer, for cookies."""
    return request.url.path.rpartition("/")[0] + "/"


def _back(request: Request) -> str:
    """Return the page to go back to, if it is a page of the viewer; otherwise the overview."""
    page, mark, query = request.query_params.get("back", "").partition("?")
    return f"{page}{mark}{query}" if page in _READS and page else "./"


def _payload(visited: Callable[[Request], PageRequest]) -> Callable[[Request], Awaitable[Response]]:
    async def respond_to(request: Request) -> Response:
        visit = visited(request)
        try:
            visit.check()
            name, body = await instance.payload(visit)
        except (RomancyError, HTTPProblem) as error:
            return respond(_failure(error), visit)
        headers = {**JSON_HEADERS, "content-disposition": f'attachment; filename="{name}"'}
        return Response(body, headers=headers, media_type="application/json")

    return respond_to


@cache
def _assets() -> dict[str, tuple[bytes, str, str]]:
    """Return all assets, with content type and ETag. They are few and small enough to keep in memory."""
    found: dict[str, tuple[bytes, str, str]] = {}
    for file in sorted(_ASSETS.iterdir()):
        body = file.read_bytes()
        found[file.name] = body, _KINDS[file.suffix], f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    return found


async def _asset(request: Request) -> Response:
    known = _assets().get(request.path_params["name"])
    if known is None:
        raise NotFoundError(f"There is no asset {request.path_params['name'][:100]!a}.")
    body, kind, tag = known
    # Asset names are stable and revalidated with each use, so pages find their assets during a rolling deployment.
    headers = {**HTML_HEADERS, "Cache-Control": "no-cache", "ETag": tag}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=kind)

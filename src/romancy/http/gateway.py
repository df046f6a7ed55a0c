"""The ASGI application of an app, on Starlette. No other module of this package imports Starlette.

Every request passes the `Gateway`: it starts the app if no lifespan has started it, checks the caller, and turns every
error into a response. A handler either returns a response or raises.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, Router

from romancy.auth import Caller, CallerRole, OpenAccess
from romancy.clock import Clock
from romancy.errors import (
    ConfigurationError,
    InvalidWorkflowStateError,
    PayloadError,
    RefusedDataError,
    RomancyError,
    StoreError,
    WorkflowNotCancellableError,
    WorkflowNotFoundError,
)
from romancy.http import cloudevents, strict_json
from romancy.http.access import ANONYMOUS, Access, Need, Needs
from romancy.http.body import Bodies, ClientDisconnected
from romancy.http.headers import JSON_HEADERS
from romancy.http.lifespan import Lifespan
from romancy.http.problems import (
    HeadTooLargeError,
    HTTPProblem,
    MalformedRequestError,
    MethodNotAllowedError,
    NotFoundError,
)
from romancy.http.types import ASGIApp, HTTPSettings, Message, Receive, Scope, Send, Service
from romancy.metrics.exposition import CONTENT_TYPE, exposition

_LOG = logging.getLogger("romancy.http")

IN_A_THREAD = 64 * 1024
"""Larger bodies are parsed in a thread, because they would block the event loop."""
_RETRY_AFTER = "1"
_MAX_ID = 1024
_MAX_REASON = 4096
_MAX_HEADERS = 500
_MAX_HEAD = 64 * 1024
"""The maximum size in bytes of address and headers together, as in `romancy serve`. Other servers may have no limit."""
_RAW_JSON_HEADERS = [(name.lower().encode(), value.encode()) for name, value in JSON_HEADERS.items()]
"""Encoded once, because the response to every event has them."""
_UNAVAILABLE = "The database cannot process this at the moment; the log of the app has the details."
_NOT_STORED = "The database cannot store this: a name is too long, or contains a character that it does not support."

ALL_MAY_SEND = (
    "auth='open': every caller that can reach this server may send events, which can start any workflow with "
    "event_handler=True and end any wait_event. To accept only known senders, use auth=[Token(...)]."
)
CALLER = "romancy.caller"
"""The key of the ASGI scope under which handlers find the caller."""

# The first match applies. Any other RomancyError, such as StoreError, is not the fault of the caller: 503.
_STATUSES: tuple[tuple[type[RomancyError], int], ...] = (
    (WorkflowNotFoundError, 404),
    (WorkflowNotCancellableError, 409),
    (PayloadError, 400),
    (InvalidWorkflowStateError, 503),
)


@dataclass(frozen=True, slots=True)
class ExtraRoutes:
    """The routes that the API and the viewer add to those of this module."""

    routes: Sequence[BaseRoute] = ()
    needs: Needs = field(default_factory=dict)
    render_refusal: Callable[[Scope, str, Response], Response] | None = None
    """Receives the scope, the path and the response of a refusal, and returns the response to send, such as a page."""


def build(service: Service, settings: HTTPSettings, clock: Clock, extra_routes: ExtraRoutes | None = None) -> ASGIApp:
    """Return the ASGI application: events, cancellation, health, metrics, and the extra routes."""
    extra_routes = extra_routes or ExtraRoutes()
    handlers = _Handlers(service, Bodies(settings.max_body_size, settings.request_timeout))
    router = Router([*handlers.routes(), *extra_routes.routes], redirect_slashes=False)
    access = Access(settings.auth, clock, extra_routes.needs, visitors=settings.visitors)
    if isinstance(settings.auth, OpenAccess):
        _LOG.warning(ALL_MAY_SEND)
    return Gateway(router, Lifespan(service), access, extra_routes.render_refusal)


def guard(inner: ASGIApp, need: Need, service: Service, settings: HTTPSettings, clock: Clock) -> ASGIApp:
    """Return `inner` behind a gateway that requires this access for every path."""
    return Gateway(inner, Lifespan(service), Access(settings.auth, clock, fixed_need=need, visitors=settings.visitors))


class Gateway:
    """Wraps an ASGI application: starts the app, checks callers, and turns errors into responses."""

    def __init__(
        self,
        inner: ASGIApp,
        lifespan: Lifespan,
        access: Access,
        render_refusal: Callable[[Scope, str, Response], Response] | None = None,
    ) -> None:
        self._inner = inner
        self._lifespan = lifespan
        self._access = access
        self._render_refusal = render_refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, as ASGI defines it."""
        match scope["type"]:
            case "lifespan":
                await self._lifespan.serve(receive, send)
            case "http":
                await self._request(scope, receive, send)
            case "websocket":
                await receive()
                await send({"type": "websocket.close", "code": 1000, "reason": ""})  # before accept: refused with 403
            case other:
                raise RuntimeError(f"romancy supports HTTP, not {other!r}.")

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope = _restore_path(scope)
        tracked, path, caller = _TrackedSend(send), route_path(scope), ANONYMOUS
        try:
            _check_head(scope, path)
            caller = await self._access.check(scope, path)
            if path == "/metrics":  # metrics matter most while the database is unavailable and the app cannot start
                await self._lifespan.try_to_start()
            elif path != "/health/live":  # liveness does not depend on the database
                await self._lifespan.ensure_started()
            await self._inner(self._inner_scope(scope, path, caller), receive, tracked)
        except ClientDisconnected:
            return
        except asyncio.CancelledError:
            # The server stops without waiting for this request: 503 lets the client try again, 500 would report a fault.
            await tracked.fail(scope, receive, _unavailable("The request was aborted, because the server is stopping."))
            raise
        except HTTPException as error:
            await tracked.fail(scope, receive, self._render(scope, path, _routing_failure(error, scope["method"], path)))
        except Exception as error:
            await tracked.fail(scope, receive, self._render(scope, path, _answer_for(caller, error)))

    def _render(self, scope: Scope, path: str, refusal: Response) -> Response:
        return refusal if self._render_refusal is None else self._render_refusal(scope, path, refusal)

    def _inner_scope(self, scope: Scope, path: str, caller: Caller) -> Scope:
        """Return the scope in the form that Starlette expects: some servers leave the root path out of `path`."""
        root = scope.get("root_path", "").rstrip("/")
        inner = {**scope, "root_path": root, "path": root + path, "app": self, CALLER: caller}
        inner.pop("starlette.exception_handlers", None)  # an application that mounts this one must not answer its errors
        return inner


class _TrackedSend:
    """Passes messages to the server, and records whether a response has begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._begun = False

    async def __call__(self, message: Message) -> None:
        self._begun = True
        await self._send(message)

    async def fail(self, scope: Scope, receive: Receive, response: Response) -> None:
        """Send an error response, unless another response has begun."""
        if self._begun:
            return
        if response.status_code == 408 and scope.get("http_version", "1.1").startswith("1"):
            response.headers["connection"] = "close"  # or the server would wait for the rest of the body
        await response(scope, receive, self)


class _Handlers:
    """The handlers of the routes of this module."""

    def __init__(self, service: Service, bodies: Bodies) -> None:
        self._service = service
        self._bodies = bodies

    def routes(self) -> list[BaseRoute]:
        """Return all routes."""
        return [
            *(Route(path, self.events, methods=["POST"]) for path in ("/", "/events", "/events/")),
            Route("/cancel/{instance_id:path}", self.cancel, methods=["POST"]),
            Route("/health/live", self.live),
            Route("/health/ready", self.ready),
            Route("/metrics", self.metrics),
        ]

    async def events(self, request: Request) -> Response:
        """Accept events; respond with 202 once all of them are stored."""
        async with self._bodies.read(request.headers, request.receive) as body:
            headers: list[tuple[bytes, bytes]] = list(request.scope["headers"])
            if len(body) > IN_A_THREAD:
                events = await asyncio.to_thread(cloudevents.parse, headers, body)
            else:
                events = cloudevents.parse(headers, body)
            accepted = await self._service.accept_events(events) if events else []
        instance_ids = dict.fromkeys(instance_id for event in accepted for instance_id in event.instance_ids)
        answer: dict[str, object] = {"status": "accepted", "instance_ids": list(instance_ids)}
        if accepted and all(event.duplicate for event in accepted):
            answer["duplicate"] = True
        response = JSONResponse(answer, 202)
        response.raw_headers += _RAW_JSON_HEADERS
        return response

    async def cancel(self, request: Request) -> Response:
        """Request the cancellation of an instance."""
        # Not Starlette's path parameter: its pattern does not match a line feed at the end.
        instance_id = route_path(request.scope).removeprefix("/cancel/")
        if not _could_exist(instance_id):
            raise WorkflowNotFoundError(f"There is no instance {instance_id[:100]!a} in this database.")
        async with self._bodies.read(request.headers, request.receive) as body:
            caller: Caller = request.scope[CALLER]
            await self._service.cancel_workflow(instance_id, _reason(body), actor=caller.name)
        return JSONResponse({"status": "cancelled", "instance_id": instance_id}, headers=JSON_HEADERS)

    async def live(self, _: Request) -> Response:
        """Report that the process responds."""
        return JSONResponse({"status": "alive"}, headers=JSON_HEADERS)

    async def ready(self, _: Request) -> Response:
        """Report whether the app can work, or why not."""
        reason = await self._service.ready()
        return JSONResponse({"status": "ready"}, headers=JSON_HEADERS) if reason is None else _unavailable(reason)

    async def metrics(self, _: Request) -> Response:
        """Report the metrics of this process."""
        await self._service.refresh_metrics()
        return Response(exposition(self._service.metrics()), headers={**JSON_HEADERS, "content-type": CONTENT_TYPE})


def route_path(scope: Scope) -> str:
    """Return the path relative to the mount point of the app; `/` for the mount point itself."""
    path: str = scope["path"]
    root = scope.get("root_path", "").rstrip("/")
    if root and (path == root or path.startswith(f"{root}/")):
        path = path[len(root) :]
    return path or "/"


def _restore_path(scope: Scope) -> Scope:
    """Return the scope with its full path, if a framework has removed its prefix from `path` without setting `root_path`.

    Litestar does this, and appends a slash: `/romancy/events` arrives as `/events/`. `raw_path` still has the full path.
    """
    path: str = scope["path"]
    raw = (scope.get("raw_path") or b"").decode("latin-1")
    if raw == path:
        return scope  # the usual case
    raw_path = unquote(raw.partition("?")[0])
    for full_path in (raw_path, f"{raw_path}/"):
        if full_path.endswith(path) and path != raw_path:
            return {**scope, "root_path": full_path.removesuffix(path).rstrip("/"), "path": raw_path}
    return scope


def _check_head(scope: Scope, path: str) -> None:
    """Refuse a head that is too large, and a path that Starlette would route differently than `Access` checked it."""
    headers = scope["headers"]
    size = len(path) + len(scope.get("query_string", b"")) + sum([len(name) + len(value) for name, value in headers])
    if size > _MAX_HEAD or len(headers) > _MAX_HEADERS:
        raise HeadTooLargeError(f"The address and headers can have at most {_MAX_HEAD} bytes and {_MAX_HEADERS} headers.")
    if path.endswith("\n") and not path.startswith("/cancel/"):
        # `$` in Starlette's patterns also matches before a final line feed: it would route `/events\n`, which needs no role,
        # to `/events`.
        raise NotFoundError(f"There is nothing at {path[:200]!a}.")


def _could_exist(instance_id: str) -> bool:
    try:
        return 0 < len(instance_id.encode()) <= _MAX_ID and "\0" not in instance_id
    except UnicodeEncodeError:
        return False


def _reason(body: bytes) -> str | None:
    try:
        value = strict_json.read(body) if body.strip() else {}
        strict_json.write(value)
    except ValueError as error:
        raise MalformedRequestError(f"The body cannot be read: {error}.") from error
    reason = value.get("reason") if isinstance(value, dict) else value
    if not isinstance(value, dict) or not isinstance(reason, str | None) or len(reason or "") > _MAX_REASON:
        raise MalformedRequestError(f'Send no body, or {{"reason": "..."}} with up to {_MAX_REASON} characters.')
    return reason


# --- responses


def _answer_for(caller: Caller, error: Exception) -> Response:
    """Return the response to an error. Callers that may only send events do not see what the database reports.

    Its messages name hosts, users and paths.
    """
    if isinstance(error, StoreError | ConfigurationError) and caller.role is CallerRole.EVENTS:
        _LOG.warning("A request failed: %s", error)
        if isinstance(error, RefusedDataError):
            return problem(400, type(error).__name__, _NOT_STORED)
        return problem(503, type(error).__name__, _UNAVAILABLE, True)
    return answer_to(error)


def answer_to(error: Exception) -> Response:
    """Return the response to an error."""
    if isinstance(error, HTTPProblem):
        return problem(error.status, type(error).__name__, str(error), error.retryable)
    if isinstance(error, RomancyError):
        status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 503)
        return problem(status, type(error).__name__, str(error), status == 503)
    _LOG.error("A request failed with an unexpected error.", exc_info=error)
    return problem(500, "InternalError", "An unexpected error occurred; the log of the app has the details.", True)


def _unavailable(why: str) -> Response:
    return problem(503, "UnavailableError", why, True)


def problem(
    status: int, kind: str, message: str, retryable: bool = False, fields: Mapping[str, str] | None = None
) -> Response:
    """Return an error response. `fields` maps each invalid part of the request to a description of its error."""
    content: dict[str, object] = {"error": message, "error_type": kind, "retryable": retryable}
    if fields:
        content["fields"] = dict(fields)
    return JSONResponse(content, status, headers={**JSON_HEADERS, **_HEADERS.get(status, {})})


_HEADERS: Mapping[int, Mapping[str, str]] = {
    401: {"WWW-Authenticate": 'Bearer realm="romancy"'},
    503: {"Retry-After": _RETRY_AFTER},
}


def _routing_failure(error: HTTPException, method: str, path: str) -> Response:
    """Return the response to a path or method that no route has. Starlette's own response is not JSON."""
    if error.status_code != 405:
        return answer_to(NotFoundError(f"There is nothing at {path[:200]!a}."))
    allowed = (error.headers or {}).get("Allow", "")
    response = answer_to(MethodNotAllowedError(f"The method {method} is not allowed for this path: use {allowed}."))
    response.headers["Allow"] = allowed
    return response

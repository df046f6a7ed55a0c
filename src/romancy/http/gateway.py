"""The routes, on Starlette: the only module of ingress that imports it.

`Door` stands before them: it starts the app if no lifespan did, asks who is calling, and turns every error into an
answer. A handler either answers or raises.
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
from romancy.http.access import NOBODY, Access, Need, Needs
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
"""Bodies larger than this are parsed beside the event loop."""
_RETRY_AFTER = "1"
_MAX_ID = 1024
_MAX_REASON = 4096
_MAX_HEADERS = 500
_MAX_HEAD = 64 * 1024
"""Bytes of address and headers together. `romancy serve` reads no more, and not every server has a bound."""
_UNAVAILABLE = "The database cannot process this at the moment; the log of the app has the details."
_NOT_STORED = "The database cannot store this: a name is too long, or contains a character that it does not support."

ALL_MAY_SEND = (
    "auth='open': every caller that can reach this server may send events, which can start any workflow with "
    "event_handler=True and end any wait_event. To accept only known senders, use auth=[Token(...)]."
)
CALLER = "romancy.caller"
"""Where handlers find in the scope who calls."""

# The first that fits; a RomancyError of another kind, such as StoreError, is the app's trouble and not the caller's.
_STATUSES: tuple[tuple[type[RomancyError], int], ...] = (
    (WorkflowNotFoundError, 404),
    (WorkflowNotCancellableError, 409),
    (PayloadError, 400),
    (InvalidWorkflowStateError, 503),
)


@dataclass(frozen=True, slots=True)
class ExtraRoutes:
    """What others add to the paths of this module."""

    routes: Sequence[BaseRoute] = ()
    needs: Needs = field(default_factory=dict)
    render_refusal: Callable[[Scope, str, Response], Response] | None = None
    """Gets each refusal with its scope and path, and may say it in another way: to a person, for example."""


def build(service: Service, settings: HTTPSettings, clock: Clock, extra_routes: ExtraRoutes | None = None) -> ASGIApp:
    """The ASGI application: events, cancellation, health, and more routes if given."""
    extra_routes = extra_routes or ExtraRoutes()
    handlers = _Handlers(service, Bodies(settings.max_body_size, settings.request_timeout))
    router = Router([*handlers.routes(), *extra_routes.routes], redirect_slashes=False)
    access = Access(settings.auth, clock, extra_routes.needs, visitors=settings.visitors)
    if isinstance(settings.auth, OpenAccess):
        _LOG.warning(ALL_MAY_SEND)
    return Gateway(router, Lifespan(service), access, extra_routes.render_refusal)


def guard(inner: ASGIApp, need: Need, service: Service, settings: HTTPSettings, clock: Clock) -> ASGIApp:
    """An application of others behind the same door: whatever its paths are, callers need this."""
    return Gateway(inner, Lifespan(service), Access(settings.auth, clock, fixed_need=need, visitors=settings.visitors))


class Gateway:
    """What every request passes, in and out."""

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
        """One connection, as ASGI calls it."""
        match scope["type"]:
            case "lifespan":
                await self._lifespan.serve(receive, send)
            case "http":
                await self._request(scope, receive, send)
            case "websocket":
                await receive()
                await send({"type": "websocket.close", "code": 1000, "reason": ""})  # before accept: answered 403
            case other:
                raise RuntimeError(f"romancy supports HTTP, not {other!r}.")

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope = _restore_path(scope)
        answering, path, caller = _TrackedSend(send), route_path(scope), NOBODY
        try:
            _check_head(scope, path)
            caller = await self._access.check(scope, path)
            if path == "/metrics":  # what was counted is told while the database is away, and then above all
                await self._lifespan.try_to_start()
            elif path != "/health/live":  # being alive does not depend on the database
                await self._lifespan.ensure_started()
            await self._inner({**self._inner_scope(scope, path), CALLER: caller}, receive, answering)
        except ClientDisconnected:
            return
        except asyncio.CancelledError:
            # The server stops and could not wait: whoever listens is told to try again, not that something broke.
            await answering.fail(scope, receive, _unavailable("The request was aborted, because the server is stopping."))
            raise
        except HTTPException as error:
            await answering.fail(scope, receive, self._render(scope, path, _routing_failure(error, scope["method"], path)))
        except Exception as error:
            await answering.fail(scope, receive, self._render(scope, path, _answer_for(caller, error)))

    def _render(self, scope: Scope, path: str, refusal: Response) -> Response:
        return refusal if self._render_refusal is None else self._render_refusal(scope, path, refusal)

    def _inner_scope(self, scope: Scope, path: str) -> Scope:
        """The scope as Starlette finds this path in it, whichever way the server above counts the root path."""
        root = scope.get("root_path", "").rstrip("/")
        inner = {**scope, "root_path": root, "path": root + path, "app": self}
        inner.pop("starlette.exception_handlers", None)  # of the application in which this one is mounted
        return inner


class _TrackedSend:
    """Sends, and knows whether the answer has begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._begun = False

    async def __call__(self, message: Message) -> None:
        self._begun = True
        await self._send(message)

    async def fail(self, scope: Scope, receive: Receive, response: Response) -> None:
        """Answer with an error, unless something else was begun."""
        if self._begun:
            return
        if response.status_code == 408 and scope.get("http_version", "1.1").startswith("1"):
            response.headers["connection"] = "close"  # or the server goes on waiting for the rest of the body
        await response(scope, receive, self)


class _Handlers:
    """What is done at each path."""

    def __init__(self, service: Service, bodies: Bodies) -> None:
        self._service = service
        self._bodies = bodies

    def routes(self) -> list[BaseRoute]:
        """All paths."""
        return [
            *(Route(path, self.events, methods=["POST"]) for path in ("/", "/events", "/events/")),
            Route("/cancel/{instance_id:path}", self.cancel, methods=["POST"]),
            Route("/health/live", self.live),
            Route("/health/ready", self.ready),
            Route("/metrics", self.metrics),
        ]

    async def events(self, request: Request) -> Response:
        """Accept events: 202 once all of them are stored."""
        async with self._bodies.read(request.headers, request.receive) as body:
            headers: list[tuple[bytes, bytes]] = list(request.scope["headers"])
            if len(body) > IN_A_THREAD:
                events = await asyncio.to_thread(cloudevents.parse, headers, body)
            else:
                events = cloudevents.parse(headers, body)
            accepted = await self._service.accept_events(events) if events else []
        touched = dict.fromkeys(one for each in accepted for one in each.instance_ids)
        answer: dict[str, object] = {"status": "accepted", "instance_ids": list(touched)}
        if accepted and all(one.duplicate for one in accepted):
            answer["duplicate"] = True
        return JSONResponse(answer, 202, JSON_HEADERS)

    async def cancel(self, request: Request) -> Response:
        """Ask for the cancellation of an instance."""
        # Not Starlette's own parameter: its pattern stops before a line feed at the end.
        instance_id = route_path(request.scope).removeprefix("/cancel/")
        if not _could_exist(instance_id):
            raise WorkflowNotFoundError(f"There is no instance {instance_id[:100]!a} in this database.")
        async with self._bodies.read(request.headers, request.receive) as body:
            caller: Caller = request.scope[CALLER]
            await self._service.cancel_workflow(instance_id, _reason(body), actor=caller.name)
        return JSONResponse({"status": "cancelled", "instance_id": instance_id}, headers=JSON_HEADERS)

    async def live(self, _: Request) -> Response:
        """The process answers."""
        return JSONResponse({"status": "alive"}, headers=JSON_HEADERS)

    async def ready(self, _: Request) -> Response:
        """The app can work."""
        trouble = await self._service.ready()
        return JSONResponse({"status": "ready"}, headers=JSON_HEADERS) if trouble is None else _unavailable(trouble)

    async def metrics(self, _: Request) -> Response:
        """What is counted in this process."""
        await self._service.refresh_metrics()
        return Response(exposition(self._service.metrics()), headers={**JSON_HEADERS, "content-type": CONTENT_TYPE})


def route_path(scope: Scope) -> str:
    """The path below the place where the app is mounted; `/` for that place itself."""
    path: str = scope["path"]
    root = scope.get("root_path", "").rstrip("/")
    if root and (path == root or path.startswith(f"{root}/")):
        path = path[len(root) :]
    return path or "/"


def _restore_path(scope: Scope) -> Scope:
    """The same request, if the framework above took its own part off the path and did not say so in `root_path`.

    Litestar does, and ends what it leaves with a slash: `/romancy/events` comes as `/events/`. `raw_path` is as asked.
    """
    path: str = scope["path"]
    whole = unquote((scope.get("raw_path") or b"").partition(b"?")[0].decode("latin-1"))
    for asked in (whole, f"{whole}/"):
        if asked.endswith(path) and path != whole:
            return {**scope, "root_path": asked.removesuffix(path).rstrip("/"), "path": whole}
    return scope


def _check_head(scope: Scope, path: str) -> None:
    """Refuse what is too large, and what Starlette would take for another path than the door does."""
    size = len(path) + len(scope.get("query_string", b"")) + sum(len(name) + len(value) for name, value in scope["headers"])
    if size > _MAX_HEAD or len(scope["headers"]) > _MAX_HEADERS:
        raise HeadTooLargeError(f"The address and headers can have at most {_MAX_HEAD} bytes and {_MAX_HEADERS} headers.")
    if path.endswith("\n") and not path.startswith("/cancel/"):
        # The `$` of its patterns fits before a last line feed, too: `/events\n`, which nobody guards, would be `/events`.
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


# --- answers


def _answer_for(caller: Caller, error: Exception) -> Response:
    """The same, without the database's own words for those who may not look: they name hosts, users and paths."""
    if isinstance(error, StoreError | ConfigurationError) and caller.role is CallerRole.EVENTS:
        _LOG.warning("A request failed: %s", error)
        if isinstance(error, RefusedDataError):
            return problem(400, type(error).__name__, _NOT_STORED)
        return problem(503, type(error).__name__, _UNAVAILABLE, True)
    return answer_to(error)


def answer_to(error: Exception) -> Response:
    """The answer that an error becomes."""
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
    """What is answered instead of 2xx; `fields` says of each part of the question what is wrong with it."""
    content: dict[str, object] = {"error": message, "error_type": kind, "retryable": retryable}
    if fields:
        content["fields"] = dict(fields)
    return JSONResponse(content, status, headers={**JSON_HEADERS, **_HEADERS.get(status, {})})


_HEADERS: Mapping[int, Mapping[str, str]] = {
    401: {"WWW-Authenticate": 'Bearer realm="romancy"'},
    503: {"Retry-After": _RETRY_AFTER},
}


def _routing_failure(error: HTTPException, method: str, path: str) -> Response:
    """Starlette's own words for a wrong path or method are no JSON."""
    if error.status_code != 405:
        return answer_to(NotFoundError(f"There is nothing at {path[:200]!a}."))
    allowed = (error.headers or {}).get("Allow", "")
    response = answer_to(MethodNotAllowedError(f"The method {method} is not allowed for this path: use {allowed}."))
    response.headers["Allow"] = allowed
    return response

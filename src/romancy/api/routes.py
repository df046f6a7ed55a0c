"""The routes of the API, made from the table of endpoints."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from functools import cache, partial
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails, to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from romancy.admin.port import Manager
from romancy.api import requests
from romancy.api.endpoints import BASE, ENDPOINTS, Endpoint
from romancy.api.openapi import document
from romancy.api.sse import open_stream
from romancy.api.watcher import Watcher
from romancy.auth import Caller
from romancy.errors import (
    ChannelModeConflictError,
    ConfigurationError,
    InstanceConflictError,
    InvalidWorkflowStateError,
    PayloadError,
    RomancyError,
    WorkflowNotFoundError,
)
from romancy.http import strict_json
from romancy.http.access import Need
from romancy.http.body import Bodies
from romancy.http.gateway import CALLER, IN_A_THREAD, problem
from romancy.http.headers import JSON_HEADERS
from romancy.http.problems import ForbiddenError, MalformedRequestError, UnauthenticatedError, UnsupportedContentTypeError
from romancy.http.types import HTTPSettings

Q = TypeVar("Q", bound=requests.RequestModel)

# The first match applies. Other errors, such as StoreError, are raised: the gateway turns them into 503.
_STATUSES: tuple[tuple[type[RomancyError], int], ...] = (
    (WorkflowNotFoundError, 404),
    (InstanceConflictError, 409),
    (ChannelModeConflictError, 409),
    (InvalidWorkflowStateError, 409),
    (PayloadError, 400),
    (ConfigurationError, 400),
)
_MAX_FIELDS = 50


def routes(manager: Manager, *, settings: HTTPSettings | None = None, watcher: Watcher | None = None) -> list[BaseRoute]:
    """Return all routes below `/api/v1`; the stream is included only if there is a watcher."""
    settings = settings or HTTPSettings()
    bodies = Bodies(settings.max_body_size, settings.request_timeout)
    api_routes: list[BaseRoute] = [
        Route(BASE + endpoint.path, partial(_answer, manager, bodies, endpoint), methods=[endpoint.method])
        for endpoint in ENDPOINTS
    ]
    api_routes.append(Route(f"{BASE}/openapi.json", _document))
    if watcher is not None:
        api_routes.append(Route(f"{BASE}/stream", partial(_stream, watcher)))
    return api_routes


async def _answer(manager: Manager, bodies: Bodies, endpoint: Endpoint[Any], request: Request) -> Response:
    caller = _require_caller(request, endpoint.need)
    try:
        if endpoint.method == "GET":
            params = _validated(endpoint.request_model, _parameters(request))
            answer = await endpoint.handler(manager, params, caller.name)
        else:
            _check_type(request)
            async with bodies.read(request.headers, request.receive) as body:
                given = await asyncio.to_thread(_object, body) if len(body) > IN_A_THREAD else _object(body)
                params = _validated(endpoint.request_model, given)
                answer = await endpoint.handler(manager, params, caller.name)
    except RomancyError as error:
        return _refusal(error)
    except _InvalidRequestError as error:
        return problem(400, MalformedRequestError.__name__, str(error), fields=error.fields)
    return json_response(answer)


async def _document(request: Request) -> Response:
    _require_caller(request, Need.READ)
    return Response(_document_text(), headers=JSON_HEADERS, media_type="application/json")


@cache
def _document_text() -> bytes:
    """Return the OpenAPI document. It is made at the first request, because that takes a tenth of a second."""
    return to_json(document())


async def _stream(watcher: Watcher, request: Request) -> Response:
    _require_caller(request, Need.READ)
    try:
        params = _validated(requests.WatchParams, _parameters(request))
        return await open_stream(watcher, params.id, request)
    except WorkflowNotFoundError as error:
        return _refusal(error)
    except _InvalidRequestError as error:
        return problem(400, MalformedRequestError.__name__, str(error), fields=error.fields)


def json_response(value: Any) -> Response:
    """Return a record as JSON: numbers exactly, bytes as base64, NaN and infinities as strings."""
    text = to_json(value, bytes_mode="base64", inf_nan_mode="strings")
    return Response(text, headers=JSON_HEADERS, media_type="application/json")


def _require_caller(request: Request, need: Need) -> Caller:
    """Return the caller that the gateway has accepted. Without a gateway every request is refused."""
    caller = request.scope.get(CALLER)
    if not isinstance(caller, Caller):
        raise UnauthenticatedError("The request has not been authenticated.")
    if caller.role not in need.value:
        raise ForbiddenError(f"The role {caller.role.value!r} cannot do this: it needs {' or '.join(need.value)}.")
    return caller


# --- requests


class _InvalidRequestError(Exception):
    """A request that is not valid, with the error of each invalid part."""

    def __init__(self, message: str, fields: Mapping[str, str]) -> None:
        super().__init__(message)
        self.fields = fields


def _parameters(request: Request) -> dict[str, str]:
    pairs = request.query_params.multi_items()
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise _InvalidRequestError(f"The parameter {twice[:100]!a} is given twice.", {twice[:100]: "it is given twice"})
    return found


def _check_type(request: Request) -> None:
    """Refuse a body that is not JSON: forms on pages of any origin can send other types."""
    kind, _, rest = request.headers.get("content-type", "").partition(";")
    charset = rest.lower().partition("charset=")[2].partition(";")[0].strip().strip('"')
    if kind.strip().lower() != "application/json" or charset not in ("", "utf-8", "utf8"):
        raise UnsupportedContentTypeError("Send JSON, as `Content-Type: application/json` in UTF-8.")


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = strict_json.read(body) if body.strip() else {}
        strict_json.write(value)
    except ValueError as error:
        raise MalformedRequestError(f"The body cannot be read: {error}.") from error
    if not isinstance(value, dict):
        raise MalformedRequestError("The body must be a JSON object.")
    return value


def _validated(request_model: type[Q], given: dict[str, Any]) -> Q:
    try:
        return request_model.model_validate(given)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False, include_input=False)[:_MAX_FIELDS]
        fields = {_field_path(detail): detail["msg"].removeprefix("Value error, ") for detail in details}
        text = "; ".join(f"{field}: {message}" for field, message in fields.items())
        raise _InvalidRequestError(f"The request is not valid: {text}.", fields) from error


def _field_path(detail: ErrorDetails) -> str:
    return ".".join(str(part)[:100] for part in detail["loc"])


# --- refusals


def _refusal(error: RomancyError) -> Response:
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), None)
    if status is None:
        raise error
    return problem(status, type(error).__name__, str(error), fields=getattr(error, "fields", None))

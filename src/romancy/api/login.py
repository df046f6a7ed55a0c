"""Exchanges a token for a session cookie: a browser cannot send a token when it opens a page or a stream.

    GET  /viewer/login   a page that asks for the token
    POST /viewer/login   token=...&next=...   303 with the cookie, or 401
    POST /viewer/logout                       303 without it

A request for a page of the viewer without a valid cookie gets the same page, as the body of the 401.
"""

from __future__ import annotations

import json
from functools import partial
from html import escape
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from romancy.auth import CallerRole, Session, Tokens
from romancy.clock import Clock
from romancy.http.access import COOKIE, Need, Needs, headers_of
from romancy.http.body import Bodies
from romancy.http.headers import HTML_HEADERS
from romancy.http.problems import (
    ForbiddenError,
    MalformedRequestError,
    NotFoundError,
    UnauthenticatedError,
    UnsupportedContentTypeError,
)
from romancy.http.types import HTTPSettings, Scope

LOGIN = "/viewer/login"
LOGOUT = "/viewer/logout"
VIEWER_ROOT = "/viewer/"
NEEDS: Needs = {
    ("GET", LOGIN): Need.ENTER,
    ("HEAD", LOGIN): Need.ENTER,
    ("POST", LOGIN): Need.ENTER,
    ("POST", LOGOUT): Need.ENTER,
}
_MAX_FORM = 16 * 1024
_NOT_VALID = "That is not a token of this app, or the token has expired."


def routes(settings: HTTPSettings, clock: Clock) -> list[BaseRoute]:
    """Return the routes of this module."""
    bodies = Bodies(min(_MAX_FORM, settings.max_body_size), settings.request_timeout)
    return [
        Route(LOGIN, _show_form, methods=["GET"]),
        Route(LOGIN, partial(_log_in, settings.auth, clock, bodies), methods=["POST"]),
        Route(LOGOUT, _log_out, methods=["POST"]),
    ]


async def _show_form(request: Request) -> Response:
    next_path = request.query_params.get("next", "")
    return page(request.scope, 200, "Log in", "Enter a token of this app.", form=True, next_path=next_path)


async def _log_in(auth: Any, clock: Clock, bodies: Bodies, request: Request) -> Response:
    if not isinstance(auth, Tokens):
        raise NotFoundError("There is no login: this app has no tokens.")
    form = await _form(bodies, request)
    token = auth.find(form.get("token", "").strip(), clock.now())
    if token is None:
        raise UnauthenticatedError(_NOT_VALID)
    if CallerRole(token.role) not in Need.READ.value:
        raise ForbiddenError(f"The role {token.role!r} cannot view anything. Log in with a token of the role read or admin.")
    answer = _redirect(request.scope, form.get("next") or form.get("back") or "")
    _set_cookie(answer, request.scope, auth.open_session(token, clock.now()))
    return answer


async def _log_out(request: Request) -> Response:
    answer = _redirect(request.scope, "")
    _set_cookie(answer, request.scope, Session("", 0))
    return answer


async def _form(bodies: Bodies, request: Request) -> dict[str, str]:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/x-www-form-urlencoded":
        raise UnsupportedContentTypeError("Send a form, as `Content-Type: application/x-www-form-urlencoded`.")
    async with bodies.read(request.headers, request.receive) as body:
        try:
            fields = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=10)
        except ValueError as error:
            raise MalformedRequestError("The form cannot be read.") from error
    return {name: values[-1] for name, values in fields.items()}


def _redirect(scope: Scope, path: str) -> Response:
    root = scope.get("root_path", "").rstrip("/")
    path = path if path.startswith("/") else VIEWER_ROOT + path.removeprefix("./")
    return Response(
        status_code=303, headers={**HTML_HEADERS, "Location": root + (path if _is_viewer_path(path) else VIEWER_ROOT)}
    )


def _is_viewer_path(path: str) -> bool:
    """Whether this is a path of the viewer: a link to the login page must not redirect to another site."""
    plain = path.isascii() and path.isprintable() and "\\" not in path and ".." not in path
    return plain and path.startswith(VIEWER_ROOT) and not urlsplit(path).netloc


def _set_cookie(answer: Response, scope: Scope, session: Session) -> None:
    headers = headers_of(scope)
    https = scope.get("scheme") == "https" or headers.get("x-forwarded-proto", "").partition(",")[0].strip() == "https"
    answer.set_cookie(
        COOKIE,
        session.value,
        max_age=session.seconds,
        path=scope.get("root_path", "").rstrip("/") or "/",
        secure=https,
        httponly=True,
        samesite="lax",
    )


# --- pages


def render_refusal(scope: Scope, path: str, refusal: Response) -> Response:
    """Return a refusal as a page if a browser has requested one. The status remains the same."""
    if not _wants_page(scope, path) or refusal.status_code not in (401, 403):
        return refusal
    if refusal.status_code == 403:
        return page(scope, 403, "Not allowed", _sentence(refusal))
    next_path = path if scope["method"] in ("GET", "HEAD") else ""
    if next_path and scope.get("query_string"):
        next_path += "?" + scope["query_string"].decode("latin-1")
    message = _NOT_VALID if path == LOGIN else "To continue, enter a token of this app."
    answer = page(scope, 401, "Log in", message, form=True, next_path=next_path)
    answer.headers["WWW-Authenticate"] = refusal.headers["WWW-Authenticate"]
    return answer


def _wants_page(scope: Scope, path: str) -> bool:
    return path.startswith("/viewer") and "text/html" in headers_of(scope).get("accept", "")


def _sentence(refusal: Response) -> str:
    return str(json.loads(bytes(refusal.body))["error"])


def page(scope: Scope, status: int, title: str, message: str, *, form: bool = False, next_path: str = "") -> Response:
    """Return a page with a title, a sentence and, if requested, the form for the token."""
    root = scope.get("root_path", "").rstrip("/")
    content = f"<h1>{escape(title)}</h1><p>{escape(message)}</p>{_form_of(root, next_path) if form else ''}"
    text = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)} · romancy</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="{escape(root)}/viewer/assets/icon.svg" type="image/svg+xml">'
        f'<link rel="stylesheet" href="{escape(root)}/viewer/assets/viewer.css"></head>'
        f'<body class="login"><main>{content}</main></body></html>'
    )
    return Response(text, status, headers=HTML_HEADERS, media_type="text/html")


def _form_of(root: str, next_path: str) -> str:
    return (
        f'<form method="post" action="{escape(root)}{LOGIN}"><input type="hidden" name="next" value="{escape(next_path)}">'
        '<label for="token">Token</label> <input id="token" name="token" type="password" autocomplete="current-password" '
        'required autofocus> <button type="submit">Log in</button></form>'
    )

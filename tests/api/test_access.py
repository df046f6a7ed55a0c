"""Tests of access to the API: every endpoint with every kind of caller, and one response to all unauthenticated callers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.api.fake_manager import HOST, FakeManager, serve
from tests.api.test_routes import READ_CALLS, WRITE_CALLS
from tests.http.asgi_client import Answer, call

from romancy.api.endpoints import BASE, ENDPOINTS, Endpoint
from romancy.auth import CallerRole, Token, Tokens
from romancy.clock import MICROS, to_micros
from romancy.http.access import COOKIE, OURS, Need

NOW = datetime.now(UTC)
ADMIN = Token("a" * 20, role="admin")
READ = Token("r" * 20, role="read", name="Ada")
EVENTS = Token("e" * 20, role="events")
EXPIRED = Token("x" * 20, expires=NOW - timedelta(seconds=1))
TOKENS = [ADMIN, READ, EVENTS, EXPIRED]
BROWSER = {"origin": f"http://{HOST}", "sec-fetch-site": "same-origin"}
OUR_SCRIPT = {**BROWSER, OURS: "1"}
FAR = ("203.0.113.9", 1)

BODIES = {path: body for path, body, *_ in WRITE_CALLS}
QUERIES = {path: parameters for path, parameters, *_ in READ_CALLS}
EVERY = pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda one: one.name)
WRITES = pytest.mark.parametrize("endpoint", [one for one in ENDPOINTS if one.method == "POST"], ids=lambda one: one.name)


def bearer(token: Token) -> dict[str, str]:
    return {"authorization": f"Bearer {token.value}"}


def micros(when: datetime) -> int:
    return to_micros(when)


def cookie(token: Token, *, at: datetime = NOW, known: list[Token] | None = None) -> dict[str, str]:
    session = Tokens(tuple(known or TOKENS)).open_session(token, micros(at))
    return {"cookie": f"theme=dark; {COOKIE}={session.value}"}


async def ask(endpoint: Endpoint[Any], auth: Any, headers: Mapping[str, str], **more: Any) -> tuple[Answer, FakeManager]:
    """Send a valid request to an endpoint, with the given headers."""
    manager = FakeManager()
    query = urlencode(QUERIES.get(endpoint.path, {})) if endpoint.method == "GET" else ""
    body = json.dumps(BODIES[endpoint.path]).encode() if endpoint.method == "POST" else b""
    sent = {"host": HOST, "content-type": "application/json", **headers}
    app = serve(manager, auth)
    answer = await call(app, BASE + endpoint.path, body, endpoint.method, headers=sent, query_string=query.encode(), **more)
    return answer, manager


# --- with tokens


@EVERY
@pytest.mark.parametrize("token", [ADMIN, READ, EVENTS], ids=lambda one: one.role)
async def test_roles(endpoint: Endpoint[Any], token: Token) -> None:
    answer, manager = await ask(endpoint, TOKENS, bearer(token), client=FAR)
    allowed = CallerRole(token.role) in endpoint.need.value
    assert (answer.status, len(manager.calls)) == ((200, 1) if allowed else (403, 0))
    if not allowed:
        assert answer.json["error_type"] == "ForbiddenError"


def test_needed_roles() -> None:
    needs = {one.path: one.need for one in ENDPOINTS}
    assert all(one.need is Need.READ for one in ENDPOINTS if one.method == "GET")
    others = {path for path, need in needs.items() if need is not Need.READ}
    assert {path for path in others if needs[path] is Need.EVENTS} == {"/events"}
    assert {one.path for one in ENDPOINTS if one.method == "POST"} - others == {"/preview"}


UNAUTHENTICATED = {
    "missing": {},
    "wrong": {"authorization": "Bearer wrong"},
    "expired": bearer(EXPIRED),
    "another scheme": {"authorization": f"Basic {ADMIN.value}"},
    "no session": {"cookie": f"{COOKIE}=nonsense"},
    "an old session": cookie(ADMIN, at=NOW - timedelta(hours=13)),
    "a session of an expired token": cookie(EXPIRED, at=NOW - timedelta(hours=1)),
    "a session of an unknown token": cookie(Token("b" * 20)),
    "a session and a wrong token": {**cookie(ADMIN), "authorization": "Bearer wrong"},
}


@EVERY
async def test_unauthenticated_callers_get_the_same_response_everywhere(endpoint: Endpoint[Any]) -> None:
    for headers in UNAUTHENTICATED.values():
        answer, manager = await ask(endpoint, TOKENS, {**OUR_SCRIPT, **headers})
        assert (answer.status, manager.calls) == (401, [])
        assert answer.json == {
            "error": "Send `Authorization: Bearer ...` with a valid token of this app.",
            "error_type": "UnauthenticatedError",
            "retryable": False,
        }
        assert answer.headers["www-authenticate"] == 'Bearer realm="romancy"'


@pytest.mark.parametrize("path", ["/api", "/api/v1/nothing", "/api/v1/stream", "/metrics", "/viewer/", "/viewer/nothing"])
@pytest.mark.parametrize("credentials", list(UNAUTHENTICATED))
async def test_unauthenticated_callers_get_the_same_response_for_unknown_paths(path: str, credentials: str) -> None:
    answer = await call(
        serve(FakeManager(), TOKENS), path, method="GET", headers={"host": HOST, **UNAUTHENTICATED[credentials]}
    )
    assert (answer.status, answer.json["error_type"]) == (401, "UnauthenticatedError")


async def test_the_audit_names_the_caller() -> None:
    prune = next(one for one in ENDPOINTS if one.path == "/prune")
    _, manager = await ask(prune, TOKENS, bearer(ADMIN))
    assert manager.last[2]["actor"] == f"token …{ADMIN.fingerprint[-4:]}"
    _, manager = await ask(prune, [Token("n" * 20, name="Ada")], bearer(Token("n" * 20)))
    assert manager.last[2]["actor"] == "Ada"
    _, manager = await ask(prune, lambda scope: "admin", {})
    assert manager.last[2]["actor"] == "role admin"
    _, manager = await ask(prune, None, {})
    assert manager.last[2]["actor"] == "local"


# --- with a session


@EVERY
async def test_a_session_has_the_role_of_its_token(endpoint: Endpoint[Any]) -> None:
    for token in (ADMIN, READ):
        answer, _ = await ask(endpoint, TOKENS, {**OUR_SCRIPT, **cookie(token)}, client=FAR)
        assert answer.status == (200 if CallerRole(token.role) in endpoint.need.value else 403)


@WRITES
async def test_a_session_does_not_let_other_origins_write(endpoint: Endpoint[Any]) -> None:
    for headers in (
        {},
        BROWSER,
        {OURS: "1"},
        {**OUR_SCRIPT, OURS: "0"},
        {**OUR_SCRIPT, "origin": "https://evil.example"},
        {**OUR_SCRIPT, "origin": "null"},
        {**OUR_SCRIPT, "sec-fetch-site": "cross-site"},
    ):
        answer, manager = await ask(endpoint, TOKENS, {**cookie(ADMIN), **headers})
        assert (answer.status, answer.json["error_type"], manager.calls) == (403, "ForbiddenError", [])


async def test_one_of_several_cookies_is_enough() -> None:
    good = cookie(READ)["cookie"]
    headers = {"host": HOST, "cookie": f"{COOKIE}=stale; {good}"}
    assert (await call(serve(FakeManager(), TOKENS), f"{BASE}/workers", method="GET", headers=headers)).status == 200


@pytest.mark.parametrize(
    "wrong", ["", ".", "1.", f"{10**18}.", f"{10**25}.00", "\u0661.00", "1e9.00", f"{10**18}.ü", "-1.00"]
)
def test_a_malformed_session_is_refused(wrong: str) -> None:
    assert Tokens((ADMIN,)).find_session(wrong, 0) is None


def test_a_session_cannot_be_prolonged() -> None:
    tokens, now = Tokens((ADMIN,)), micros(NOW)
    session = tokens.open_session(ADMIN, now)
    end, _, signature = session.value.partition(".")
    assert tokens.find_session(session.value, now) == ADMIN
    assert tokens.find_session(f"{int(end) + 1}.{signature}", now) is None
    assert tokens.find_session(session.value, int(end)) is None
    assert ADMIN.value not in session.value + repr(session)


def test_a_session_ends_with_its_token() -> None:
    soon = Token("s" * 20, expires=NOW + timedelta(seconds=90))
    assert Tokens((soon,)).open_session(soon, micros(NOW)).seconds == 90
    session = Tokens((ADMIN,)).open_session(ADMIN, micros(NOW))
    assert Tokens((READ,)).find_session(session.value, micros(NOW)) is None
    shortened = Token(ADMIN.value, expires=NOW + timedelta(seconds=1))
    assert Tokens((shortened,)).find_session(session.value, micros(NOW)) == shortened
    assert Tokens((shortened,)).find_session(session.value, micros(NOW) + MICROS) is None
    assert Tokens((READ, ADMIN)).find_session(session.value, micros(NOW) + MICROS) == ADMIN  # opened by another process


# --- with a function


@WRITES
async def test_a_function_does_not_let_other_origins_write(endpoint: Endpoint[Any]) -> None:
    def decide(scope: Mapping[str, Any]) -> str:
        return "admin"  # for example by a cookie that a proxy checks

    answer, _ = await ask(endpoint, decide, {**BROWSER, "origin": "https://evil.example", OURS: "1"})
    assert answer.status == 403
    assert (await ask(endpoint, decide, BROWSER))[0].status == 403
    assert (await ask(endpoint, decide, OUR_SCRIPT))[0].status == 200
    assert (await ask(endpoint, decide, {}))[0].status == 200  # not a browser
    assert (await ask(endpoint, decide, {**BROWSER, "authorization": "Bearer its own"}))[0].status == 200


# --- without auth


@EVERY
async def test_without_auth_only_this_machine(endpoint: Endpoint[Any]) -> None:
    assert (await ask(endpoint, None, {}))[0].status == 200
    for headers, client in (
        ({}, FAR),
        ({}, None),
        ({"x-forwarded-for": "127.0.0.1"}, ("127.0.0.1", 1)),
        ({"host": "evil.example"}, ("127.0.0.1", 1)),
    ):
        answer, manager = await ask(endpoint, None, headers, client=client)
        assert (answer.status, answer.json["error_type"], manager.calls) == (403, "ForbiddenError", [])


@WRITES
async def test_without_auth_other_origins_are_refused(endpoint: Endpoint[Any]) -> None:
    for headers in (BROWSER, {"sec-fetch-site": "cross-site"}, {"origin": "https://evil.example", OURS: "1"}):
        answer, manager = await ask(endpoint, None, headers)
        assert (answer.status, manager.calls) == (403, [])
    assert (await ask(endpoint, None, OUR_SCRIPT))[0].status == 200


@pytest.mark.parametrize(
    "path",
    ["/api/v1/openapi.json", "/api/v1/stream", "/viewer/", "/viewer/login", "/viewer/assets/viewer.css", "/metrics", "/api"],
)
async def test_without_auth_other_machines_are_refused_everywhere(path: str) -> None:
    answer = await call(serve(FakeManager()), path, method="GET", client=FAR)
    assert (answer.status, answer.json["error_type"]) == (403, "ForbiddenError")

"""Tests of access to the HTTP interface: tokens, functions, and apps without `auth`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.http.asgi_client import STRUCTURED, Answer, Recorder, call, scope_of, serve, structured

from romancy.auth import CallerRole, Token, Tokens, Visitors, read_auth
from romancy.clock import SystemClock, to_micros
from romancy.http.access import COOKIE, OURS, Access, Need, need
from romancy.http.lazy_gateway import open_http
from romancy.http.types import HTTPSettings

FAR = ("203.0.113.9", 1)
_OF_PROXIES = ["Via", "CF-Connecting-IP", "True-Client-IP", "X-Client-IP", "X-Envoy-External-Address", "Fly-Client-IP"]
NOW = datetime.now(UTC)
TOKENS = [
    Token("a" * 20, role="admin"),
    Token("r" * 20, role="read"),
    Token("e" * 20, role="events"),
    Token("x" * 20, role="admin", expires=NOW - timedelta(seconds=1)),
    Token("y" * 20, role="admin", expires=NOW + timedelta(hours=1)),
]


def bearer(letter: str) -> dict[str, str]:
    return {"authorization": f"Bearer {letter * 20}"}


async def post(auth: Any, headers: dict[str, str]) -> Answer:
    return await call(serve(Recorder(), auth), "/events", structured(), headers={**STRUCTURED, **headers})


async def cancel(auth: Any, headers: Mapping[str, str], **more: Any) -> Answer:
    return await call(serve(Recorder(), auth), "/cancel/one", headers=dict(headers), **more)


# --- with tokens


@pytest.mark.parametrize(
    ("letter", "events", "control"), [("a", 202, 200), ("r", 403, 403), ("e", 202, 403), ("y", 202, 200)]
)
async def test_roles(letter: str, events: int, control: int) -> None:
    assert (await post(TOKENS, bearer(letter))).status == events
    assert (await cancel(TOKENS, bearer(letter))).status == control


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer("x"),
        bearer("z"),
        {"authorization": "a" * 20},
        {"authorization": f"Basic {'a' * 20}"},
        {"authorization": "Bearer"},
    ],
)
async def test_strangers_are_asked_who_they_are(headers: dict[str, str]) -> None:
    answer = await post(TOKENS, headers)
    assert answer.status == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.json["error_type"] == "UnauthenticatedError"
    assert (await cancel(TOKENS, headers)).status == 401


async def test_a_refused_request_stores_nothing_and_starts_nothing() -> None:
    service = Recorder()
    await call(serve(service, TOKENS), "/", structured(), headers=STRUCTURED)
    assert (service.stored, service.starts) == ([], 0)


@pytest.mark.parametrize("path", ["/health/live", "/health/ready"])
async def test_health_needs_no_token(path: str) -> None:
    assert (await call(serve(Recorder(), TOKENS), path, method="GET")).status == 200


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/"), ("POST", "/events"), ("GET", "/metrics"), ("POST", "/cancel/x")]
)
@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\0", "\u2028", "/", "//", "/.", "\n\n", " "])
async def test_no_other_spelling_of_a_path_needs_no_token(method: str, path: str, end: str) -> None:
    """A pattern that ends with `$` also matches before a final line feed: the routes and the access control must agree."""
    service = Recorder()
    answer = await call(serve(service, TOKENS), path + end, structured(), method, headers=STRUCTURED, client=FAR)
    assert answer.status in (401, 404)
    assert (service.stored, service.cancelled) == ([], [])


async def test_a_cookie_does_not_let_pages_of_others_write() -> None:
    """Another port of the same host is the same site, so browsers send the session cookie with requests of its pages."""
    session = Tokens((TOKENS[0],)).open_session(TOKENS[0], to_micros(NOW)).value
    cookie = {"cookie": f"{COOKIE}={session}", "host": "localhost:8000"}
    ours = {**cookie, "origin": "http://localhost:8000", "sec-fetch-site": "same-origin", OURS: "1"}
    theirs = {**cookie, "origin": "http://localhost:9000", "sec-fetch-site": "same-site"}
    for headers, control, events in ((ours, 200, 202), (theirs, 403, 403), (cookie, 403, 403)):
        assert (await cancel(TOKENS, headers)).status == control
        assert (await post(TOKENS, headers)).status == events


async def test_a_token_opens_from_anywhere() -> None:
    assert (await cancel(TOKENS, {**bearer("a"), "x-forwarded-for": "1.2.3.4"}, client=("9.9.9.9", 1))).status == 200


# --- with a function


async def test_a_function_may_decide() -> None:
    def decide(scope: Mapping[str, Any]) -> str | None:
        return "admin" if (b"x-me", b"yes") in scope["headers"] else None

    assert (await cancel(decide, {"x-me": "yes"})).status == 200
    assert (await cancel(decide, {})).status == 401


async def test_a_function_may_be_asynchronous() -> None:
    async def decide(scope: Mapping[str, Any]) -> str | None:
        return "events"

    assert (await post(decide, {})).status == 202
    assert (await cancel(decide, {})).status == 403


async def test_a_function_that_fails_refuses_the_request(caplog: pytest.LogCaptureFixture) -> None:
    def decide(scope: Mapping[str, Any]) -> str | None:
        raise RuntimeError("the directory is unavailable")

    answer = await cancel(decide, {})
    assert answer.status == 500
    assert "directory" not in answer.json["error"]
    assert "the directory is unavailable" in caplog.text


async def test_a_function_may_name_the_caller() -> None:
    def decide(scope: Mapping[str, Any]) -> tuple[str, str]:
        return "admin", "Ada\n" * 100

    access = Access(decide, SystemClock())
    caller = await access.check(scope_of("/cancel/one"), "/cancel/one")
    assert (caller.role, caller.name) == (CallerRole.ADMIN, ("Ada\n" * 100)[:200])


@pytest.mark.parametrize(("given", "events", "control"), [("admin", 202, 200), (("events", "shop"), 202, 403)])
@pytest.mark.parametrize(
    ("headers", "ours"),
    [
        ({}, True),  # a program
        ({"origin": "http://localhost:8000"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"sec-fetch-site": "same-origin", "origin": "http://localhost:8000"}, True),
        ({"origin": "http://evil.example", "authorization": "Bearer something"}, True),  # a page would need a preflight
        ({"origin": "http://evil.example"}, False),
        ({"origin": "http://evil.example", "authorization": "Basic something"}, False),  # sent by browsers themselves
        ({"origin": "http://localhost:9000", "sec-fetch-site": "same-site"}, False),
        ({"origin": "null"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "same-site", "origin": "http://localhost:8000"}, False),
    ],
)
async def test_pages_of_others_may_not_write_by_what_a_function_goes_by(
    given: Any, events: int, control: int, headers: dict[str, str], ours: bool
) -> None:
    """A function may decide by a cookie, an address or a login, and browsers send these with requests of any page."""
    sent = {"host": "localhost:8000", "cookie": "sessionid=1", **headers}
    assert (await cancel(lambda _: given, sent)).status == (control if ours else 403)
    assert (await post(lambda _: given, sent)).status == (events if ours else 403)


async def test_only_a_few_of_many_cookies_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    monkeypatch.setattr(Tokens, "find_session", lambda self, shown, now: tried.append(shown))
    assert (await cancel(TOKENS, {"cookie": "; ".join([f"{COOKIE}=1.2"] * 3000)})).status == 401
    assert len(tried) <= 8


# --- without auth


@pytest.mark.parametrize("client", [("127.0.0.1", 1), ("127.8.9.1", 1), ("::1", 1), ("::ffff:127.0.0.1", 1)])
async def test_this_machine_may_control(client: tuple[str, int]) -> None:
    assert (await cancel(None, {}, client=client)).status == 200


@pytest.mark.parametrize(
    "client", [None, ("", 0), ("10.0.0.1", 1), ("testclient", 1), ("::ffff:10.0.0.1", 1), ("localhost", 1)]
)
async def test_other_machines_may_not_control(client: tuple[str, int] | None) -> None:
    answer = await cancel(None, {}, client=client)
    assert answer.status == 403
    assert "auth" in answer.json["error"]


@pytest.mark.parametrize(
    "name", ["Forwarded", "X-Forwarded-For", "x-forwarded-proto", "X-Forwarded-Host", "X-Real-IP", *_OF_PROXIES]
)
async def test_a_forwarded_request_is_not_from_this_machine(name: str) -> None:
    assert (await cancel(None, {name: "127.0.0.1"})).status == 403


@pytest.mark.parametrize(
    "host", ["localhost:8000", "127.0.0.1", "[::1]:8000", "shop.localhost", "LOCALHOST.", "127.1.2.3:80", "0.0.0.0:8000"]
)
async def test_names_of_this_machine(host: str) -> None:
    assert (await cancel(None, {"host": host, "origin": f"http://{host}"})).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},  # a name that resolves to 127.0.0.1 (DNS rebinding)
        {"host": "evil.example:8000", "origin": "http://evil.example:8000"},
        {"host": "localhost:8000", "origin": "http://evil.example"},
        {"host": "localhost:8000", "origin": "http://localhost:9000"},
        {"host": "localhost:8000", "origin": "null"},
        {"host": "localhost:8000", "origin": "http://["},
        {"host": "["},
        {"host": ""},
        {"host": "shop"},  # a single label may resolve to any address in a search domain of the network
        {"host": "localhost.evil.example"},
        {"host": "127.0.0.1.evil.example"},
        {"host": "192.168.1.5"},  # sent by a proxy that adds no header of its own
        {"host": "localhost:8000", "sec-fetch-site": "cross-site"},
        {"host": "localhost:8000", "sec-fetch-site": "same-site"},
    ],
)
async def test_pages_in_a_browser_may_neither_steer_nor_send(headers: dict[str, str]) -> None:
    assert (await cancel(None, headers)).status == 403
    assert (await post(None, headers)).status == 403


async def test_events_are_taken_from_this_machine_only() -> None:
    service = Recorder()
    app = serve(service)
    for path in ("/", "/events", "/events/"):
        assert (await call(app, path, structured(), headers=STRUCTURED)).status == 202
        for client in (FAR, None, ("testclient", 50000)):
            assert (await call(app, path, structured(), headers=STRUCTURED, client=client)).status == 403
        assert (await call(app, path, structured(), headers={**STRUCTURED, "x-forwarded-for": "::1"})).status == 403
    assert len(service.stored) == 3


async def test_the_first_event_from_elsewhere_is_logged_with_the_remedy(caplog: pytest.LogCaptureFixture) -> None:
    app = serve(Recorder())
    for _ in range(3):
        await call(app, "/", structured(), headers=STRUCTURED, client=FAR)
    await call(app, "/metrics", method="GET", client=FAR)
    (message,) = caplog.messages
    assert all(part in message for part in ("203.0.113.9", "auth=[Token(...)]", "auth='open'"))


async def test_health_is_open() -> None:
    app = serve(Recorder())
    assert (await call(app, "/health/ready", method="GET", client=None)).status == 200
    assert (await call(app, "/nowhere", method="GET", client=FAR)).status == 404


async def test_the_host_that_is_served_is_a_name_of_this_machine() -> None:
    app = open_http(Recorder(), HTTPSettings(visitors=Visitors(served_on="Shop.internal")), SystemClock())
    for host, status in (("shop.internal:8000", 200), ("shop.internal.evil.example", 403), ("internal", 403)):
        assert (await call(app, "/cancel/one", headers={"host": host})).status == status


# --- auth="open"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 202),
        ({"host": "shop.example"}, 202),
        ({"x-forwarded-for": "1.2.3.4"}, 202),
        ({"host": "192.168.1.5:8000", "origin": "http://192.168.1.5:8000"}, 202),  # an address cannot be rebound
        ({"host": "shop.example", "origin": "http://evil.example"}, 403),
        ({"host": "shop.example", "origin": "http://evil.example", "authorization": "Bearer x"}, 403),
        ({"host": "evil.example", "origin": "http://evil.example"}, 403),
        ({"host": "evil.example", "sec-fetch-site": "same-origin"}, 403),
        ({"host": "192.168.1.5:8000", "sec-fetch-site": "cross-site"}, 403),
    ],
)
@pytest.mark.parametrize("client", [FAR, ("127.0.0.1", 1)])
async def test_open_is_for_programs_and_not_for_pages(headers: dict[str, str], status: int, client: tuple[str, int]) -> None:
    answer = await call(serve(Recorder(), "open"), "/events", structured(), headers={**STRUCTURED, **headers}, client=client)
    assert answer.status == status


async def test_open_is_for_events_only(caplog: pytest.LogCaptureFixture) -> None:
    app = serve(Recorder(), "open")
    for method, path in (("POST", "/cancel/one"), ("GET", "/metrics"), ("GET", "/viewer/"), ("POST", "/api/v1/events")):
        assert (await call(app, path, method=method, client=FAR)).status == 403
    assert any("auth='open'" in message for message in caplog.messages), "the log at the start says what `open` means"


@pytest.mark.parametrize("path", ["/api/v1/instances", "/metrics", "/viewer/", "/cancel"])
def test_guarded_paths(path: str) -> None:
    assert (need("GET", path), need("POST", path)) == (Need.READ, Need.ADMIN)


# --- tokens


def test_a_token_does_not_show_its_value() -> None:
    assert "secret" not in repr(Token("secret")) + str([Token("secret")]) + repr(read_auth([Token("secret")]))


def test_tokens_from_the_environment() -> None:
    assert read_auth("admin:one, events:t:wo") == Tokens((Token("one", "admin"), Token("t:wo", "events")))


@pytest.mark.parametrize("wrong", ["", "one", "king:one", "admin:", [], [5], 5, ["admin:one"], [Token("a"), "b"]])
def test_a_wrong_option(wrong: Any) -> None:
    with pytest.raises(ValueError):
        read_auth(wrong)


@pytest.mark.parametrize(
    "wrong",
    [{"value": ""}, {"value": "ü"}, {"value": "a\n"}, {"value": " a"}, {"role": "king"}, {"expires": datetime(2026, 1, 1)}],
)
def test_a_wrong_token(wrong: dict[str, Any]) -> None:
    given: dict[str, Any] = {"value": "v", **wrong}
    with pytest.raises(ValueError):
        Token(**given)

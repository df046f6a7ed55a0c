"""Tests of the login of the viewer, which exchanges a token for a session cookie."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.api.fake_manager import HOST, FakeManager, serve
from tests.api.test_access import ADMIN, BROWSER, EVENTS, EXPIRED, FAR, READ, TOKENS
from tests.http.asgi_client import Answer, call

from romancy.api.endpoints import BASE
from romancy.http.access import COOKIE

FORM = {"content-type": "application/x-www-form-urlencoded"}
PAGE = {"accept": "text/html,*/*"}


async def log_in(
    form: Mapping[str, str], headers: Mapping[str, str] | None = None, auth: Any = TOKENS, **more: Any
) -> Answer:
    sent = {"host": HOST, **FORM, **(BROWSER if headers is None else headers)}
    return await call(serve(FakeManager(), auth), "/viewer/login", urlencode(form).encode(), headers=sent, **more)


async def test_a_token_is_exchanged_for_a_session() -> None:
    answer = await log_in({"token": READ.value}, client=FAR)
    assert (answer.status, answer.headers["location"]) == (303, "/viewer/")
    cookie = SimpleCookie(answer.headers["set-cookie"])[COOKIE]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"], cookie["secure"]) == (True, "lax", "/", "")
    assert int(cookie["max-age"]) == 12 * 3600
    assert READ.value not in answer.headers["set-cookie"]
    seen = await call(
        serve(FakeManager(), TOKENS),
        f"{BASE}/workers",
        method="GET",
        headers={"cookie": f"{COOKIE}={cookie.value}"},
        client=FAR,
    )
    assert seen.status == 200


@pytest.mark.parametrize("https", [{"scheme": "https"}, {"headers": {**BROWSER, "x-forwarded-proto": "https"}}])
async def test_over_https_the_cookie_is_secure(https: dict[str, Any]) -> None:
    answer = await log_in({"token": ADMIN.value}, **https)
    assert SimpleCookie(answer.headers["set-cookie"])[COOKIE]["secure"] is True


async def test_where_the_app_is_mounted() -> None:
    answer = await call(
        serve(FakeManager(), TOKENS),
        "/flows/viewer/login",
        urlencode({"token": ADMIN.value, "next": "/viewer/instance?id=a%2Fb"}).encode(),
        headers={"host": HOST, **FORM, **BROWSER},
        root_path="/flows",
    )
    assert answer.headers["location"] == "/flows/viewer/instance?id=a%2Fb"
    assert SimpleCookie(answer.headers["set-cookie"])[COOKIE]["path"] == "/flows"


@pytest.mark.parametrize("wanted", ["instances?q=a", "./instances?q=a", "/viewer/instances?q=a"])
async def test_the_login_redirects_to_the_requested_page(wanted: str) -> None:
    assert (await log_in({"token": ADMIN.value, "next": wanted})).headers["location"] == "/viewer/instances?q=a"


@pytest.mark.parametrize(
    "elsewhere",
    [
        "https://evil.example/",
        "//evil.example/",
        "/viewer/../../x",
        "/viewer/\r\nX: y",
        "/elsewhere",
        "/viewer/\\x",
        "/viewer/ü",
    ],
)
async def test_the_login_redirects_to_no_other_site(elsewhere: str) -> None:
    location = (await log_in({"token": ADMIN.value, "next": elsewhere})).headers["location"]
    assert location in ("/viewer/", "/viewer/https://evil.example/")  # the second is a path of the viewer


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({}, 401),
        ({"token": ""}, 401),
        ({"token": "wrong"}, 401),
        ({"token": EXPIRED.value}, 401),
        ({"token": EVENTS.value}, 403),
    ],
)
async def test_an_invalid_token_gets_no_session(form: dict[str, str], status: int) -> None:
    answer = await log_in(form)
    assert (answer.status, "set-cookie" in answer.headers) == (status, False)


async def test_other_origins_cannot_log_in() -> None:
    for origin in ("https://evil.example", "null"):
        assert (await log_in({"token": ADMIN.value}, {"origin": origin})).status == 403


@pytest.mark.parametrize("auth", [None, lambda scope: "admin"])
async def test_without_tokens_there_is_nothing_to_log_in_to(auth: Any) -> None:
    assert (await log_in({"token": "a"}, auth=auth)).status == 404


async def test_a_form_that_cannot_be_read() -> None:
    app, headers = serve(FakeManager(), TOKENS), {"host": HOST, **FORM, **BROWSER}
    assert (await call(app, "/viewer/login", b"token=" + b"a" * 20000, headers=headers)).status == 413
    assert (await call(app, "/viewer/login", b"\xff", headers=headers)).status == 400
    assert (await call(app, "/viewer/login", b"{}", headers={**headers, "content-type": "application/json"})).status == 415


async def test_the_logout_removes_the_cookie() -> None:
    answer = await call(serve(FakeManager(), TOKENS), "/viewer/logout", headers={"host": HOST, **BROWSER})
    cookie = SimpleCookie(answer.headers["set-cookie"])[COOKIE]
    assert (answer.status, cookie.value, cookie["max-age"], cookie["path"]) == (303, "", "0", "/")
    assert (
        await call(serve(FakeManager(), TOKENS), "/viewer/logout", headers={"origin": "https://evil.example"})
    ).status == 403


# --- pages


async def test_a_person_is_asked_for_the_token_on_a_page() -> None:
    app = serve(FakeManager(), TOKENS)
    answer = await call(app, "/viewer/instance", method="GET", headers=PAGE, query_string=b'id="><script>')
    text = answer.body.decode()
    assert (answer.status, answer.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert 'action="/viewer/login"' in text
    assert "<script" not in text
    assert "/viewer/instance?id=&quot;&gt;&lt;script&gt;" in text
    assert (await call(app, "/viewer/login", method="GET", headers=PAGE)).status == 200


async def test_a_wrong_token_is_told_on_the_page() -> None:
    answer = await log_in({"token": "wrong"}, {**BROWSER, **PAGE})
    assert (answer.status, "the token has expired" in answer.body.decode()) == (401, True)


async def test_programs_get_json() -> None:
    assert (await call(serve(FakeManager(), TOKENS), f"{BASE}/workers", method="GET", headers=PAGE)).json[
        "retryable"
    ] is False


async def test_a_page_says_what_is_not_allowed() -> None:
    answer = await call(serve(FakeManager()), "/viewer/", method="GET", headers=PAGE, client=FAR)
    assert (answer.status, "only this machine" in answer.body.decode()) == (403, True)


async def test_slow_connections_do_not_block_the_login() -> None:
    app = serve(FakeManager(), TOKENS)
    headers = {"host": HOST, **FORM, **BROWSER}
    unfinished = [{"type": "http.request", "body": b"x" * 16_000, "more_body": True}]
    slow = [asyncio.create_task(call(app, "/viewer/login", unfinished, headers=headers)) for _ in range(100)]
    for _ in range(10):
        await asyncio.sleep(0)  # until each request holds the part that it has read
    answer = await call(app, "/viewer/login", urlencode({"token": READ.value}).encode(), headers=headers)
    assert answer.status == 303
    assert not any(one.done() for one in slow)
    for one in slow:
        one.cancel()
    await asyncio.wait(slow)

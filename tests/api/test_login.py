"""A token becomes a cookie."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.api.fake_manager import HOST, Asked, serve
from tests.api.test_access import ADMIN, BROWSER, EVENTS, EXPIRED, FAR, READ, TOKENS
from tests.http.asgi_client import Answer, call

from romancy.api.endpoints import BASE
from romancy.http.access import COOKIE

FORM = {"content-type": "application/x-www-form-urlencoded"}
PAGE = {"accept": "text/html,*/*"}


async def enter(
    form: Mapping[str, str], headers: Mapping[str, str] | None = None, auth: Any = TOKENS, **more: Any
) -> Answer:
    sent = {"host": HOST, **FORM, **(BROWSER if headers is None else headers)}
    return await call(serve(Asked(), auth), "/viewer/login", urlencode(form).encode(), headers=sent, **more)


async def test_whoever_shows_a_token_gets_a_session() -> None:
    answer = await enter({"token": READ.value}, client=FAR)
    assert (answer.status, answer.headers["location"]) == (303, "/viewer/")
    cookie = SimpleCookie(answer.headers["set-cookie"])[COOKIE]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"], cookie["secure"]) == (True, "lax", "/", "")
    assert int(cookie["max-age"]) == 12 * 3600
    assert READ.value not in answer.headers["set-cookie"]
    seen = await call(
        serve(Asked(), TOKENS), f"{BASE}/workers", method="GET", headers={"cookie": f"{COOKIE}={cookie.value}"}, client=FAR
    )
    assert seen.status == 200


@pytest.mark.parametrize("https", [{"scheme": "https"}, {"headers": {**BROWSER, "x-forwarded-proto": "https"}}])
async def test_over_https_it_stays_there(https: dict[str, Any]) -> None:
    answer = await enter({"token": ADMIN.value}, **https)
    assert SimpleCookie(answer.headers["set-cookie"])[COOKIE]["secure"] is True


async def test_where_the_app_is_mounted() -> None:
    answer = await call(
        serve(Asked(), TOKENS),
        "/flows/viewer/login",
        urlencode({"token": ADMIN.value, "next": "/viewer/instance?id=a%2Fb"}).encode(),
        headers={"host": HOST, **FORM, **BROWSER},
        root_path="/flows",
    )
    assert answer.headers["location"] == "/flows/viewer/instance?id=a%2Fb"
    assert SimpleCookie(answer.headers["set-cookie"])[COOKIE]["path"] == "/flows"


@pytest.mark.parametrize("wanted", ["instances?q=a", "./instances?q=a", "/viewer/instances?q=a"])
async def test_back_to_the_page_that_was_asked_for(wanted: str) -> None:
    assert (await enter({"token": ADMIN.value, "next": wanted})).headers["location"] == "/viewer/instances?q=a"


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
async def test_but_nowhere_else(elsewhere: str) -> None:
    location = (await enter({"token": ADMIN.value, "next": elsewhere})).headers["location"]
    assert location in ("/viewer/", "/viewer/https://evil.example/")  # the second is a path of ours


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
async def test_who_gets_none(form: dict[str, str], status: int) -> None:
    answer = await enter(form)
    assert (answer.status, "set-cookie" in answer.headers) == (status, False)


async def test_pages_of_others_log_nobody_in() -> None:
    for origin in ("https://evil.example", "null"):
        assert (await enter({"token": ADMIN.value}, {"origin": origin})).status == 403


@pytest.mark.parametrize("auth", [None, lambda scope: "admin"])
async def test_without_tokens_there_is_nothing_to_log_in_to(auth: Any) -> None:
    assert (await enter({"token": "a"}, auth=auth)).status == 404


async def test_a_form_that_cannot_be_read() -> None:
    app, headers = serve(Asked(), TOKENS), {"host": HOST, **FORM, **BROWSER}
    assert (await call(app, "/viewer/login", b"token=" + b"a" * 20000, headers=headers)).status == 413
    assert (await call(app, "/viewer/login", b"\xff", headers=headers)).status == 400
    assert (await call(app, "/viewer/login", b"{}", headers={**headers, "content-type": "application/json"})).status == 415


async def test_leaving_takes_the_cookie_away() -> None:
    answer = await call(serve(Asked(), TOKENS), "/viewer/logout", headers={"host": HOST, **BROWSER})
    cookie = SimpleCookie(answer.headers["set-cookie"])[COOKIE]
    assert (answer.status, cookie.value, cookie["max-age"], cookie["path"]) == (303, "", "0", "/")
    assert (await call(serve(Asked(), TOKENS), "/viewer/logout", headers={"origin": "https://evil.example"})).status == 403


# --- pages


async def test_a_person_is_asked_for_the_token_on_a_page() -> None:
    app = serve(Asked(), TOKENS)
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
    answer = await enter({"token": "wrong"}, {**BROWSER, **PAGE})
    assert (answer.status, "not valid" in answer.body.decode()) == (401, True)


async def test_programs_get_json() -> None:
    assert (await call(serve(Asked(), TOKENS), f"{BASE}/workers", method="GET", headers=PAGE)).json["retryable"] is False


async def test_a_page_says_what_is_not_allowed() -> None:
    answer = await call(serve(Asked()), "/viewer/", method="GET", headers=PAGE, client=FAR)
    assert (answer.status, "only this machine" in answer.body.decode()) == (403, True)


async def test_slow_connections_lock_nobody_out() -> None:
    app = serve(Asked(), TOKENS)
    headers = {"host": HOST, **FORM, **BROWSER}
    unfinished = [{"type": "http.request", "body": b"x" * 16_000, "more_body": True}]
    slow = [asyncio.create_task(call(app, "/viewer/login", unfinished, headers=headers)) for _ in range(100)]
    for _ in range(10):
        await asyncio.sleep(0)  # until all of them hold what they have read
    answer = await call(app, "/viewer/login", urlencode({"token": READ.value}).encode(), headers=headers)
    assert answer.status == 303
    assert not any(one.done() for one in slow)
    for one in slow:
        one.cancel()
    await asyncio.wait(slow)

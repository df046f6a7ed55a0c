"""Tests that requests of foreign pages in the browser of an authorized user are refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page
from starlette.responses import HTMLResponse
from starlette.types import ASGIApp
from tests.viewer.conftest import Site
from tests.viewer.sample_app import patient

from romancy import App

VICTIM = "victim"
EVENT = {"specversion": "1.0", "id": "forged", "source": "evil", "type": "payment.confirmed", "data": {}}
POSTED = """async ([url, body]) => {
  const type = body === null ? {} : {"Content-Type": "application/cloudevents+json"};
  return (await fetch(url, {method: "POST", headers: type, body})).status;
}"""


def by_cookie(scope: Mapping[str, Any]) -> tuple[str, str] | None:
    """Decide by a cookie, like an application's own login: browsers send cookies with requests of any page."""
    return ("admin", "Ada") if any(b"login=ada" in value for name, value in scope["headers"] if name == b"cookie") else None


def show(page: Page, address: str, html: str) -> None:
    """Open a foreign page; the browser gets it from the test instead of a server."""
    page.route(address, lambda route: route.fulfill(body=html, content_type="text/html"))
    page.goto(address)


def form(action: str) -> str:
    return f'<form id="f" method="post" action="{action}" enctype="text/plain"><input name="x" value="y"></form>'


@pytest.fixture
def shop(new_site: Callable[..., Site], context: BrowserContext) -> str:
    """An app with its own login, a browser that is logged in, and an instance that must not be cancelled."""
    made = new_site(auth=by_cookie, empty=True)
    made.run(lambda app: app.start_workflow(patient.with_options(instance_id=VICTIM), 9))
    root = made.root.replace("127.0.0.1", "localhost")
    context.add_cookies([{"name": "login", "value": "ada", "url": root, "sameSite": "Lax"}])
    return root


@pytest.mark.parametrize("foreign", ["http://localhost:9/", "http://sub.localhost:9/", "http://evil.test/"])
@pytest.mark.parametrize("path", [f"/cancel/{VICTIM}", "/events", "/"])
def test_a_form_of_another_origin_is_refused(context: BrowserContext, shop: str, foreign: str, path: str) -> None:
    """`localhost` on another port is the same site, so the browser sends the cookie."""
    page = context.new_page()
    show(page, foreign, form(shop + path))
    with page.expect_response(shop + path) as response:
        page.evaluate("document.getElementById('f').submit()")
    same_site = foreign == "http://localhost:9/"
    assert response.value.status == (403 if same_site else 401), "401: the request had no cookie"
    headers = response.value.request.all_headers()
    assert ("login=ada" in headers.get("cookie", "")) == same_site


def test_a_page_of_the_own_origin_may_write(context: BrowserContext, shop: str) -> None:
    """The same requests succeed from the app's own origin."""
    page = context.new_page()
    show(page, f"{shop}/own", "")
    assert page.evaluate(POSTED, ["/events", json.dumps(EVENT)]) == 202
    assert page.evaluate(POSTED, [f"/cancel/{VICTIM}", None]) == 200


def with_foreign_page(app: App) -> ASGIApp:
    """Serve a foreign page from the app's address: elsewhere, the browser would ask before it reaches a local address."""

    async def both(scope: Any, receive: Any, send: Any) -> None:
        await (HTMLResponse("") if scope["path"] == "/attack" else app)(scope, receive, send)

    return both


@pytest.mark.parametrize("auth", [None, "open"])
def test_a_foreign_name_for_this_machine_is_refused(
    new_site: Callable[..., Site], context: BrowserContext, auth: str | None
) -> None:
    """In this browser a foreign name resolves to this machine, as in DNS rebinding."""
    site = new_site(wrap=with_foreign_page, auth=auth, empty=True)
    site.run(lambda app: app.start_workflow(patient.with_options(instance_id=VICTIM), 9))
    root = site.root.replace("127.0.0.1", "evil.test")
    page = context.new_page()
    page.goto(f"{root}/attack")
    for path, body in (("/events", json.dumps(EVENT)), ("/", json.dumps(EVENT)), (f"/cancel/{VICTIM}", None)):
        assert page.evaluate(POSTED, [path, body]) == 403
    for path in ("/api/v1/instances", "/viewer/", "/metrics"):
        assert page.evaluate("async (path) => (await fetch(path)).status", path) == 403
    assert page.evaluate("async () => (await fetch('/health/live')).status") == 200, "the name must resolve to the app"

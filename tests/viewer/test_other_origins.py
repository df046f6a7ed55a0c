"""Pages of others in the browser of a person who may do something: what they make the browser ask is refused."""

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
    """As a login of the user's own decides: by a cookie, which browsers send whichever page makes them ask."""
    return ("admin", "Ada") if any(b"login=ada" in value for name, value in scope["headers"] if name == b"cookie") else None


def show(page: Page, address: str, html: str) -> None:
    """Open a page of a stranger, who needs no server for it here."""
    page.route(address, lambda route: route.fulfill(body=html, content_type="text/html"))
    page.goto(address)


def form(action: str) -> str:
    return f'<form id="f" method="post" action="{action}" enctype="text/plain"><input name="x" value="y"></form>'


@pytest.fixture
def shop(new_site: Callable[..., Site], context: BrowserContext) -> str:
    """An app with a login of its own, somebody who has logged in, and an instance that should live."""
    made = new_site(auth=by_cookie, empty=True)
    made.run(lambda app: app.start_workflow(patient.with_options(instance_id=VICTIM), 9))
    root = made.root.replace("127.0.0.1", "localhost")
    context.add_cookies([{"name": "login", "value": "ada", "url": root, "sameSite": "Lax"}])
    return root


@pytest.mark.parametrize("stranger", ["http://localhost:9/", "http://sub.localhost:9/", "http://evil.test/"])
@pytest.mark.parametrize("path", [f"/cancel/{VICTIM}", "/events", "/"])
def test_a_form_of_another_origin_is_refused(context: BrowserContext, shop: str, stranger: str, path: str) -> None:
    """`localhost` on another port is the same site: the browser sends the cookie along."""
    page = context.new_page()
    show(page, stranger, form(shop + path))
    with page.expect_response(shop + path) as answered:
        page.evaluate("document.getElementById('f').submit()")
    same_site = stranger == "http://localhost:9/"
    assert answered.value.status == (403 if same_site else 401), "401: it came without the cookie"
    asked = answered.value.request.all_headers()
    assert ("login=ada" in asked.get("cookie", "")) == same_site


def test_a_page_of_ones_own_may_write(context: BrowserContext, shop: str) -> None:
    """The same requests from the app's own origin."""
    page = context.new_page()
    show(page, f"{shop}/own", "")
    assert page.evaluate(POSTED, ["/events", json.dumps(EVENT)]) == 202
    assert page.evaluate(POSTED, [f"/cancel/{VICTIM}", None]) == 200


def with_a_page_of_a_stranger(app: App) -> ASGIApp:
    """From the app's own address: of a page from elsewhere the browser would ask whether it may look at this machine."""

    async def both(scope: Any, receive: Any, send: Any) -> None:
        await (HTMLResponse("") if scope["path"] == "/attack" else app)(scope, receive, send)

    return both


@pytest.mark.parametrize("auth", [None, "open"])
def test_a_name_that_was_pointed_here_opens_nothing(
    new_site: Callable[..., Site], context: BrowserContext, auth: str | None
) -> None:
    """For this browser the name of a stranger leads to this machine, as its owner can arrange."""
    site = new_site(wrap=with_a_page_of_a_stranger, auth=auth, empty=True)
    site.run(lambda app: app.start_workflow(patient.with_options(instance_id=VICTIM), 9))
    root = site.root.replace("127.0.0.1", "evil.test")
    page = context.new_page()
    page.goto(f"{root}/attack")
    for path, body in (("/events", json.dumps(EVENT)), ("/", json.dumps(EVENT)), (f"/cancel/{VICTIM}", None)):
        assert page.evaluate(POSTED, [path, body]) == 403
    for path in ("/api/v1/instances", "/viewer/", "/metrics"):
        assert page.evaluate("async (path) => (await fetch(path)).status", path) == 403
    assert page.evaluate("async () => (await fetch('/health/live')).status") == 200, "the name does lead to the app"

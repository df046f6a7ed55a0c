"""Tests of every page: on wide and narrow screens, in both themes, with and without scripts, and its accessibility."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page
from starlette.applications import Starlette
from starlette.routing import Mount
from tests.viewer.conftest import Site, Watched
from tests.viewer.page_checks import find_faults
from tests.viewer.sample_app import EVIL_ID

PAGES = {
    "overview": "",
    "instances": "instances",
    "instances-filtered": "instances?q=status%3Awaiting",
    "instances-nothing": "instances?q=id%3Amissing",
    "instance-completed": "instance?id=order-1",
    "instance-diagram": "instance?id=order-1&view=diagram",
    "instance-code": "instance?id=order-1&view=code",
    "instance-failed": "instance?id=order-2",
    "instance-waiting": "instance?id=order-3",
    "instance-sleeping": "instance?id=sleeper",
    "instance-slept": "instance?id=napper",
    "instance-slept-open": "instance?id=napper&open=all",
    "instance-retrying": "instance?id=banking",
    "instance-compensating": "instance?id=undoing",
    "instance-generations": "instance?id=counter&view=generations",
    "instance-old-generation": "instance?id=counter&gen=2",
    "instance-audit": "instance?id=evil-paused&view=audit",
    "instance-full": "instance?id=order-2&view=history&full=1",
    "instance-listening": "instance?id=listener",
    "instance-evil": f"instance?id={quote(EVIL_ID, safe='')}",
    "instance-evil-failed": "instance?id=evil-fail&view=history&full=1",
    "instance-evil-waiting": "instance?id=evil-wait&view=code",
    "instance-evil-long": "instance?id=evil-long",
    "start": "start",
    "start-checkout": "start?workflow=checkout",
    "start-like": "start?like=order-1",
    "start-json": "start?workflow=checkout&as=json",
    "start-evil": f"start?like={quote(EVIL_ID, safe='')}",
    "event": "event?id=order-3",
    "event-evil": "event?id=evil-wait",
    "confirm": "confirm?action=cancel&id=order-3",
    "confirm-all": "confirm?action=cancel&all=1&q=status%3Afailed",
    "workflows": "workflows",
    "workers": "workers",
    "channels": "channels",
    "channel": "channels?name=orders",
    "groups": "groups",
    "group": "groups?name=watchers",
    "outbox": "outbox",
    "dead-letters": "outbox?dead=1",
    "batches": "batches",
    "audit": "audit",
}
SIZES = {"wide": (1280, 900), "narrow": (400, 800)}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_no_faults(name: str, site: Site, page: Page) -> None:
    themes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for theme in themes:
        page.emulate_media(color_scheme=theme)
        for size, (width, height) in SIZES.items():
            page.set_viewport_size({"width": width, "height": height})
            answer = page.goto(f"{site.root}/viewer/{PAGES[name]}")
            assert answer is not None
            assert answer.status == 200
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
            assert find_faults(page) == [], (theme, size)
            assert page.title().endswith("· romancy")


@pytest.mark.parametrize("name", ["overview", "instances", "instance-completed", "start-checkout", "workers"])
def test_a_page_says_the_same_without_scripts(name: str, site: Site, chromium: Browser) -> None:
    with_scripts = chromium.new_context()
    without = chromium.new_context(java_script_enabled=False)
    texts = []
    for context in (with_scripts, without):
        page = context.new_page()
        page.goto(f"{site.root}/viewer/{PAGES[name]}")
        texts.append(sorted(page.locator("h1, h2, tbody th, label").all_inner_texts()))
        context.close()
    assert texts[0] == texts[1]


_ADDRESSES = "links => links.map(one => new URL(one.getAttribute('href'), location.href).href)"


def test_every_link_of_every_page_leads_somewhere(site: Site, page: Page, watched: Watched) -> None:
    links: set[str] = set()
    for path in PAGES.values():
        page.goto(f"{site.root}/viewer/{path}")
        links |= set(page.eval_on_selector_all("a[href]", _ADDRESSES))
    assert len(links) > 100
    for link in sorted({link.partition("#")[0] for link in links}):
        answer = page.request.get(link)
        assert answer.status == 200, link


def test_the_viewer_works_below_any_mount_path(new_site: Callable[..., Site], page: Page) -> None:
    site = new_site(wrap=lambda app: Starlette(routes=[Mount("/ops/flows", app)]), empty=True)
    page.goto(f"{site.root}/ops/flows/viewer")
    assert page.url == f"{site.root}/ops/flows/viewer/"
    page.get_by_role("link", name="Instances", exact=True).click()
    assert page.url == f"{site.root}/ops/flows/viewer/instances"
    page.locator("#live.on").wait_for()
    page.locator("#theme").click()
    page.reload()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    page.get_by_role("link", name="Start", exact=True).click()
    page.get_by_role("link", name="patient").click()
    page.get_by_label("days").fill("0.5")
    page.get_by_label("Instance id").fill("mounted")
    page.get_by_role("button", name="Start").click()
    assert page.url.startswith(f"{site.root}/ops/flows/viewer/instance?id=mounted")


def test_an_empty_app_says_how_to_begin(new_site: Callable[..., Site], page: Page) -> None:
    site = new_site(empty=True)
    for path in ("", "instances", "channels", "groups", "outbox", "batches", "audit"):
        page.goto(f"{site.root}/viewer/{path}")
        assert find_faults(page) == [], path
        assert page.locator("main .empty, main .calm").count() > 0, path


def test_light_and_dark_are_remembered_and_need_no_script(site: Site, chromium: Browser) -> None:
    context = chromium.new_context(java_script_enabled=False, color_scheme="light")
    page = context.new_page()
    page.goto(f"{site.root}/viewer/instances?q=status%3Afailed")
    page.locator("#theme").click()
    assert page.url == f"{site.root}/viewer/instances?q=status%3Afailed"
    assert page.locator("html").get_attribute("data-theme") == "dark"
    page.locator("#theme").click()
    assert page.locator("html").get_attribute("data-theme") == "light"
    context.close()


def test_errors_are_shown_on_a_page(site: Site, page: Page, watched: Watched) -> None:
    watched.expected.append("Failed to load resource")
    for path, status, says in (
        ("instance?id=missing", 404, "missing"),
        ("instance?id=order-1&gen=7", 404, "Generation 7"),
        ("instance?id=order-1&gen=x", 400, "give a whole number"),
        ("instances?q=status%3Aodd", 400, "not a status"),
        ("instances?after=odd", 400, "page_token"),
        ("confirm?action=explode&id=order-1", 400, "explode"),
        ("batches?id=missing", 404, "missing"),
    ):
        answer = page.goto(f"{site.root}/viewer/{path}")
        assert answer is not None
        assert answer.status == status, path
        assert says in page.get_by_role("alert").inner_text(), path
        assert find_faults(page) == [], path


def test_assets_are_asked_for_again_only_if_they_changed(site: Site, page: Page) -> None:
    first = page.request.get(f"{site.root}/viewer/assets/viewer.css")
    again = page.request.get(f"{site.root}/viewer/assets/viewer.css", headers={"if-none-match": first.headers["etag"]})
    assert (first.status, again.status) == (200, 304)
    assert first.headers["content-type"].startswith("text/css")
    assert page.request.get(f"{site.root}/viewer/assets/none.js").status == 404
    assert page.request.get(f"{site.root}/viewer/assets/..%2Fpage.py").status == 404


def test_a_payload_can_be_kept_in_full(site: Site, page: Page) -> None:
    answer = page.request.get(f"{site.root}/viewer/payload?id=evil-long&what=input")
    assert answer.headers["content-disposition"] == 'attachment; filename="input.json"'
    assert answer.headers["content-type"] == "application/json"
    assert len(answer.json()["text"]) == 1_000_000
    assert page.request.get(f"{site.root}/viewer/payload?id=evil-fail&what=error").json()["type"].endswith("TerminalError")

"""Tests of live updates of the pages, and of the keyboard."""

from __future__ import annotations

import re
from itertools import count
from urllib.parse import quote

from playwright.sync_api import Page, expect
from tests.viewer.conftest import Site
from tests.viewer.sample_app import ORDER, checkout, payment

from romancy import App

_NUMBERS = count(5000)


def start(site: Site, one: str, number: int) -> None:
    site.run(lambda app: app.start_workflow(payment.with_options(instance_id=one), number))


def pay(site: Site, number: int) -> None:
    async def send(app: App) -> None:
        await app.send_event("payment.completed", "test", {"cents": 5}, subject=str(number))

    site.run(send)


def test_an_instance_is_updated_while_it_runs(site: Site, page: Page) -> None:
    number = next(_NUMBERS)
    start(site, f"live-{number}", number)
    page.goto(f"{site.root}/viewer/instance?id=live-{number}")
    page.locator("#live.on").wait_for()
    rows = page.locator(".tracks .row").count()
    pay(site, number)
    expect(page.locator("h1 .status")).to_have_text("completed")
    expect(page.locator(".tracks .row")).not_to_have_count(rows)
    expect(page.locator("#announce")).to_have_text("Status: completed.")


def test_a_list_announces_new_rows_and_moves_none(site: Site, page: Page) -> None:
    number = next(_NUMBERS)
    start(site, f"list-{number}-a", number)
    page.goto(f"{site.root}/viewer/instances?q={quote(f'id:list-{number}-*')}")
    page.locator("#live.on").wait_for()
    start(site, f"list-{number}-b", number)
    expect(page.locator("#new")).to_have_text("+1 new")
    assert page.locator("[data-row]").count() == 1
    pay(site, number)
    expect(page.locator("[data-row] .status")).to_have_text("completed")
    page.locator("#new").click()
    expect(page.locator("[data-row]")).to_have_count(2)


def test_nothing_moves_under_the_focus(site: Site, page: Page) -> None:
    number = next(_NUMBERS)
    start(site, f"focus-{number}", number)
    page.goto(f"{site.root}/viewer/instance?id=focus-{number}")
    page.locator("#live.on").wait_for()
    link = page.locator("#view-code")
    page.get_by_role("link", name="Send event").focus()
    pay(site, number)
    expect(page.locator("h1 .status")).to_have_text("completed")
    expect(page.get_by_role("link", name="Send event")).to_be_focused()
    link.focus()


def test_live_updates_can_be_paused(site: Site, page: Page) -> None:
    number = next(_NUMBERS)
    start(site, f"pause-{number}", number)
    page.goto(f"{site.root}/viewer/instance?id=pause-{number}")
    page.locator("#live.on").wait_for()
    page.keyboard.press("p")
    expect(page.locator("#live")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#live")).not_to_have_class(re.compile("on"))
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    pay(site, number)
    with page.expect_request(re.compile("stream")):  # only after the updates are resumed
        assert requested == []
        page.keyboard.press("p")
    expect(page.locator("h1 .status")).to_have_text("completed")


def test_keys(site: Site, page: Page) -> None:
    page.goto(f"{site.root}/viewer/instances?q={quote('id:order-*')}")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("x")
    rows = page.locator("tbody tr")
    expect(rows.nth(1).locator("input")).to_be_checked()
    page.keyboard.press("k")
    chosen = rows.nth(0).get_attribute("data-row")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(f"id={chosen}"))


def test_a_key_that_reaches_a_dialog_just_closed(site: Site, page: Page) -> None:
    """The focus stays in the closed dialog until the browser draws the page again, so a key may still reach the dialog."""
    page.goto(f"{site.root}/viewer/instances")
    dialog = page.locator("#keys-dialog")
    expect(dialog).to_be_hidden()
    dialog.dispatch_event("keydown", {"key": "/", "bubbles": True})
    expect(page.locator("#q")).to_be_focused()


def test_keys_on_an_instance_and_turning_them_off(site: Site, page: Page) -> None:
    page.goto(f"{site.root}/viewer/instance?id=counter")
    page.keyboard.press("d")
    page.wait_for_url(re.compile("view=diagram"))
    expect(page.locator("svg.diagram")).to_be_visible()
    page.keyboard.press("[")
    page.wait_for_url(re.compile("gen=3"))
    page.keyboard.press("]")
    page.wait_for_url(re.compile(r"id=counter$"))
    page.keyboard.press("e")
    expect(page.locator("#explain")).to_be_focused()
    page.keyboard.press("?")
    page.get_by_label("Enable keyboard shortcuts").uncheck()
    page.keyboard.press("Escape")
    before = page.url
    page.keyboard.press("d")
    page.reload()
    page.keyboard.press("d")
    assert page.url == before


def test_the_arrow_keys_move_through_the_timeline(site: Site, page: Page) -> None:
    page.goto(f"{site.root}/viewer/instance?id=napper")
    page.locator('.tracks .span[aria-label^="charge, attempt 1"]').first.focus()
    expect(page.locator("#tip")).to_contain_text("charge, attempt 1, completed after")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#tip")).to_contain_text("sleep, timer, completed after")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#tip")).to_contain_text("shaky")
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    assert page.locator('.tracks .span[tabindex="0"]').count() == 1
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"#seq\d"))
    expect(page.locator("tr:target")).to_be_visible()


def test_a_gap_is_expanded_and_collapsed(site: Site, page: Page) -> None:
    page.goto(f"{site.root}/viewer/instance?id=napper")
    gaps = page.locator(".gap-link").count()
    assert gaps >= 1
    page.keyboard.press("z")
    page.wait_for_url(re.compile("open=all"))
    expect(page.locator(".gap-link")).to_have_count(0)
    page.keyboard.press("z")
    expect(page.locator(".gap-link")).to_have_count(gaps)
    page.locator(".gap-link").first.click()
    page.wait_for_url(re.compile(r"open=\d+"))
    expect(page.locator(".gap-link")).not_to_have_count(gaps)


def test_many_calls_of_one_name_unfold(site: Site, page: Page) -> None:
    one = f"fold-{next(_NUMBERS)}"
    site.run(lambda app: app.start_workflow(checkout.with_options(instance_id=one), ORDER))
    page.goto(f"{site.root}/viewer/instance?id=order-1")
    fold = page.locator(".row summary", has_text="9 calls")
    inner = page.locator(".row details .row")
    expect(inner.first).to_be_hidden()
    fold.click()
    expect(inner).to_have_count(9)
    expect(inner.first).to_be_visible()

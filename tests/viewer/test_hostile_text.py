"""Tests that hostile names, inputs, errors and ids are shown as text."""

from __future__ import annotations

from urllib.parse import quote, unquote

import pytest
from playwright.sync_api import Page, expect
from tests.viewer.conftest import Site, Watched
from tests.viewer.sample_app import EVIL_ID, patient
from tests.viewer.test_pages import PAGES

SCRIPT = "<script>document.title='pwned'</script>"
_HOSTILE_PAGES = [
    "instances",
    *(name for name in PAGES if "evil" in name),
    "outbox",
    "instance-audit",
    "workflows",
    "workers",
]


@pytest.mark.parametrize("name", _HOSTILE_PAGES)
def test_hostile_text_is_not_executed(name: str, site: Site, page: Page) -> None:
    page.goto(f"{site.root}/viewer/{PAGES[name]}")
    page.wait_for_load_state("load")
    assert page.title().endswith("· romancy")
    assert page.locator("main img, main script, main b").count() == 0
    shown = page.locator("body").inner_text()
    assert not {"\u202e", "\0", "\x07"} & set(shown)


@pytest.mark.parametrize("name", ["instances", "instance-evil-failed", "instance-evil", "outbox"])
def test_hostile_text_is_shown_escaped(name: str, site: Site, page: Page) -> None:
    page.goto(f"{site.root}/viewer/{PAGES[name]}")
    shown = page.locator("main").inner_text()
    assert SCRIPT in shown
    assert "\\u202e" in shown
    assert "\\x07" in shown or "\\u0007" in shown


def test_a_hostile_id_links_to_its_instance(site: Site, page: Page) -> None:
    page.goto(f"{site.root}/viewer/instances?q={quote('workflow:evil status:completed')}")
    page.get_by_role("link", name="../a?b#c").click()
    assert unquote(page.locator("body").get_attribute("data-instance") or "") == EVIL_ID
    page.get_by_role("link", name="Start a copy").click()
    # A value with characters that a form field cannot hold is shown as JSON, so that the copy has the same input.
    assert SCRIPT in page.get_by_label("text").input_value()
    page.get_by_label("Instance id").fill("evil-again")
    page.get_by_role("button", name="Start").click()
    page.wait_for_url("**/instance?id=evil-again**")
    again = site.run(lambda app: app.get_instance("evil-again"))
    before = site.run(lambda app: app.get_instance(EVIL_ID))
    assert again is not None
    assert before is not None
    assert again.input == before.input


def test_ids_with_line_breaks_can_be_acted_on(site: Site, page: Page) -> None:
    one = "two\r\nlines\n\r"
    site.run(lambda app: app.start_workflow(patient.with_options(instance_id=one), 9))
    page.goto(f"{site.root}/viewer/instances?q={quote('workflow:patient id:two*')}")
    page.locator("input[name=key]").check()
    page.get_by_role("button", name="Terminate").click()
    page.get_by_role("dialog").get_by_role("button", name="Terminate").click()
    expect(page.locator("h1 .status")).to_have_text("terminated")
    assert unquote(page.locator("body").get_attribute("data-instance") or "") == one


def test_an_invalid_filter_is_shown_as_text(site: Site, page: Page, watched: Watched) -> None:
    watched.expected.append("400")
    page.goto(f"{site.root}/viewer/instances?q={quote('<img src=x onerror=alert(1)>:1')}")
    assert "onerror=alert(1)" in page.get_by_role("alert").inner_text()
    assert page.locator("main img").count() == 0


def test_a_long_value_is_cut_and_the_page_stays_small(site: Site, page: Page) -> None:
    answer = page.goto(f"{site.root}/viewer/instance?id=evil-long")
    assert answer is not None
    assert len(answer.body()) < 400_000
    assert "the full value (1.0 MB)" in page.locator("main").inner_text()

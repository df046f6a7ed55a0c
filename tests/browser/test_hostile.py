"""Whatever users put into names, inputs, errors and ids is shown as text."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from playwright.sync_api import Page
from tests.browser.conftest import Site
from tests.browser.test_pages import PAGES
from tests.browser.world import EVIL_ID

SAID = "<script>document.title='pwned'</script>"
_STRANGE = ["instances", *(name for name in PAGES if "evil" in name), "outbox", "instance-audit", "workflows", "workers"]


@pytest.mark.parametrize("name", _STRANGE)
def test_nothing_of_it_is_obeyed(name: str, site: Site, page: Page) -> None:
    page.goto(f"{site.root}/viewer/{PAGES[name]}")
    page.wait_for_load_state("load")
    assert page.title().endswith("· romancy")
    assert page.locator("main img, main script, main b").count() == 0
    raw = page.content()
    assert "\u202e" not in raw
    assert "\0" not in raw


@pytest.mark.parametrize("name", ["instances", "instance-evil-failed", "instance-evil", "outbox"])
def test_all_of_it_is_shown(name: str, site: Site, page: Page) -> None:
    page.goto(f"{site.root}/viewer/{PAGES[name]}")
    shown = page.locator("main").inner_text()
    assert SAID in shown
    assert "\\u202e" in shown
    assert "\\x07" in shown or "\\u0007" in shown


def test_an_id_of_anything_leads_to_its_instance_and_back(site: Site, page: Page) -> None:
    page.goto(f"{site.root}/viewer/instances?q={quote('workflow:evil status:completed')}")
    page.get_by_role("link", name="../a?b#c").click()
    assert page.locator("body").get_attribute("data-instance") == EVIL_ID
    page.get_by_role("link", name="Start another like it").click()
    assert SAID in page.get_by_label("text").input_value()


def test_a_filter_that_is_no_filter_is_said_as_text(site: Site, page: Page, watched: object) -> None:
    watched.expected.append("400")  # type: ignore[attr-defined]
    page.goto(f"{site.root}/viewer/instances?q={quote('<img src=x onerror=alert(1)>:1')}")
    assert "onerror=alert(1)" in page.get_by_role("alert").inner_text()
    assert page.locator("main img").count() == 0


def test_a_long_value_is_cut_and_the_page_stays_small(site: Site, page: Page) -> None:
    answer = page.goto(f"{site.root}/viewer/instance?id=evil-long")
    assert answer is not None
    assert len(answer.body()) < 400_000
    assert "1.0 MB in all" in page.locator("main").inner_text()

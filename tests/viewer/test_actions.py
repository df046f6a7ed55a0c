"""Tests of the actions of operators in the viewer, click by click."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from itertools import count
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.viewer.conftest import Site, Watched
from tests.viewer.page_checks import find_faults
from tests.viewer.sample_app import listener, patient, payment, stolen

from romancy import App, Status, Token

_NUMBERS = count(1000)


def start_waiting(site: Site, prefix: str = "acting", how_many: int = 1) -> list[str]:
    """Start instances that wait for an event; return their ids."""
    ids = [f"{prefix}-{next(_NUMBERS)}" for _ in range(how_many)]

    async def start(app: App) -> None:
        for one in ids:
            await app.start_workflow(payment.with_options(instance_id=one), int(one.rpartition("-")[2]))
        await wait_until(app, ids, Status.WAITING_FOR_EVENT)

    site.run(start)
    return ids


async def wait_until(app: App, ids: list[str], *wanted: Status) -> None:
    async with asyncio.timeout(20):
        for one in ids:
            while await app.get_handle(one).status() not in wanted:
                await asyncio.sleep(0.01)


def until(site: Site, instance_id: str, *wanted: Status) -> None:
    site.run(lambda app: wait_until(app, [instance_id], *wanted))


def open_instance(page: Page, site: Site, instance_id: str) -> None:
    page.goto(f"{site.root}/viewer/instance?id={quote(instance_id)}")


def test_cancel_shows_the_compensations_first(site: Site, page: Page) -> None:
    (one,) = start_waiting(site)
    open_instance(page, site, one)
    page.get_by_role("link", name="Cancel").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("reserve:1")).to_be_visible()
    assert find_faults(page) == []
    dialog.get_by_label("Reason").fill("the customer left")
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("status")).to_contain_text("Cancellation requested")
    until(site, one, Status.CANCELLED)
    page.goto(f"{site.root}/viewer/instance?id={one}&view=audit")
    assert "the customer left" in page.locator(".views").inner_text()
    assert page.locator(".lane").inner_text().strip() == "Rollback"


def test_a_dialog_can_be_left_without_harm(site: Site, page: Page) -> None:
    (one,) = start_waiting(site)
    open_instance(page, site, one)
    page.get_by_role("link", name="Terminate").click()
    page.get_by_role("dialog").get_by_role("link", name="Back").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.get_by_role("link", name="Terminate").click()
    expect(page.get_by_role("dialog").get_by_label("Reason")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    until(site, one, Status.WAITING_FOR_EVENT)


def test_pause_resume_terminate(site: Site, page: Page) -> None:
    (one,) = start_waiting(site)
    open_instance(page, site, one)
    for action, status in (("Pause", Status.PAUSED), ("Resume", Status.WAITING_FOR_EVENT), ("Terminate", Status.TERMINATED)):
        page.get_by_role("link", name=action).click()
        page.get_by_role("dialog").get_by_role("button", name=action).click()
        expect(page.get_by_role("status")).to_be_visible()
        until(site, one, status)
        page.reload()


def test_retry_a_failed_instance(site: Site, page: Page) -> None:
    one = f"retry-{next(_NUMBERS)}"

    async def start(app: App) -> None:
        await app.start_workflow(stolen.with_options(instance_id=one), "no luck")
        await wait_until(app, [one], Status.FAILED)

    site.run(start)
    open_instance(page, site, one)
    page.get_by_role("link", name="Retry").click()
    page.get_by_role("dialog").get_by_role("button", name="Retry").click()
    expect(page.get_by_role("status")).to_contain_text("Instance retried.")

    async def tried_again(app: App) -> None:
        async with asyncio.timeout(20):
            while len([entry async for entry in app.get_handle(one).history() if entry.name == "refuse"]) < 2:
                await asyncio.sleep(0.01)

    site.run(tried_again)
    until(site, one, Status.FAILED)


def test_several_at_once(site: Site, page: Page) -> None:
    ids = start_waiting(site, "several", 3)
    page.goto(f"{site.root}/viewer/instances?q={quote('id:several-* status:live')}")
    assert page.get_by_role("button", name="Cancel").is_disabled()
    page.get_by_label("Select all on this page").check()
    page.get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"Cancel {len(ids)} instances")
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("status")).to_contain_text("3 of 3 instances cancelled")
    for one in ids:
        until(site, one, Status.CANCELLED)


def test_a_refused_action_shows_the_reason(site: Site, page: Page) -> None:
    page.goto(f"{site.root}/viewer/instances?q=id%3Aorder-1")
    page.get_by_label("Select order-1").check()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("status")).to_contain_text("1 refused")
    assert "completed" in page.locator("tbody").inner_text()


def test_an_action_on_all_matches_becomes_a_batch(site: Site, page: Page) -> None:
    ids = start_waiting(site, "batch", 4)
    page.goto(f"{site.root}/viewer/instances?q={quote('id:batch-* status:live')}")
    page.get_by_label("All instances that match").check()
    page.get_by_role("button", name="Terminate").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("tidy up")
    dialog.get_by_role("button", name="Terminate").click()
    expect(dialog).to_be_visible()  # the form needs the name of the action first
    dialog.get_by_label("Type").fill("terminate")
    dialog.get_by_role("button", name="Terminate").click()
    page.wait_for_url(re.compile(r"/batches\?id="))
    for one in ids:
        until(site, one, Status.TERMINATED)
    expect(page.locator("tbody tr").first).to_contain_text("tidy up")
    expect(page.locator("tbody tr").first).to_contain_text("done")


def test_send_the_awaited_event(site: Site, page: Page, watched: Watched) -> None:
    watched.expected.append("status of 400")
    (one,) = start_waiting(site)
    open_instance(page, site, one)
    page.get_by_role("link", name="Send event payment.completed").click()
    assert page.get_by_label("Type").input_value() == "payment.completed"
    assert page.get_by_label("Subject").input_value() == one.rpartition("-")[2]
    page.get_by_label("cents").fill("many")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".field.wrong .error")).to_contain_text("not a whole number")
    page.get_by_label("cents").fill("1200")
    page.get_by_role("button", name="Send").click()
    until(site, one, Status.COMPLETED)
    open_instance(page, site, one)
    assert "1200 from payer" in page.locator("#json-output").inner_text()


def test_send_an_event_as_json(site: Site, page: Page, watched: Watched) -> None:
    watched.expected.append("status of 400")
    (one,) = start_waiting(site)
    page.goto(f"{site.root}/viewer/event?id={one}&as=json")
    page.get_by_label("Data").fill("{")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("alert")).to_contain_text("not valid JSON")
    page.get_by_label("Data").fill('{"cents": 7}')
    page.get_by_role("button", name="Send").click()
    until(site, one, Status.COMPLETED)


def test_send_a_message(site: Site, page: Page) -> None:
    one = f"listening-{next(_NUMBERS)}"

    async def start(app: App) -> None:
        await app.start_workflow(listener.with_options(instance_id=one), f"channel-{one}")
        await wait_until(app, [one], Status.WAITING_FOR_MESSAGE)

    site.run(start)
    open_instance(page, site, one)
    page.get_by_role("link", name=re.compile("Send a message")).click()
    page.get_by_label("Data").fill('"hello"')
    page.get_by_role("button", name="Send").click()
    until(site, one, Status.COMPLETED)


def test_start_with_a_form(site: Site, page: Page, watched: Watched) -> None:
    watched.expected.append("status of 400")
    one = f"form-{next(_NUMBERS)}"
    page.goto(f"{site.root}/viewer/workflows")
    page.get_by_role("link", name="Start checkout").click()
    page.get_by_label("customer").fill("Grace")
    page.get_by_label("price").fill("cheap")
    page.get_by_label("express").check()
    page.get_by_role("button", name="+ Add").click()
    page.get_by_label("sku").fill("compiler")
    page.get_by_label("count").fill("0")
    page.get_by_label("Include address").check()
    page.get_by_label("street").fill("Main")
    page.get_by_label("city").fill("York")
    page.get_by_label("colour").select_option(label="green")
    page.get_by_label("notes").fill('{"a": "b"}')
    page.get_by_label("Instance id").fill(one)
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("alert")).to_be_visible()
    assert find_faults(page) == []
    wrong = page.locator(".field.wrong")
    assert sorted(wrong.locator("label").all_inner_texts()) == ["count optional", "price"]
    assert page.get_by_label("customer").input_value() == "Grace"
    page.get_by_label("price").fill("12.50")
    page.get_by_label("count").fill("2")
    page.get_by_role("button", name="+ Add").click()
    page.get_by_label("sku").nth(1).fill("gone")
    page.get_by_role("button", name="Remove").nth(1).click()
    page.get_by_role("button", name="Start").click()
    page.wait_for_url(re.compile(f"id={one}"))
    instance = site.run(lambda app: app.get_instance(one))
    assert instance is not None
    order = instance.input["order"]
    assert order["items"] == [{"sku": "compiler", "count": 2, "gift": False}]
    assert (order["colour"], order["price"], order["address"]) == ("green", "12.50", {"street": "Main", "city": "York"})
    until(site, one, Status.COMPLETED)


def test_start_a_copy(site: Site, page: Page) -> None:
    open_instance(page, site, "order-1")
    page.get_by_role("link", name="Start a copy").click()
    assert page.get_by_label("customer").input_value() == "Ada Lovelace"
    one = f"like-{next(_NUMBERS)}"
    page.get_by_label("Instance id").fill(one)
    page.get_by_role("button", name="Start").click()
    page.wait_for_url(re.compile(f"id={one}"))
    first, second = site.run(lambda app: app.get_instance("order-1")), site.run(lambda app: app.get_instance(one))
    assert first is not None
    assert second is not None
    assert first.input == second.input


def test_an_instance_id_that_exists_is_refused(site: Site, page: Page, watched: Watched) -> None:
    watched.expected.append("status of 400")
    page.goto(f"{site.root}/viewer/start?workflow=patient")
    page.get_by_label("days").fill("3")
    page.get_by_label("Instance id").fill("order-1")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("alert")).to_contain_text("order-1")


def test_dead_letters_are_sent_again(site: Site, page: Page) -> None:
    page.goto(f"{site.root}/viewer/outbox?dead=1")
    before = page.locator("tbody tr").count()
    assert before >= 1
    page.locator("input[name=letter]").first.check()
    page.get_by_role("button", name="Send selected again").click()
    expect(page.get_by_role("status")).to_contain_text("1 event will be sent again")

    async def dead_again(app: App) -> None:
        async with asyncio.timeout(20):
            while len((await app.list_outbox(dead=True)).items) < before:
                await asyncio.sleep(0.01)

    site.run(dead_again)


def test_everything_works_without_scripts(site: Site, chromium: Browser) -> None:
    (one,) = start_waiting(site)
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{site.root}/viewer/instances?q=id%3A{one}")
    page.locator("input[name=key]").check()
    page.get_by_role("button", name="Pause").click()
    page.get_by_label("Reason").fill("no scripts here")
    page.get_by_role("button", name="Pause").click()
    assert page.get_by_role("status").inner_text().strip() == "Instance paused."
    until(site, one, Status.PAUSED)
    page.get_by_role("link", name="Resume").click()
    page.get_by_role("button", name="Resume").click()
    until(site, one, Status.WAITING_FOR_EVENT)
    page.goto(f"{site.root}/viewer/event?id={one}")
    page.get_by_label("cents").fill("1")
    page.get_by_role("button", name="Send").click()
    until(site, one, Status.COMPLETED)
    context.close()


@pytest.mark.parametrize("path", ["do", "start", "event", "requeue", "abort", "confirm"])
def test_a_page_of_another_origin_cannot_act(path: str, site: Site, page: Page) -> None:
    (one,) = start_waiting(site)
    form: dict[str, str | float | bool] = {
        "action": "terminate",
        "id": one,
        "all": "1",
        "word": "terminate",
        "q": f"id:{one}",
    }
    answer = page.request.post(f"{site.root}/viewer/{path}", form=form, headers={"origin": "https://evil.example"})
    assert answer.status == 403
    until(site, one, Status.WAITING_FOR_EVENT)


def test_the_role_read_sees_no_buttons_and_cannot_act(new_site: Callable[..., Site], page: Page, watched: Watched) -> None:
    watched.expected += ["401", "403"]
    site = new_site(empty=True, auth=[Token("boss-token"), Token("guest-token", role="read")])
    site.run(lambda app: app.start_workflow(patient.with_options(instance_id="one"), 3))
    for wrong in ("", "wrong-token"):
        page.goto(f"{site.root}/viewer/instances")
        assert page.locator("h1").inner_text() == "Log in"
        if wrong:
            page.get_by_label("Token").fill(wrong)
            page.get_by_role("button", name="Log in").click()
            assert "not a token" in page.locator("main").inner_text()
    assert find_faults(page) == []
    page.goto(f"{site.root}/viewer/instances?q=one")
    page.get_by_label("Token").fill("guest-token")
    page.get_by_role("button", name="Log in").click()
    assert page.url == f"{site.root}/viewer/instances?q=one"
    expect(page.get_by_text("Read only")).to_be_visible()
    assert page.get_by_role("button", name="Cancel").count() == 0
    page.get_by_role("link", name="one", exact=True).click()
    assert page.locator(".actions").count() == 0
    headers = {"origin": site.root}
    assert page.request.post(f"{site.root}/viewer/do", form={"action": "cancel", "id": "one"}, headers=headers).status == 403
    page.get_by_role("button", name="Log out").click()
    page.goto(f"{site.root}/viewer/")
    assert page.locator("h1").inner_text() == "Log in"
    page.get_by_label("Token").fill("boss-token")
    page.get_by_role("button", name="Log in").click()
    page.goto(f"{site.root}/viewer/instance?id=one")
    page.get_by_role("link", name="Terminate").click()
    page.get_by_role("dialog").get_by_role("button", name="Terminate").click()
    until(site, "one", Status.TERMINATED)

"""Tests of the commands that read: `list`, `get`, `history`, `explain`, `result`, and those for workers and channels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from tests.cli.sample_database import HOSTILE, CommandTarget, prepare

from romancy.admin.records import Explanation, HistoryPage, InstanceDetail, InstancePage, WorkerSummary

ALL = {"done-1", "failed-1", "failed-2", "waits-1", "waits-2", "paused-1", "gone-1", "ended-1", "nap-1", "listens-1"}


def test_a_list_is_a_table_with_the_wait_of_each_instance(place: CommandTarget) -> None:
    lines = place.succeed("list", "id:waits-1").splitlines()
    assert lines[0] == place.options[1]
    assert "waiting_for_event" in lines[-1]
    assert "waiting for event paid, subject 1" in lines[-1]


def test_ids_are_for_the_next_command(place: CommandTarget) -> None:
    assert set(place.succeed("list", "--status", "failed", "id:failed-*", "-o", "ids").split()) == {"failed-1", "failed-2"}
    assert set(place.succeed("list", "-o", "ids").splitlines()) >= {*ALL, json.dumps(HOSTILE)}


def test_json_is_what_the_api_answers(place: CommandTarget) -> None:
    page = place.json("list", "status:failed", "id:failed-*")
    assert set(page) == {"items", "next_page_token", "searched_back_to"}
    read = TypeAdapter(InstancePage).validate_python(page)
    assert {one.instance_id for one in read.items} == {"failed-1", "failed-2"}
    one = TypeAdapter(InstanceDetail).validate_python(place.json("get", "failed-1"))
    assert one.error is not None
    assert one.error.type.endswith("TerminalError")
    lines = place.succeed("list", "status:failed", "id:failed-*", "-o", "jsonl").splitlines()
    assert sorted(json.loads(line)["instance_id"] for line in lines) == ["failed-1", "failed-2"]


def test_database_and_app_print_the_same(shop: CommandTarget, served: CommandTarget) -> None:
    for arguments in (("get", "done-1"), ("list", "id:failed-*"), ("history", "rounds-1", "--generation", "1")):
        assert shop.json(*arguments) == served.json(*arguments)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--workflow", "nap"], {"nap-1"}),
        (["--input", "customer=bob"], {"waits-2"}),
        (["--waits", "news"], {"listens-1"}),
        (["--error", "refused"], {"failed-1", "failed-2"}),
        (["--filter", "status:completed", "workflow:rounds"], {"rounds-1"}),
        (["--older", "1h"], set()),
        (["--newer", "1h", "--status", "paused", "--status", "cancelled"], {"paused-1", "gone-1"}),
    ],
)
def test_filters(shop: CommandTarget, arguments: list[str], found: set[str]) -> None:
    assert set(shop.succeed("list", "-o", "ids", *arguments).split()) == found


def test_a_list_continues_from_a_page_token(place: CommandTarget) -> None:
    first = place.json("list", "--limit", "3")
    assert len(first["items"]) == 3
    second = place.json("list", "--limit", "3", "--page-token", first["next_page_token"])
    assert not {one["instance_id"] for one in first["items"]} & {one["instance_id"] for one in second["items"]}
    assert "--page-token" in place("list", "--limit", "3").stderr


def test_an_empty_list_says_so(place: CommandTarget) -> None:
    done = place("list", "workflow:nothing")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "No instances match 'workflow:nothing'.\n"


def test_a_filter_that_cannot_be_read_is_wrong_usage(place: CommandTarget) -> None:
    assert "'foo' is not a status" in place.fail("list", "status:foo", code=2)
    assert "--page-token" in place.fail("list", "--page-tokn", "x", code=2)
    assert "is not a page token" in place.fail("list", "--page-token", "x", code=2)


def test_one_instance_with_the_reason_it_waits(place: CommandTarget) -> None:
    printed = place.succeed("get", "waits-1")
    assert "waiting_for_event" in printed
    assert "explanation" in printed
    assert '"number": 1' in printed
    assert place.succeed("get", "waits-1", "-o", "ids") == "waits-1\n"


def test_an_error_is_shown_with_its_trace_and_escaped(place: CommandTarget) -> None:
    printed = place.succeed("get", "failed-1")
    assert "the card\\x1b[31m was refused" in printed
    assert "\x1b" not in printed


def test_an_earlier_generation(place: CommandTarget) -> None:
    assert place.json("get", "rounds-1")["summary"]["generation"] == 2
    assert place.json("get", "rounds-1", "--generation", "1")["input"] == {"left": 1}
    place.fail("get", "rounds-1", "--generation", "9", code=4)


def test_explain(place: CommandTarget) -> None:
    why = TypeAdapter(Explanation).validate_python(place.json("explain", "waits-1"))
    assert (why.verdict, [wake.key for wake in why.wakes]) == (
        "healthy" if place.remote else "stuck",  # no worker runs on the sample database
        ["paid"],
    )
    printed = place.succeed("explain", "waits-1")
    assert why.because in printed
    assert "what you can do" in printed


def test_history(place: CommandTarget) -> None:
    page = TypeAdapter(HistoryPage).validate_python(place.json("history", "waits-1"))
    assert [entry.activity_id for entry in page.items] == ["reserve:1"]
    assert "reserve:1" in place.succeed("history", "waits-1")
    assert "shop:order:" in place.succeed("history", "waits-1", "--full")
    assert place.succeed("history", "waits-1", "-o", "ids") == "reserve:1\n"


def test_the_history_of_what_has_ended_is_followed_to_its_end(place: CommandTarget) -> None:
    done = place("history", "rounds-1", "--follow", "--generation", "1", "-o", "jsonl")
    assert [json.loads(line)["activity_id"] for line in done.stdout.splitlines()] == ["charge:1", "charge:1"]
    assert done.stderr == "rounds-1 is completed.\n"


def test_result(place: CommandTarget) -> None:
    assert place.succeed("result", "done-1") == '"paid"\n'
    assert place.json("result", "done-1")["output"] == "paid"
    assert "the card\\x1b[31m was refused" in place.fail("result", "failed-1", code=1)
    assert "waits-1 did not end within 0 s" in place.fail("result", "waits-1", "--timeout", "0", code=6)


@pytest.mark.parametrize("command", ["get", "explain", "history", "result", "export"])
def test_what_is_not_there(shop: CommandTarget, command: str) -> None:
    assert "'nothere'" in shop.fail(command, "nothere", code=4)


@pytest.mark.parametrize("command", ["get", "explain", "history"])
def test_hostile_ids_are_only_ids(place: CommandTarget, command: str) -> None:
    printed = place.succeed(command, HOSTILE)
    assert "\x1b" not in printed
    assert "\u202e" not in printed
    read = place.json("get", HOSTILE)
    assert read["summary"]["instance_id"] == HOSTILE


def test_workers_and_workflows(served: CommandTarget) -> None:
    workers = TypeAdapter(list[WorkerSummary]).validate_python(served.json("workers")["items"])
    assert any(one.alive and "order" in one.workflows for one in workers)
    assert {"order", "pay", "nap"} <= {one["name"] for one in served.json("workflows")["items"]}
    assert "order" in served.succeed("workflows")
    assert "last heartbeat" in served.succeed("workers")


def test_workflows_of_an_app(shop: CommandTarget) -> None:
    assert "rounds" in shop.succeed("workflows", "--app", "shop:app", "-o", "ids").split()


def test_channels_and_groups(place: CommandTarget) -> None:
    found = {one["name"]: one["mode"] for one in place.json("channels")["items"]}
    assert found["news"] == "broadcast"
    assert "subscribers" in place.succeed("channels")
    assert [one["instance_id"] for one in place.json("channels", "news")["items"]] == ["listens-1"]
    assert "listeners of news" in place.succeed("groups", "-o", "ids").splitlines()
    assert place.json("groups", "listeners of news")["items"] == ["listens-1"]
    assert "listens-1" in place.succeed("groups", "listeners of news")


def test_on_postgresql(postgres: str, tmp_path: Path) -> None:
    prepare(tmp_path, postgres)
    there = CommandTarget(tmp_path, ["--database", postgres])
    assert set(there.succeed("list", "--status", "failed", "-o", "ids").split()) == {"failed-1", "failed-2"}
    lines = there.succeed("list", "id:nap-1").splitlines()
    assert "waiting_for_timer" in lines[-1]
    assert "@" not in lines[0]
    assert there.json("get", HOSTILE)["summary"]["instance_id"] == HOSTILE
    assert there.succeed("cancel", "waits-1").splitlines()[-1].split() == ["waits-1", "cancelled"]
    assert "listeners of news" in there.succeed("groups")

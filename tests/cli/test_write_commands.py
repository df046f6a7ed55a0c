"""Tests of the commands that write: `start`, `event`, `publish`, `send`, the actions, `batch`, `outbox`, `prune`."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.sample_database import HOSTILE, CommandTarget, environment

# --- start


def test_a_workflow_is_started_and_its_result_printed(served: CommandTarget) -> None:
    assert served.succeed("start", "pay", '{"cents": 5}', "--wait") == '"paid"\n'
    assert served.succeed("start", "pay", "cents=5", "--id", "cli-pay") == "cli-pay\n"
    assert served.succeed("start", "pay", "cents=5", "--id", "cli-pay") == "cli-pay\n"
    assert served.succeed("result", "cli-pay", "--timeout", "30s") == '"paid"\n'
    assert served.json("start", "pay", "cents=5", "--id", "cli-pay") == {"instance_id": "cli-pay"}
    assert "cli-pay" in served.fail("start", "pay", "cents=6", "--id", "cli-pay", code=5)


def test_a_result_that_is_a_failure(served: CommandTarget) -> None:
    assert "the card\\x1b[31m was refused" in served.fail("start", "pay", "cents=-1", "--wait", code=1)


def test_input_that_does_not_fit_is_wrong_usage_and_named(served: CommandTarget) -> None:
    assert "cents" in served.fail("start", "pay", "cents=many", code=2)
    assert "cents" in served.fail("start", "pay", code=2)
    assert "not valid JSON" in served.fail("start", "pay", "{", code=2)
    assert "not a JSON object" in served.fail("start", "pay", "[1]", code=2)


def without_code(served: CommandTarget) -> CommandTarget:
    """The database of a running app as the target: commands on it do not have the code of the workflows."""
    return CommandTarget(served.folder, ["--database", "shop.db"])


def test_input_is_checked_without_the_code_too(served: CommandTarget) -> None:
    direct = without_code(served)
    assert "cents: should be a whole number" in direct.fail("start", "pay", "cents=many", "--id", "unfit", code=2)
    assert "cents: is missing" in direct.fail("start", "pay", "--id", "unfit", code=2)
    assert "cent: is not a field" in direct.fail("start", "pay", "cents=5", "cent=5", "--id", "unfit", code=2)
    assert "seconds: should be a number" in direct.fail("start", "nap", '{"seconds": [1]}', "--id", "unfit", code=2)
    direct.fail("get", "unfit", code=4)
    assert direct.succeed("start", "pay", "cents=5", "--id", "fit", "--wait") == '"paid"\n'
    assert direct.succeed("start", "order", "number=1", "customer=42", "--id", "typed-afar") == "typed-afar\n"
    assert direct.json("get", "typed-afar")["input"] == {"number": 1, "customer": "42"}


def test_an_id_with_other_arguments_is_refused_with_and_without_the_code(served: CommandTarget) -> None:
    direct = without_code(served)
    served.succeed("start", "order", "number=300", "--id", "by-app")
    assert direct.succeed("start", "order", "number=300", "--id", "by-app") == "by-app\n"
    assert direct.succeed("start", "order", "customer=ada", "number=300", "--id", "by-app") == "by-app\n"
    assert "number was 300, and is now 301" in direct.fail("start", "order", "number=301", "--id", "by-app", code=5)
    assert "customer was" in direct.fail("start", "order", "number=300", "customer=eve", "--id", "by-app", code=5)
    direct.succeed("start", "order", "number=302", "--id", "by-hand")
    assert served.succeed("start", "order", "number=302", "--id", "by-hand") == "by-hand\n"
    assert direct.succeed("start", "order", "number=302", "--id", "by-hand") == "by-hand\n"
    assert "number was 302" in served.fail("start", "order", "number=303", "--id", "by-hand", code=5)
    assert "number was 302" in direct.fail("start", "order", "number=303", "--id", "by-hand", code=5)


def test_a_dry_cancellation_names_the_compensations_without_the_code_too(served: CommandTarget) -> None:
    served.succeed("start", "order", "number=304", "--id", "dry-cancel")
    wait_for(served, "dry-cancel", "waiting_for_event")
    for place in (served, without_code(served)):
        assert "compensates reserve (reserve:1)" in place.succeed("cancel", "dry-cancel", "--dry-run")


def test_an_unknown_workflow(served: CommandTarget) -> None:
    assert "Did you mean order?" in served.fail("start", "ordr", code=4)


def test_arguments_are_converted_by_the_annotations_of_the_code(shop: CommandTarget) -> None:
    """The annotation of a parameter decides: `customer` is a string, so 42 becomes "42"; `number` is a number."""
    shop.succeed("start", "order", "number=7", "customer=42", "--app", "shop:app", "--id", "typed")
    assert shop.json("get", "typed")["input"] == {"number": 7, "customer": "42"}


def test_input_from_files_and_standard_input(shop: CommandTarget) -> None:
    (shop.folder / "in.json").write_text('{"number": 8, "customer": "eve"}')
    shop.succeed("start", "order", "--input", "@in.json", "--input", "customer=bob", "--app", "shop:app", "--id", "a")
    assert shop.json("get", "a")["input"] == {"number": 8, "customer": "bob"}
    shop.succeed("start", "order", "--input", "@-", "--app", "shop:app", "--id", "b", given='{"number": 9}')
    assert shop.json("get", "b")["input"]["number"] == 9
    assert "cannot be read" in shop.fail("start", "order", "--input", "@nothere", "--app", "shop:app", code=2)


def test_a_dry_start_starts_nothing(place: CommandTarget) -> None:
    shown = json.loads(place.succeed("start", "pay", "cents=5", "--id", "dry", "--dry-run"))
    assert shown == {"workflow": "pay", "input": {"cents": 5}, "instance_id": "dry"}
    place.fail("get", "dry", code=4)


# --- events and messages


def test_an_event_reports_the_instances_it_woke(served: CommandTarget) -> None:
    served.succeed("start", "order", "number=100", "--id", "cli-event")
    wait_for(served, "cli-event", "waiting_for_event")
    done = served("event", "paid", '{"cents": 5}', "--subject", "100", "--source", "bank")
    assert (done.stdout, done.returncode) == ("cli-event\n", 0)
    assert "It woke or started 1 instance." in done.stderr
    assert served.succeed("result", "cli-event", "--timeout", "30") == "\"ada paid {'cents': 5}\"\n"


def test_an_event_that_no_instance_waits_for(place: CommandTarget) -> None:
    done = place("event", "no.such.event", "--data", '"waits"')
    assert (done.stdout, done.returncode) == ("", 0)
    assert "No instance is waiting for it" in done.stderr
    assert place.json("event", "no.such.event") == {"instance_ids": [], "duplicate": False}


def test_an_event_for_one_instance(served: CommandTarget) -> None:
    for name in ("cli-one", "cli-other"):
        served.succeed("start", "order", "number=200", "--id", name)
        wait_for(served, name, "waiting_for_event")
    assert served.succeed("event", "paid", "--subject", "200", "--to", "cli-one") == "cli-one\n"
    assert served.succeed("result", "cli-one", "--timeout", "30") == '"ada paid None"\n'
    assert served.json("get", "cli-other")["summary"]["status"] == "waiting_for_event"


def test_messages(served: CommandTarget) -> None:
    for name in ("cli-a", "cli-b"):
        served.succeed("start", "listen", "channel=cli-news", "--id", name)
        wait_for(served, name, "waiting_for_message")
    served.succeed("send", "cli-a", "cli-news", '"psst"')
    assert served.succeed("result", "cli-a", "--timeout", "30") == '"psst"\n'
    served.succeed("publish", "cli-news", "--data", '{"to": "all"}')
    assert served.succeed("result", "cli-b", "--timeout", "30") == '{"to": "all"}\n'
    assert "cli-a" in served.fail("send", "cli-a", "news", "1", code=5)
    assert "nothere" in served.fail("send", "nothere", "news", "1", code=4)


def test_data_that_is_no_json_is_wrong_usage(shop: CommandTarget) -> None:
    assert "A string needs quotes" in shop.fail("event", "paid", "hello", code=2)
    assert "given twice" in shop.fail("event", "paid", "1", "--data", "2", code=2)
    assert json.loads(shop.succeed("event", "paid", "1", "--dry-run"))["data"] == 1
    assert json.loads(shop.succeed("publish", "news", "1", "--dry-run")) == {"channel": "news", "data": 1}
    assert json.loads(shop.succeed("send", "waits-1", "news", "1", "--dry-run"))["to"] == "waits-1"


def wait_for(place: CommandTarget, instance_id: str, status: str) -> None:
    """Wait until an instance has a status; the timeout of the test limits the wait."""
    while place.json("get", instance_id)["summary"]["status"] != status:
        pass


# --- actions


def test_each_action(shop: CommandTarget) -> None:
    for action, instance_id, journal in [
        ("pause", "waits-1", "pause"),
        ("resume", "paused-1", "resume"),
        ("retry", "failed-1", "retry"),
        ("cancel", "waits-2", "cancel"),
        ("terminate", "nap-1", "terminate"),
    ]:
        shop.succeed(action, instance_id, *(["--reason", "why not"] if action in ("pause", "cancel", "terminate") else []))
        lines = shop.json("get", instance_id)["journal"]
        assert any(journal in line["kind"] for line in lines), (action, lines)


def test_actions_report_the_result_of_each_instance(place: CommandTarget) -> None:
    done = place("retry", "done-1", "nothere", "--json")
    assert done.returncode == 1
    items = json.loads(done.stdout)["items"]
    assert [(one["instance_id"], one["ok"], one["error_type"]) for one in items] == [
        ("done-1", False, "InvalidWorkflowStateError"),
        ("nothere", False, "WorkflowNotFoundError"),
    ]


def test_a_single_instance_decides_the_exit_code(place: CommandTarget) -> None:
    assert "'done-1' is completed" in place.fail("retry", "done-1", code=5)
    assert "'done-1' cannot be cancelled" in place.fail("cancel", "done-1", code=5)
    assert "'nothere'" in place.fail("pause", "nothere", code=4)


def test_ids_from_another_command(shop: CommandTarget) -> None:
    ids = shop.succeed("list", "status:failed", "-o", "ids")
    done = shop("retry", "-", given=ids)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("retried") == 2
    done = shop("cancel", "-", "waits-1", given=f"{json.dumps(HOSTILE)}\n\nwaits-1\n")
    assert done.stdout.count("cancelled") == 2, done.stdout
    assert shop("retry", "-", given="").stderr == "There were no ids on standard input: nothing was done.\n"


def test_a_dry_run_changes_nothing(place: CommandTarget) -> None:
    assert "waits-1" in place.succeed("cancel", "waits-1", "--dry-run")
    assert place.json("get", "waits-1")["summary"]["status"] == "waiting_for_event"
    assert "waits-1" in place.succeed("cancel", "--filter", "id:waits-1", "--dry-run")
    place.fail("cancel", "nothere", "--dry-run", code=4)


def test_actions_need_ids_or_a_filter(shop: CommandTarget) -> None:
    assert "Give either ids" in shop.fail("cancel", code=2)
    assert "Give either ids" in shop.fail("cancel", "waits-1", "--filter", "status:live", code=2)
    assert "give --yes" in shop.fail("cancel", "--filter", "status:live", code=2)


@pytest.mark.parametrize(("answer", "code", "status"), [("y\n", 0, "cancelled"), ("\n", 1, "waiting_for_event")])
def test_at_a_terminal_the_command_asks_for_confirmation(shop: CommandTarget, answer: str, code: int, status: str) -> None:
    """Standard input and standard error are a pseudo terminal; standard output is a pipe."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "romancy", "terminate", "waits-1", *shop.options],
        cwd=shop.folder,
        env=environment(TERM="dumb"),
        stdin=theirs,
        stderr=theirs,
        stdout=subprocess.PIPE,
    )
    os.close(theirs)
    prompt = b""
    while b"[y/N]" not in prompt:
        prompt += os.read(ours, 1000)
    assert b"terminate 1 instance?" in prompt
    os.write(ours, answer.encode())
    assert process.stdout is not None
    with process.stdout:
        process.stdout.read()
    assert process.wait(timeout=30) == code
    os.close(ours)
    expected = "terminated" if code == 0 else status
    assert shop.json("get", "waits-1")["summary"]["status"] == expected


# --- batches


def test_an_action_on_all_instances_that_match_a_filter(place: CommandTarget) -> None:
    """Over HTTP the filter selects only instances that this test has started, because other tests use the same server."""
    line = "workflow:nap"
    if place.remote:
        for name in ("cli-nap-1", "cli-nap-2"):
            place.succeed("start", "nap", "seconds=86400", "--id", name)
            wait_for(place, name, "waiting_for_timer")
        line = "id:cli-nap-*"
    batch = json.loads(place.succeed("terminate", "--filter", line, "--yes", "--reason", "over", "--json"))
    assert (batch["status"], batch["done"], batch["failed"]) == ("done", 2 if place.remote else 1, 0)
    assert place.json("batch", "get", batch["batch_id"])["batch_id"] == batch["batch_id"]
    assert batch["batch_id"] in place.succeed("batch", "list", "-o", "ids").split()
    assert "terminate" in place.succeed("batch", "list")
    assert batch["batch_id"] in place.succeed("batch", "get", batch["batch_id"], "--wait")


def test_unknown_batches(place: CommandTarget) -> None:
    place.fail("batch", "get", "nothere", code=4)
    place.fail("batch", "abort", "nothere", code=4)


def test_a_batch_is_aborted(shop: CommandTarget) -> None:
    """The batch may have ended before the command; then the command exits with 5."""
    started = shop("pause", "--filter", "workflow:order", "--yes", "--no-wait", "--json")
    batch_id = json.loads(started.stdout)["batch_id"]
    done = shop("batch", "abort", batch_id, "--json")
    assert done.returncode in (0, 5), done.stderr
    assert shop.json("batch", "list")["items"][0]["status"] in ("aborted", "done")


# --- the outbox and pruning


@pytest.fixture
def dead_letters(shop: CommandTarget) -> CommandTarget:
    """A copy of the sample database with two dead letters."""
    program = """
import asyncio, shop
from romancy import App

async def main():
    async with App("shop.db", workflows=[], broker=[shop.Refuses()]) as app:
        for number in (1, 2):
            await app.send_event("told", "shop", number, local=False)
        while len((await app.list_outbox(dead=True)).items) < 2:
            await asyncio.sleep(0.005)

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=shop.folder, env=environment(), capture_output=True, text=True, timeout=40
    )
    assert done.returncode == 0, done.stderr
    return shop


def test_dead_letters_are_listed_and_requeued(dead_letters: CommandTarget) -> None:
    entries = dead_letters.json("outbox", "list", "--dead")["items"]
    assert [one["event"]["data"] for one in entries] == [1, 2]
    assert "never" in dead_letters.succeed("outbox", "list")
    assert dead_letters.succeed("outbox", "list", "--alive", "-o", "ids") == ""
    first = str(entries[0]["id"])
    assert dead_letters("outbox", "requeue", first).stderr == "Requeued 1 dead letter.\n"
    assert dead_letters.succeed("outbox", "list", "--alive", "-o", "ids") == f"{first}\n"
    assert dead_letters.json("outbox", "requeue", "--all") == {"count": 1}
    dead_letters.fail("outbox", "requeue", "99999", code=4)
    assert "Give either the ids of dead letters, or --all" in dead_letters.fail("outbox", "requeue", code=2)
    assert "is not the id" in dead_letters.fail("outbox", "requeue", "x", code=2)


def test_an_empty_outbox(place: CommandTarget) -> None:
    assert place.json("outbox", "list") == {"items": [], "next_after": None}
    assert place.json("outbox", "requeue", "--all") == {"count": 0}


def test_old_instances_are_deleted(shop: CommandTarget) -> None:
    assert "give --yes" in shop.fail("prune", "--older-than", "0s", code=2)
    assert "ended more than" in shop("prune", "--older-than", "0s", "--dry-run").stderr
    assert shop.succeed("list", "status:ended", "-o", "ids") != ""
    assert shop.json("prune", "--older-than", "30d", "--yes") == {"count": 0}
    assert shop("prune", "--older-than", "0", "--yes").stderr.startswith("Deleted ")
    assert shop.succeed("list", "status:ended", "-o", "ids") == ""
    assert "is not a duration" in shop.fail("prune", "--older-than", "soon", "--yes", code=2)


def test_pruning_over_http(served: CommandTarget) -> None:
    assert served.json("prune", "--older-than", "30d", "--yes") == {"count": 0}


def test_on_postgresql(postgres: str, tmp_path: Path) -> None:
    target = CommandTarget(tmp_path, ["--database", postgres])
    target.succeed("migrate", "up")
    assert "no_such_workflow" in target.fail("start", "no_such_workflow", code=4)
    assert target.json("event", "no.such.event") == {"instance_ids": [], "duplicate": False}

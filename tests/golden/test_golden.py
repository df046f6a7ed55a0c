"""The records of all releases, this one included: histories replay, and databases in flight are taken over."""

from __future__ import annotations

import json
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.golden import workflows as golden
from tests.golden.record import ENDED, HERE, IN_FLIGHT, how_it_ended, record

from romancy import DeterminismViolationError, Workflow, __version__
from romancy.testing import RecordedHistory, TestEnvironment, replay_history

RELEASES = sorted(folder.name for folder in HERE.iterdir() if folder.is_dir() and (folder / "in-flight.sql").exists())
CODE = {workflow.name: workflow for workflow in (*ENDED, *IN_FLIGHT)}
HISTORIES = sorted(HERE.glob("*/*.json"))


def test_this_release_has_its_records() -> None:
    """A release without records could not be tested by later releases."""
    assert __version__ in RELEASES
    assert {file.stem for file in (HERE / __version__).glob("*.json")} == {workflow.name for workflow in ENDED}


@pytest.mark.parametrize("file", HISTORIES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_a_recorded_history_replays_to_the_same_end(file: Path) -> None:
    """The replay accepts the recorded results, issues the same operations, and leaves nothing pending."""
    kept = json.loads(file.read_text())
    history = RecordedHistory.from_json(json.dumps(kept["history"]))
    replayed = replay_history(CODE[history.workflow], history)
    assert replayed.pending == ()
    assert replayed.verdict is not None
    ended = {"Finish": "completed", "Fail": "failed", "Cancelled": "cancelled"}[type(replayed.verdict).__name__]
    assert ended == kept["status"]


@pytest.mark.parametrize("file", HISTORIES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_a_history_with_another_first_step_is_refused(file: Path) -> None:
    """Shows that the tests above can fail."""
    data = json.loads(file.read_text())["history"]
    first = next(entry for entry in data["entries"] if entry["op"])
    first["op"], first["name"] = "other:1", "other"
    history = RecordedHistory.from_json(json.dumps(data))
    with pytest.raises(DeterminismViolationError):
        replay_history(CODE[history.workflow], history)


@pytest.mark.parametrize("release", RELEASES)
async def test_a_database_in_flight_is_taken_over(release: str, tmp_path: Path) -> None:
    """Instances that waited, slept and retried in that release run to their end in this one."""
    database = tmp_path / "golden.db"
    with sqlite3.connect(database) as connection:
        connection.executescript((HERE / release / "in-flight.sql").read_text())
    connection.close()
    async with TestEnvironment(f"sqlite:///{database}", workflows=[*IN_FLIGHT]) as env:
        app = env.app
        await app.publish("golden-line", 2)
        await app.publish("golden-line", 3)
        for waiting in (golden.golden_waits_for_event, golden.golden_rounds_on):
            await app.send_event("golden.go", "/test", {"n": 5}, subject=waiting.name)
        await env.advance(timedelta(days=61))
        ends = {workflow.name: await how_it_ended(app, workflow.name) for workflow in IN_FLIGHT}
    assert {end["status"] for end in ends.values()} == {"completed"}
    assert {name: end["output"] for name, end in ends.items()} == {
        "golden_waits_for_event": 12,
        "golden_waits_for_message": [1, 2, 3],
        "golden_sleeps": ["gave up", 8],
        "golden_retries": 2,
        "golden_rounds_on": 7,
    }


async def test_the_workflows_end_as_recorded(tmp_path: Path) -> None:
    """The same workflows, run by this release, have the same ends."""
    await record(tmp_path)

    def ends(folder: Path) -> dict[str, Any]:
        files = {file.stem: json.loads(file.read_text()) for file in folder.glob("*.json")}
        return {name: (kept["status"], kept["output"], kept["error"]) for name, kept in files.items()}

    for release in RELEASES:
        assert ends(HERE / release).items() <= ends(tmp_path).items()


def test_every_workflow_is_recorded() -> None:
    """Every workflow of the module is recorded."""
    assert {one for one in vars(golden).values() if isinstance(one, Workflow)} == set(CODE.values())

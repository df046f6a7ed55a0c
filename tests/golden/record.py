"""Records the histories of a release: `python -m tests.golden.record`, once, when the release is made.

Each file contains the history of one instance and how it ended. `in-flight.sql` is a whole database with instances that
wait, sleep and retry. The records of a release are never replaced, because later releases must be able to read them.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import sys
import tempfile
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.golden import workflows as golden

from romancy import Client, Workflow, __version__
from romancy.testing import TestEnvironment, record_history

HERE = Path(__file__).parent

ENDED: dict[Workflow[..., Any], tuple[Any, ...]] = {
    golden.golden_steps: (4,),
    golden.golden_payloads: (golden.Parcel(number=7, weight=Decimal("0.10")), golden.Place("Köln", b"\x00\x80")),
    golden.golden_together: (),
    golden.golden_chance: (),
    golden.golden_saga: (),
    golden.golden_events: (),
    golden.golden_channels: (),
    golden.golden_rounds: (1,),
    golden.golden_cancelled: (),
}
IN_FLIGHT: dict[Workflow[..., Any], tuple[Any, ...]] = {
    golden.golden_waits_for_event: (),
    golden.golden_waits_for_message: (),
    golden.golden_sleeps: (),
    golden.golden_retries: (),
    golden.golden_rounds_on: (1,),
}


async def record(folder: Path) -> None:
    """Write all records into a folder."""
    async with TestEnvironment(workflows=[*ENDED], worker_id="golden") as env:
        for workflow, arguments in ENDED.items():
            await env.app.start_workflow(workflow.with_options(instance_id=workflow.name), *arguments)
            await env.settle()
            if workflow is golden.golden_cancelled:
                await env.app.cancel_workflow(workflow.name, "no longer wanted")
            await env.advance(timedelta(hours=1))
            kept = await how_it_ended(env.app, workflow.name)
            text = (await record_history(env.app, workflow.name)).to_json()
            (folder / f"{workflow.name}.json").write_text(json.dumps({**kept, "history": json.loads(text)}, indent=1) + "\n")
    await _in_flight(folder / "in-flight.sql")


async def how_it_ended(client: Client, instance_id: str) -> dict[str, Any]:
    """The status and the result or error of an instance."""
    found = await client.get_instance(instance_id)
    assert found is not None
    error = None if found.error is None else [found.error.type, found.error.message]
    return {"status": found.status.value, "output": found.output, "error": error}


async def _in_flight(file: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        database = f"{folder}/golden.db"
        async with TestEnvironment(f"sqlite:///{database}", workflows=[*IN_FLIGHT], worker_id="golden") as env:
            for workflow, arguments in IN_FLIGHT.items():
                await env.app.start_workflow(workflow.with_options(instance_id=workflow.name), *arguments)
            await env.settle()
            await env.app.publish("golden-line", 1)
            await env.settle()
        _dump(database, file)


def _dump(database: str, file: Path) -> None:
    connection = sqlite3.connect(database)
    file.write_text("\n".join([*connection.iterdump(), ""]))
    connection.close()


if __name__ == "__main__":
    folder = HERE / __version__
    if folder.exists() and "--again" not in sys.argv:
        sys.exit(
            f"{folder} exists: the records of a release are not replaced. (--again: the release has not been made yet.)"
        )
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    asyncio.run(record(folder))

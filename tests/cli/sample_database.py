"""A sample database with instances in every state, and the command `romancy`, run as a process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

COMMAND_TIMEOUT = 40
HOSTILE = "a/b ?x=%00&y <script>\u202e'\";--\x1b[31m"
"""An id with a terminal's control sequence, which also looks like a path, a query and an SQL statement."""

SHOP = '''
import os
from romancy import (
    ActivityContext, App, EventRejectedError, TerminalError, WorkflowContext, activity, join_group, receive, recur, sleep,
    subscribe, wait_event, workflow,
)


@activity
async def charge(ctx: ActivityContext, cents: int) -> str:
    if cents < 0:
        raise TerminalError("the card\\x1b[31m was refused")
    return "paid"


@activity
async def reserve(ctx: ActivityContext, item: str) -> str:
    return item


@reserve.compensate
async def release(ctx: ActivityContext, item: str) -> None:
    """Do nothing: a reservation leaves no trace."""


@workflow
async def order(ctx: WorkflowContext, number: int, customer: str = "ada") -> str:
    await reserve(ctx, "lamp")
    event = await wait_event(ctx, "paid", subject=str(number))
    return f"{customer} paid {event.data}"


@workflow
async def pay(ctx: WorkflowContext, cents: int) -> str:
    return await charge(ctx, cents)


@workflow
async def nap(ctx: WorkflowContext, seconds: float) -> None:
    await sleep(ctx, seconds)


@workflow
async def listen(ctx: WorkflowContext, channel: str) -> object:
    await join_group(ctx, f"listeners of {channel}")
    await subscribe(ctx, channel)
    return (await receive(ctx, channel)).data


@workflow
async def rounds(ctx: WorkflowContext, left: int) -> int:
    await charge(ctx, left)
    if left:
        await recur(ctx, left - 1)
    return left


class Refuses:
    """A broker that rejects every event."""

    name = "refuses"

    async def start(self):
        pass

    async def send(self, event):
        raise EventRejectedError("never")

    async def close(self):
        pass


app = App(os.environ.get("SHOP_DATABASE", "shop.db"), heartbeat_interval=0.5, lease_timeout=600, {more})
'''

PREPARE = """
import asyncio, json, sys
from pathlib import Path
import shop
from shop import app, order, pay, nap, listen, rounds

HOSTILE = json.loads(Path("hostile.json").read_text())


async def reached(name, *wanted):
    async with asyncio.timeout(30):
        while await app.get_handle(name).status() not in wanted:
            await asyncio.sleep(0.005)


async def main():
    async with app:
        for name, workflow, arguments in [
            ("done-1", pay, (5,)), ("failed-1", pay, (-5,)), ("failed-2", pay, (-7,)), ("waits-1", order, (1,)),
            ("waits-2", order, (2, "bob")), ("paused-1", order, (3,)), ("gone-1", order, (4,)), ("ended-1", order, (5,)),
            ("nap-1", nap, (86400.0,)), ("listens-1", listen, ("news",)), ("rounds-1", rounds, (1,)), (HOSTILE, order, (6,)),
        ]:
            await app.start_workflow(workflow.with_options(instance_id=name), *arguments)
        await reached("done-1", "completed")
        await reached("failed-1", "failed")
        await reached("failed-2", "failed")
        for name in ("waits-1", "waits-2", "paused-1", "gone-1", "ended-1", HOSTILE):
            await reached(name, "waiting_for_event")
        await reached("nap-1", "waiting_for_timer")
        await reached("listens-1", "waiting_for_message")
        await reached("rounds-1", "completed")
        await app.pause_workflow("paused-1")
        await app.cancel_workflow("gone-1", "not wanted")
        await app.terminate_workflow("ended-1")
        await reached("gone-1", "cancelled")
        await reached("paused-1", "paused")


asyncio.run(main())
"""


def environment(**more: str) -> dict[str, str]:
    """The environment of a command: without romancy's variables, except for those given."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ROMANCY_")}
    return {**kept, "COLUMNS": "200", **more}


def romancy(
    *arguments: str, folder: Path, given: str | None = None, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command `romancy` in a folder."""
    return subprocess.run(
        [sys.executable, "-m", "romancy", *arguments],
        cwd=folder,
        env=environment(**(variables or {})),
        input=given,
        stdin=subprocess.DEVNULL if given is None else None,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT,
        check=False,
    )


def prepare(folder: Path, database: str = "shop.db", more: str = "") -> None:
    """Create the sample database in a folder; `more` holds further options of the app."""
    (folder / "shop.py").write_text(SHOP.replace("{more}", more))
    (folder / "prepare.py").write_text(PREPARE)
    (folder / "hostile.json").write_text(json.dumps(HOSTILE))
    variables = environment(SHOP_DATABASE=database)
    done = subprocess.run(
        [sys.executable, "prepare.py"], cwd=folder, env=variables, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def copied(folder: Path, to: Path) -> Path:
    """Copy the sample database to another folder, where a test may change it."""
    for file in folder.iterdir():
        if file.suffix in (".py", ".json", ".db"):
            shutil.copy(file, to / file.name)
    return to


class CommandTarget:
    """The target of commands: a folder, and the options that name the database or the URL."""

    def __init__(self, folder: Path, options: Sequence[str]) -> None:
        self.folder = folder
        self.options = tuple(options)

    def __call__(self, *arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command on this target."""
        return romancy(*arguments, *self.options, folder=self.folder, given=given)

    def succeed(self, *arguments: str, given: str | None = None) -> str:
        """Run a command that succeeds; return its output."""
        done = self(*arguments, given=given)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *arguments: str) -> Any:
        """Run a command that succeeds with `--json`; return the decoded output."""
        return json.loads(self.succeed(*arguments, "--json"))

    def fail(self, *arguments: str, code: int, given: str | None = None) -> str:
        """Run a command that fails with an exit code; return its error output."""
        done = self(*arguments, given=given)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done.stderr

    @property
    def remote(self) -> bool:
        """Whether the target is a URL."""
        return "--url" in self.options

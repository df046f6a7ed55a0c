"""A process of `romancy serve` that tests start, send requests to, and stop."""

from __future__ import annotations

import os
import re
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from tests import databases

SHOP = """
from romancy import App, WorkflowContext, wait_event, workflow


@workflow
async def order(ctx: WorkflowContext, number: int) -> object:
    return (await wait_event(ctx, "paid")).data


@workflow(event_handler=True)
async def ordered(ctx: WorkflowContext, number: int) -> int:
    return number


app = App("shop.db")
"""
_READY = re.compile(rb"romancy serves \S+ on http://\S+?:(\d+)\n")


class Served:
    """A running `romancy serve`, with its child processes, in a folder of its own."""

    def __init__(self, folder: Path, *arguments: str, database: str = "shop.db", **variables: str) -> None:
        (folder / "shop.py").write_text(SHOP.replace("shop.db", database))
        self.folder = folder
        self._database = database if "://" in database else str(folder / database)
        self._errors = (folder / "stderr").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "romancy", "serve", "shop:app", "--port", "0", *arguments],
            cwd=folder,
            env={**os.environ, "ROMANCY_SHUTDOWN_TIMEOUT": "5", **variables},
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self.port = self._port()
        self.url = f"http://127.0.0.1:{self.port}"

    def _port(self) -> int:
        assert self.process.stdout is not None
        output = b""
        while not (found := _READY.search(output)):
            ready, _, _ = select.select([self.process.stdout], [], [], 60)
            part = os.read(self.process.stdout.fileno(), 1000) if ready else b""
            assert part, f"the server printed {output!r} and then nothing: {self.errors()}"
            output += part
        return int(found[1])

    def errors(self) -> str:
        """The text of standard error."""
        return (self.folder / "stderr").read_text(errors="replace")

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Send a signal to the parent process only."""
        self.process.send_signal(number)

    def end(self, number: int | None = None) -> int:
        """Send the signal, if one is given, and wait for the end; return the exit code."""
        if number is not None:
            self.signal(number)
        return self.process.wait(timeout=60)

    def children(self) -> list[int]:
        """The ids of the serving processes, if the server has several."""
        listed = subprocess.run(["ps", "-A", "-ww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
        rows = [line.split(None, 2) for line in listed.stdout.splitlines()]
        return [int(pid) for pid, parent, args in rows if int(parent) == self.process.pid and "spawn_main" in args]

    def stored(self) -> set[tuple[str, str]]:
        """The source and the id of every event in the database."""
        return {(source, id) for source, id in databases.execute(self._database, "SELECT source, id FROM romancy_events")}

    @contextmanager
    def write_lock(self) -> Iterator[None]:
        """Hold the write lock of the file, as a long transaction of the user does."""
        with closing(sqlite3.connect(self._database, isolation_level=None, timeout=30)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            finally:
                connection.execute("ROLLBACK")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # The server has a session of its own, so the signal reaches its child processes too.
        if self.process.poll() is None or self.children():
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=30)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()


def until(condition: Callable[[], bool], what: str, *, seconds: float = 60.0) -> None:
    """Wait until a condition holds; fail after a timeout."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not reached within {seconds:g} s"
        time.sleep(0.02)

"""A worker as a child process: start it, hear what it says, kill it, or let it go."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

from romancy.demo.external_services import WorkerReport

TIMEOUT = 60.0
"""Seconds to wait for anything at all. A busy machine may need many; only a fault needs all."""
_STOP_TIMEOUT = 15.0
_LOG_LINES = 15

T = TypeVar("T")
ReportKind = Literal["ready", "ledger", "remark", "silence"]


class WorkerFault(Exception):
    """A worker process did not do what it should have; the message says what, and shows the end of its log."""


class WorkerProcess:
    """One worker process."""

    def __init__(
        self, label: str, process: asyncio.subprocess.Process, log: Path, on_report: Callable[[WorkerReport], None]
    ) -> None:
        self.label = label
        self._process = process
        self._log = log
        self._on_report = on_report
        self._reported: dict[ReportKind, asyncio.Event] = {}
        self._listener = asyncio.create_task(self._listen())

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def expect(self, kind: ReportKind) -> None:
        """Wait until it has said something of a kind."""
        await self.wait_for(self._event_of(kind).wait(), f"its word {kind!r}")

    async def wait_for(self, work: Coroutine[Any, Any, T], what: str) -> T:
        """Wait for something this worker brings about. Raises `WorkerFault` if it ends first, or takes far too long."""
        task = asyncio.create_task(work)
        try:
            await asyncio.wait({task, self._listener}, timeout=TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if not self._listener.done():
                raise self._fault(f"{self.label} took longer than {TIMEOUT:.0f} s for {what}.")
            self._listener.result()
            raise self._fault(f"{self.label} ended before {what}.")
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def kill(self) -> None:
        """SIGKILL: it has no chance to do anything about it. Returns when it is gone."""
        if self._process.returncode is not None:
            raise self._fault(f"{self.label} had ended before it was killed.")
        self._process.send_signal(signal.SIGKILL)
        if await self._process.wait() != -signal.SIGKILL:
            raise self._fault(f"{self.label} ended of itself, with exit code {self._process.returncode}.")

    async def stop(self) -> None:
        """Let it finish what it does and end."""
        if self._process.returncode is None and self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _STOP_TIMEOUT)
        except TimeoutError:
            raise self._fault(f"{self.label} did not end within {_STOP_TIMEOUT:.0f} s of being asked to.") from None
        if self._process.returncode != 0:
            raise self._fault(f"{self.label} ended with exit code {self._process.returncode}.")

    async def clean_up(self) -> None:
        """Make sure that it is gone and forgotten."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        await self._process.wait()
        self._listener.cancel()
        await asyncio.gather(self._listener, return_exceptions=True)

    def _event_of(self, kind: ReportKind) -> asyncio.Event:
        return self._reported.setdefault(kind, asyncio.Event())

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        while (raw := await self._process.stdout.readline()).endswith(b"\n"):  # not: killed in the middle of a word
            report = WorkerReport.model_validate_json(raw)
            self._on_report(report)
            self._event_of(report.kind).set()

    def _fault(self, message: str) -> WorkerFault:
        lines = self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        return WorkerFault("\n".join([message, "The end of its log:", *(f"  {line}" for line in lines or ["(empty)"])]))


@asynccontextmanager
async def worker_process(
    label: str, folder: Path, database: str, surroundings: Mapping[str, str], on_report: Callable[[WorkerReport], None]
) -> AsyncGenerator[WorkerProcess]:
    """A worker process that is ready for work; gone when the block is left, whatever the reason."""
    log = folder / f"{label}.log"
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "romancy.demo.worker", database, label),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=_environment(surroundings),
            start_new_session=True,  # Ctrl-C is for the driver; it then clears away
        )
    worker = WorkerProcess(label, process, log, on_report)
    try:
        await worker.expect("ready")
        yield worker
    finally:
        await worker.clean_up()


def _environment(surroundings: Mapping[str, str]) -> dict[str, str]:
    """Ours, but no options of the engine: the demonstration sets those it needs."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ROMANCY_")} | dict(surroundings)

"""A worker as a child process: start it, read its reports, kill it, or let it finish."""

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
"""Seconds to wait for a report or a result. A busy machine may need many; only a fault needs all."""
_STOP_TIMEOUT = 15.0
_LOG_LINES = 15

T = TypeVar("T")
ReportKind = Literal["ready", "request", "remark", "silence"]


class WorkerFault(Exception):
    """A worker process has misbehaved. The message says how, and shows the end of its log."""


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
        """Wait for a report of a kind."""
        await self.wait_for(self._event_of(kind).wait(), f"its report {kind!r}")

    async def wait_for(self, work: Coroutine[Any, Any, T], what: str) -> T:
        """Wait for work that depends on this worker. Raises `WorkerFault` if the worker ends first or takes too long."""
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
        """Send SIGKILL, which the process cannot handle. Return when it has ended."""
        if self._process.returncode is not None:
            raise self._fault(f"{self.label} had ended before it was killed.")
        self._process.send_signal(signal.SIGKILL)
        if await self._process.wait() != -signal.SIGKILL:
            raise self._fault(f"{self.label} ended by itself, with exit code {self._process.returncode}.")

    async def stop(self) -> None:
        """Let the worker finish its work and end."""
        if self._process.returncode is None and self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _STOP_TIMEOUT)
        except TimeoutError:
            raise self._fault(f"{self.label} did not end within {_STOP_TIMEOUT:.0f} s after the request to stop.") from None
        if self._process.returncode != 0:
            raise self._fault(f"{self.label} ended with exit code {self._process.returncode}.")

    async def clean_up(self) -> None:
        """Make sure that the process and its listener have ended."""
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
        while (raw := await self._process.stdout.readline()).endswith(b"\n"):  # an incomplete line: killed while it wrote
            report = WorkerReport.model_validate_json(raw)
            self._on_report(report)
            self._event_of(report.kind).set()

    def _fault(self, message: str) -> WorkerFault:
        lines = self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        return WorkerFault("\n".join([message, "The end of its log:", *(f"  {line}" for line in lines or ["(empty)"])]))


@asynccontextmanager
async def worker_process(
    label: str, folder: Path, database: str, variables: Mapping[str, str], on_report: Callable[[WorkerReport], None]
) -> AsyncGenerator[WorkerProcess]:
    """Start a worker process and wait until it is ready. It is always ended when the block is left."""
    log = folder / f"{label}.log"
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "romancy.demo.worker", database, label),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=_environment(variables),
            start_new_session=True,  # Ctrl-C reaches only the driver, which cleans up
        )
    worker = WorkerProcess(label, process, log, on_report)
    try:
        await worker.expect("ready")
        yield worker
    finally:
        await worker.clean_up()


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without options of romancy: the demonstration sets those that it needs."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ROMANCY_")} | dict(variables)

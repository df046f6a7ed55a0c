"""Refuses blocking I/O in workflow code: what asyncio never sees, Python's audit events do.

A hook cannot be removed and costs a little on every audited event of the process, so it is installed by tests, and in
production only where asked for. Files are not refused: imports and log files open them.
"""

from __future__ import annotations

import sys
from asyncio import events
from typing import Any

from romancy.core.loop import Run
from romancy.errors import WorkflowIOError

_REFUSED = frozenset(
    {
        "_thread.start_new_thread",
        "ftplib.connect",
        "http.client.connect",
        "imaplib.open",
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.spawn",
        "os.system",
        "poplib.connect",
        "smtplib.connect",
        "socket.bind",
        "socket.connect",
        "socket.getaddrinfo",
        "socket.gethostbyname",
        "socket.sendmsg",
        "socket.sendto",
        "sqlite3.connect",
        "subprocess.Popen",
        "telnetlib.Telnet.open",
        "time.sleep",
        "urllib.Request",
    }
)
_installed: list[bool] = []


def install() -> None:
    """Refuse from now on. Once for a process; a second call does nothing."""
    if not _installed:
        _installed.append(True)
        sys.addaudithook(_audit)


def _audit(
    event: str, args: tuple[Any, ...], refused: Any = _REFUSED, running: Any = events._get_running_loop, run: Any = Run
) -> None:  # everything it needs is bound here: it outlives the module's names at the end of the process
    if event in refused and isinstance(running(), run):
        raise WorkflowIOError(
            f"Workflow code did something blocking ({event}). A workflow does no I/O and starts nothing: it would not "
            "happen again on replay, and it holds up every other instance. Move this into an activity."
        )

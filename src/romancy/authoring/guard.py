"""The guard: refuses calls in workflow code whose result may differ in a replay.

These are clocks, random numbers, the environment, files, threads and sockets. While a guarded run advances, a profile
function receives every call from its code to C; nothing else reports calls of clocks and random numbers. A run without the
guard does not pay for it. Sockets, processes and databases raise audit events, and an audit hook refuses them. The hook
cannot be removed and costs a little on every audited event of the process, so it is installed with the first guarded run,
or when the option `refuse_blocking_io` asks for it.

Calls that libraries make for themselves are allowed: logging reads the clock, imports open files. Models draw their
defaults when workflow code creates them, so those calls count as calls of the workflow.
"""

from __future__ import annotations

import _thread
import builtins
import os
import random
import sys
import threading
import time
import uuid
from asyncio import events
from collections.abc import Callable
from datetime import date, datetime
from enum import IntEnum
from types import FrameType
from typing import Any, NamedTuple

from romancy.core.loop import Body, Run
from romancy.errors import WorkflowIOError

_AUDITED = frozenset(
    {
        "_thread.start_joinable_thread",
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
_everywhere: list[bool] = []


class _CallCategory(IntEnum):
    VOLATILE = 0
    """Clocks and random numbers: the next call returns another value."""
    ENVIRONMENT = 1
    """Files and the environment: another process may find them different, and reading them may wait for a disk."""
    BLOCKING = 2
    """Calls that start something beside the run, or block it."""


class _RefusedCall(NamedTuple):
    label: str
    kind: _CallCategory
    instead: str


_CLOCK = "ctx.now()"
_CHANCE = "ctx.random()"
_ACTIVITY = "an activity"
_THREAD = _RefusedCall("Thread.start()", _CallCategory.BLOCKING, f"{_ACTIVITY} (a plain `def` runs in a thread)")


def _calls() -> dict[Any, _RefusedCall]:
    """Return the refused calls by the C function that the profile function is given."""
    found: dict[Any, _RefusedCall] = {}
    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time"):
        for variant in (name, f"{name}_ns"):
            found[getattr(time, variant)] = _RefusedCall(f"time.{variant}()", _CallCategory.VOLATILE, _CLOCK)
    for kind, names in ((datetime, ("now", "utcnow", "today")), (date, ("today",))):
        for name in names:
            found[getattr(kind, name)] = _RefusedCall(f"{kind.__name__}.{name}()", _CallCategory.VOLATILE, _CLOCK)
    for name in ("random", "getrandbits"):
        found[getattr(random, name)] = _RefusedCall(f"random.{name}()", _CallCategory.VOLATILE, _CHANCE)
    found[os.urandom] = _RefusedCall("os.urandom()", _CallCategory.VOLATILE, _CHANCE)
    clock = getattr(uuid, "_generate_time_safe", None)
    if clock is not None:
        found[clock] = _RefusedCall("uuid.uuid1()", _CallCategory.VOLATILE, "ctx.uuid4()")
    found[builtins.open] = _RefusedCall("open()", _CallCategory.ENVIRONMENT, _ACTIVITY)
    for name in ("open", "listdir", "scandir", "stat", "lstat", "mkdir", "rmdir", "remove", "unlink", "rename", "replace"):
        found[getattr(os, name)] = _RefusedCall(f"os.{name}()", _CallCategory.ENVIRONMENT, _ACTIVITY)
    found[time.sleep] = _RefusedCall("time.sleep()", _CallCategory.BLOCKING, "sleep(ctx, ...) or asyncio.sleep()")
    for name in ("start_new_thread", "start_joinable_thread"):
        if hasattr(_thread, name):
            found[getattr(_thread, name)] = _THREAD
    return found


_REFUSED = _calls()
_ENVIRONMENT = _RefusedCall("os.environ", _CallCategory.ENVIRONMENT, f"an argument, or {_ACTIVITY} that reads it")
_SEED = _RefusedCall("random.Random()", _CallCategory.VOLATILE, f"{_CHANCE}, or give it a seed")
_environ: Any = type(os.environ)
_CODES = {
    id(getattr(_environ, name).__code__): _ENVIRONMENT for name in ("__getitem__", "__setitem__", "__delitem__", "__iter__")
}
"""The refused functions that are written in Python, by the ids of their code objects, which live as long as the process."""
_SEEDING = id(random.Random.seed.__code__)
_CODES[_SEEDING] = _SEED

_REPLACEMENTS = {"random": _CHANCE, "secrets": _CHANCE, "statistics": _CHANCE, "tempfile": _ACTIVITY, "uuid": "ctx.uuid4()"}
"""Modules that make refused calls for the workflow, so that the message names their function, and what to use instead."""
_SELF_CONTAINED = frozenset(
    [
        "_frozen_importlib",
        "_frozen_importlib_external",
        "asyncio",
        "encodings",
        "importlib",
        "inspect",
        "linecache",
        "logging",
        "pkgutil",
        "tokenize",
        "traceback",
        "warnings",
        "zipimport",
        "zoneinfo",
    ]
)
"""Modules of the standard library that make refused calls only for themselves."""
_WAITING = frozenset(["concurrent", "queue", "selectors", "socket", "subprocess", "threading"])
"""Modules of the standard library that read clocks for their own timeouts."""
_MODEL_LIBRARIES = frozenset({"attr", "attrs", "pydantic"})
"""Libraries that draw defaults for the code that creates an object; they read files and the environment for themselves."""
_warned: set[tuple[str, str]] = set()


class GuardedRun(Run):
    """A run whose calls are checked while it advances."""

    __slots__ = ("_package", "_raises")

    def __init__(self, body: Body, label: str, known_effects: dict[str, bytes], module: str, mode: str) -> None:
        super().__init__(body, label, known_effects)
        self._package = module.partition(".")[0]
        """The package of the workflow: its code counts as workflow code even if it is installed as a library."""
        self._raises = mode == "raise"
        install()

    def _enter(self) -> None:
        super()._enter()
        if not self._evicting and sys.getprofile() is None:  # a profiler of the user has precedence
            sys.setprofile(self._watch)

    def _leave(self) -> None:
        watching = getattr(sys.getprofile(), "__self__", None)
        if watching is self:
            sys.setprofile(None)
        super()._leave()

    def _watch(self, frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call":
            call = _REFUSED.get(function)
        elif event == "call":
            call = _CODES.get(id(frame.f_code))
            if call is _SEED and frame.f_locals.get("a") is not None:
                return
        else:
            return
        if call is not None:
            self.check_call(call, frame)

    def check_call(self, call: _RefusedCall, frame: FrameType | None) -> None:
        """Refuse a call, or warn of it, if workflow code makes it: itself, or by a function of a library."""
        name, kind, instead = call
        while frame is not None:
            module: str = frame.f_globals.get("__name__", "")
            top = module.partition(".")[0]
            if module == __name__ or _is_generated(frame):
                pass  # on Python 3.11, this module raises the audit event of threads
            elif top in _REPLACEMENTS:
                if kind is _CallCategory.VOLATILE and not (call is _SEED and top == "random"):
                    qualname = frame.f_code.co_qualname.removeprefix("Random.").removeprefix("SystemRandom.")
                    name, instead = f"{top}.{qualname}()", _REPLACEMENTS[top]
            elif self._is_internal_call(kind, frame, module, top):
                return
            elif (
                top not in sys.stdlib_module_names
                and top not in _MODEL_LIBRARIES
                and not self._is_installed_library(frame, top)
            ):
                self._report_call(name, instead, f"{module}:{frame.f_code.co_qualname}:{frame.f_lineno}")
                return
            frame = frame.f_back

    def _is_internal_call(self, kind: _CallCategory, frame: FrameType, module: str, top: str) -> bool:
        """Whether the code of this frame makes the call for itself, and not for the workflow."""
        if top == "romancy":
            return not module.startswith(("romancy.demo", "romancy.testing"))
        if top in _SELF_CONTAINED:
            return True
        if top in _WAITING:
            return kind is _CallCategory.VOLATILE
        if top in _MODEL_LIBRARIES:
            return kind is not _CallCategory.VOLATILE
        return kind is not _CallCategory.BLOCKING and self._is_installed_library(frame, top)

    def _is_installed_library(self, frame: FrameType, top: str) -> bool:
        """Whether the code of this frame belongs to an installed library."""
        if top == self._package or top in sys.stdlib_module_names:
            return False
        return "site-packages" in frame.f_code.co_filename or "dist-packages" in frame.f_code.co_filename

    def _report_call(self, name: str, instead: str, site: str) -> None:
        message = (
            f"{name} was used in {self._label} at {site}. Its result could differ in a replay, so the workflow could take "
            f"another path. Use {instead} instead."
        )
        if self._raises:
            raise WorkflowIOError(message)
        if (name, site) not in _warned:
            _warned.add((name, site))
            self.problems.append(message)


def guarded_run(body: Body, label: str, known_effects: dict[str, bytes], module: str, mode: str) -> Run:
    """Create a guarded run, which has not begun yet, of a workflow in this module."""
    make: Callable[..., Run] = GuardedRun
    return make(body, label, known_effects, module, mode)


def _is_generated(frame: FrameType) -> bool:
    """Whether `dataclasses` or attrs generated this code: it draws defaults for the code that creates an object."""
    code = frame.f_code
    return "__create_fn__" in code.co_qualname or code.co_filename.startswith("<attrs generated")


def install(*, everywhere: bool = False) -> None:
    """Refuse blocking I/O from now on, in guarded runs or in all runs. The hook is installed once per process."""
    if everywhere and not _everywhere:
        _everywhere.append(True)
    if not _installed:
        _installed.append(True)
        sys.addaudithook(_audit)
        if sys.version_info < (3, 12):
            _audit_thread_starts()


def _audit(
    event: str,
    args: tuple[Any, ...],
    audited: Any = _AUDITED,
    running: Any = events._get_running_loop,
    guarded: Any = GuardedRun,
    run: Any = Run,
    everywhere: Any = _everywhere,
) -> None:  # all names are bound as defaults: at the end of the process the hook outlives the names of this module
    if event not in audited:
        return
    loop = running()
    if isinstance(loop, guarded):
        loop.check_call(
            _THREAD if event.startswith("_thread.") else _RefusedCall(event, _CallCategory.BLOCKING, _ACTIVITY),
            sys._getframe(1),
        )
    elif everywhere and isinstance(loop, run):
        loop.refuse(event)


def _audit_thread_starts() -> None:
    """Raise an audit event when a thread starts, because Python 3.11 raises none."""
    module: Any = threading
    start = module._start_new_thread

    def start_new_thread(*args: Any) -> Any:
        sys.audit("_thread.start_new_thread", *args)
        return start(*args)

    module._start_new_thread = start_new_thread

"""The guard: calls of workflow code with results that differ in a replay are refused, in workflow code only."""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import datetime as dates
import importlib
import logging
import os
import pathlib
import random
import secrets
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
import warnings
import zoneinfo
from collections.abc import Callable
from datetime import date, datetime
from typing import Any

import pydantic
import pytest

from romancy.authoring import guard
from romancy.authoring.guard import guarded_run
from romancy.core.commands import Fail, Finish, Resolution
from romancy.errors import WorkflowIOError
from romancy.model.history import Kind


class Drawn(pydantic.BaseModel):
    id: uuid.UUID = pydantic.Field(default_factory=uuid.uuid4)


class Stamped(pydantic.BaseModel):
    at: datetime = pydantic.Field(default_factory=lambda: datetime.now(dates.UTC))


@dataclasses.dataclass
class Plain:
    at: float = dataclasses.field(default_factory=time.time)


def advanced(call: Callable[[], Any], mode: str = "raise") -> Any:
    """A guarded run whose code makes the call."""

    async def body() -> Any:
        result = call()
        return await result if asyncio.iscoroutine(result) else result

    run = guarded_run(body, "order-1 (checkout)", {}, __name__, mode)
    run.advance(Resolution(Kind.START, "", 0))
    run.evict()
    assert sys.getprofile() is None
    return run


REFUSED: list[tuple[Callable[[], Any], str, str]] = [
    (time.time, "time.time()", "ctx.now()"),
    (lambda: time.monotonic_ns(), "time.monotonic_ns()", "ctx.now()"),
    (lambda: time.perf_counter(), "time.perf_counter()", "ctx.now()"),
    (lambda: datetime.now(dates.UTC), "datetime.now()", "ctx.now()"),
    (lambda: dates.datetime.utcnow(), "datetime.utcnow()", "ctx.now()"),
    (lambda: date.today(), "date.today()", "ctx.now()"),
    (lambda: uuid.uuid4(), "uuid.uuid4()", "ctx.uuid4()"),
    (lambda: uuid.uuid1(), "uuid.uuid1()", "ctx.uuid4()"),
    (lambda: random.random(), "random.random()", "ctx.random()"),
    (lambda: random.randint(1, 6), "random.randint()", "ctx.random()"),
    (lambda: random.choice("abc"), "random.choice()", "ctx.random()"),
    (lambda: random.shuffle([1, 2]), "random.shuffle()", "ctx.random()"),
    (lambda: random.gauss(), "random.gauss()", "ctx.random()"),
    (lambda: random.Random(), "random.Random()", "ctx.random()"),
    (lambda: random.SystemRandom().random(), "random.random()", "ctx.random()"),
    (lambda: os.urandom(8), "os.urandom()", "ctx.random()"),
    (lambda: secrets.token_hex(), "secrets.token_hex()", "ctx.random()"),
    (lambda: Drawn(), "uuid.uuid4()", "ctx.uuid4()"),
    (lambda: Stamped(), "datetime.now()", "ctx.now()"),
    (lambda: Plain(), "time.time()", "ctx.now()"),
    (lambda: os.environ["PATH"], "os.environ", "an argument"),
    (lambda: os.environ.get("NOTHING"), "os.environ", "an argument"),
    (lambda: os.getenv("PATH"), "os.environ", "an argument"),
    (lambda: "PATH" in os.environ, "os.environ", "an argument"),
    (lambda: open(__file__).close(), "open()", "an activity"),
    (lambda: pathlib.Path(__file__).read_text(), "open()", "an activity"),
    (lambda: pathlib.Path(__file__).exists(), "os.stat()", "an activity"),
    (lambda: os.listdir("."), "os.listdir()", "an activity"),
    (lambda: os.mkdir("nowhere/at/all"), "os.mkdir()", "an activity"),
    (lambda: time.sleep(0), "time.sleep", "asyncio.sleep()"),
    (lambda: threading.Thread(target=print).start(), "Thread.start()", "an activity"),
    (lambda: concurrent.futures.ThreadPoolExecutor().submit(print), "Thread.start()", "an activity"),
    (lambda: subprocess.run(["true"]), "subprocess.Popen", "an activity"),
    (lambda: sqlite3.connect(":memory:"), "sqlite3.connect", "an activity"),
    (lambda: socket.create_connection(("127.0.0.1", 9)), "socket.", "an activity"),
    (lambda: urllib.request.urlopen("http://127.0.0.1:9"), "", "an activity"),
    (lambda: asyncio.to_thread(print), "loop.run_in_executor()", "an activity"),
]


@pytest.mark.parametrize(("call", "name", "instead"), REFUSED, ids=[str(number) for number in range(len(REFUSED))])
def test_a_call_is_refused_with_its_name_the_line_and_what_to_do(call: Callable[[], Any], name: str, instead: str) -> None:
    run = advanced(call)
    assert isinstance(run.body_outcome, Fail), run.body_outcome
    error = run.body_outcome.error
    assert isinstance(error, WorkflowIOError), error
    assert name in str(error)
    assert "order-1 (checkout)" in str(error)
    assert instead in str(error)
    assert "test_guard:" in str(error) or "loop." in name


def log() -> None:
    logging.getLogger("tests.guard").warning("the time is %s", "now")


def warn() -> None:
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        warnings.warn("the source line is read", stacklevel=2)


def import_anew() -> None:
    sys.modules.pop("this_is_imported_anew", None)
    importlib.import_module("colorsys")
    sys.modules.pop("colorsys", None)
    importlib.import_module("colorsys")


def make_a_model() -> None:
    class Made(pydantic.BaseModel):
        name: str
        born: date

    Made.model_validate({"name": "a", "born": "2030-01-01"})


class Fine(pydantic.BaseModel):
    number: int = 3


FINE: list[Callable[[], Any]] = [
    log,
    warn,
    import_anew,
    make_a_model,
    Fine,
    lambda: random.Random(3).random(),
    lambda: uuid.UUID(int=7),
    lambda: uuid.uuid5(uuid.NAMESPACE_DNS, "a"),
    lambda: datetime(2030, 1, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Paris")).isoformat(),
    lambda: datetime.fromtimestamp(0, dates.UTC),
    lambda: asyncio.get_running_loop().time(),
    lambda: asyncio.sleep(0),
    lambda: asyncio.Lock(),
    lambda: print(end=""),
]


@pytest.mark.parametrize("call", FINE, ids=[str(number) for number in range(len(FINE))])
def test_what_libraries_do_for_themselves_is_left_alone(call: Callable[[], Any]) -> None:
    run = advanced(call)
    assert isinstance(run.body_outcome, Finish), run.body_outcome


def test_warned_of_once_for_each_place() -> None:
    def call() -> float:
        return [time.time(), time.time()][0] + random.random()

    first, again = advanced(call, "warn"), advanced(call, "warn")
    assert isinstance(first.body_outcome, Finish)
    assert [problem.partition(" was used")[0] for problem in first.problems] == ["time.time()", "random.random()"]
    assert again.problems == []


def test_a_profiler_goes_first() -> None:
    seen: list[str] = []

    def mine(frame: Any, event: str, arg: Any) -> None:
        seen.append(event)

    async def body() -> float:
        return time.time()

    run = guarded_run(body, "order-1 (checkout)", {}, __name__, "raise")
    sys.setprofile(mine)
    try:
        run.advance(Resolution(Kind.START, "", 0))
        assert sys.getprofile() is mine
    finally:
        sys.setprofile(None)
    run.evict()
    assert isinstance(run.body_outcome, Finish)
    assert seen


def test_code_of_an_installed_library_reads_for_itself_unless_the_workflow_is_its(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import time, threading\ndef read(): return time.time()\ndef begin(): threading.Thread(target=print).start()\n"
    space: dict[str, Any] = {"__name__": "shop.orders"}
    exec(compile(text, "/x/lib/python3/site-packages/shop/orders.py", "exec"), space)

    def ended(name: str, module: str) -> Any:
        async def body() -> Any:
            return space[name]()

        run = guarded_run(body, "order-1 (checkout)", {}, module, "raise")
        run.advance(Resolution(Kind.START, "", 0))
        run.evict()
        return type(run.body_outcome)

    assert ended("read", __name__) is Finish
    assert ended("read", "shop.flows") is Fail
    assert ended("begin", __name__) is Fail


def test_outside_a_run_nothing_is_refused() -> None:
    guard.install()
    thread = threading.Thread(target=time.time)
    thread.start()
    thread.join()
    assert os.environ["PATH"]
    sqlite3.connect(":memory:").close()

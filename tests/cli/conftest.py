"""Fixtures with the sample database, which commands address directly or over HTTP."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.sample_database import CommandTarget, copied, environment, prepare

_READY = re.compile(rb"romancy serves \S+ on (http://\S+)\n")


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sample database. Tests copy it and never change it."""
    folder = tmp_path_factory.mktemp("prepared")
    prepare(folder)
    return folder


@pytest.fixture
def shop(prepared: Path, tmp_path: Path) -> CommandTarget:
    """A copy of the sample database, without a worker."""
    return CommandTarget(copied(prepared, tmp_path), ["--database", "shop.db"])


@pytest.fixture(scope="session")
def served(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandTarget]:
    """A server with an app on a copy of the sample database. All tests share it: each changes only its own instances."""
    folder = copied(prepared, tmp_path_factory.mktemp("served"))
    with (folder / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "romancy", "serve", "shop:app", "--port", "0"],
            cwd=folder,
            env=environment(ROMANCY_SHUTDOWN_TIMEOUT="1"),
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    try:
        yield CommandTarget(folder, ["--url", _url(process, folder)])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
        assert process.stdout is not None
        process.stdout.close()


def _url(process: subprocess.Popen[bytes], folder: Path) -> str:
    assert process.stdout is not None
    output = b""
    while not (found := _READY.search(output)):
        ready, _, _ = select.select([process.stdout], [], [], 60)
        part = os.read(process.stdout.fileno(), 1000) if ready else b""
        assert part, (output, (folder / "stderr").read_text())
        output += part
    return found[1].decode()


@pytest.fixture(params=["database", "url"])
def place(request: pytest.FixtureRequest) -> CommandTarget:
    """The sample database, addressed directly and over HTTP."""
    found: CommandTarget = request.getfixturevalue("shop" if request.param == "database" else "served")
    return found

"""The prepared database, looked at directly and over HTTP."""

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
from tests.cli.sample_database import Place, copied, environment, prepare

_SAID = re.compile(rb"romancy serves \S+ on (http://\S+)\n")


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database in which a lot has happened. It is copied, never changed."""
    folder = tmp_path_factory.mktemp("prepared")
    prepare(folder)
    return folder


@pytest.fixture
def shop(prepared: Path, tmp_path: Path) -> Place:
    """The database; nobody runs workflows in it."""
    return Place(copied(prepared, tmp_path), ["--database", "shop.db"])


@pytest.fixture(scope="session")
def served(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """An app on such a database, over HTTP, for all tests: they change only what they make themselves."""
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
        yield Place(folder, ["--url", _url(process, folder)])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
        assert process.stdout is not None
        process.stdout.close()


def _url(process: subprocess.Popen[bytes], folder: Path) -> str:
    assert process.stdout is not None
    said = b""
    while not (found := _SAID.search(said)):
        ready, _, _ = select.select([process.stdout], [], [], 60)
        part = os.read(process.stdout.fileno(), 1000) if ready else b""
        assert part, (said, (folder / "stderr").read_text())
        said += part
    return found[1].decode()


@pytest.fixture(params=["database", "url"])
def place(request: pytest.FixtureRequest) -> Place:
    """The same instances, looked at directly and over HTTP."""
    found: Place = request.getfixturevalue("shop" if request.param == "database" else "served")
    return found

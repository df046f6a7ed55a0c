"""Tests of an agent in a process that is killed during a request: the next process repeats only this request."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.integrations.integration_helpers import wait_for

SCRIPT = Path(__file__).with_name("agent_process.py")


def start_process(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, str(SCRIPT), str(folder)], stdout=subprocess.PIPE, text=True)


@pytest.mark.chaos
async def test_a_new_process_repeats_only_the_unanswered_request(tmp_path: Path) -> None:
    with start_process(tmp_path) as first:
        try:
            await wait_for(lambda: list(tmp_path.glob("thinking-*")), "the model has got the second request")
        finally:
            first.kill()
    (tmp_path / "gate").touch()
    with start_process(tmp_path) as second:
        try:
            output, _ = second.communicate(timeout=40)
        finally:
            second.kill()
    assert output == "It is there.\n"
    assert (tmp_path / "notes").read_text().splitlines() == [
        "asked with 1",
        "looked on the shelf",
        "asked with 3",
        "asked with 3",
    ]

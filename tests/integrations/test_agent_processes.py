"""An agent in a process of its own, which is killed while the model thinks: the next one asks only what was not answered."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.integrations.integration_helpers import seen

DESK = Path(__file__).with_name("agent_process.py")


def desk(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, str(DESK), str(folder)], stdout=subprocess.PIPE, text=True)


@pytest.mark.chaos
async def test_a_new_process_asks_only_what_was_not_answered(tmp_path: Path) -> None:
    with desk(tmp_path) as first:
        try:
            await seen(lambda: list(tmp_path.glob("thinking-*")), "the model thinks")
        finally:
            first.kill()
    (tmp_path / "gate").touch()
    with desk(tmp_path) as second:
        try:
            said, _ = second.communicate(timeout=40)
        finally:
            second.kill()
    assert said == "It is there.\n"
    assert (tmp_path / "notes").read_text().splitlines() == [
        "asked with 1",
        "looked on the shelf",
        "asked with 3",
        "asked with 3",
    ]

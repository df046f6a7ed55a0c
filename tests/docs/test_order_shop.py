"""Tests the order shop of the examples on every database."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import examples.order_shop
from tests.docs.pages import ROOT


def test_the_shop_serves_its_customers(bare_database: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "examples.order_shop", "--once", "--database", bare_database]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    documented = (examples.order_shop.__doc__ or "").partition("Output with --once:\n")[2]
    assert done.stdout.splitlines() == [line.strip() for line in documented.splitlines()], done.stderr
    assert done.returncode == 0
    assert "ERROR" not in done.stderr  # warnings are allowed, for example about a slow machine

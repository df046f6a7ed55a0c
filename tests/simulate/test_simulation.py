"""The whole engine under faults, by seed: nothing is lost, duplicated or unfinished. `make simulate` runs more seeds."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.simulate.seed_run import Report, simulate

_SEEDS = int(os.environ.get("ROMANCY_SEEDS", "200"))
_PORTION = 10


@pytest.mark.parametrize("first", range(1, _SEEDS + 1, _PORTION))
def test_every_operation_is_done_once_under_faults(first: int) -> None:
    for seed in range(first, min(first + _PORTION, _SEEDS + 1)):
        report = simulate(seed)
        assert not report.faults, _failure_message(report)


def test_a_seed_is_reproducible() -> None:
    for seed in (3, 22):
        first, second = simulate(seed), simulate(seed)
        assert first.trace == second.trace
        assert first.digest == second.digest


def test_a_seed_is_reproducible_in_another_process_with_another_hash_seed() -> None:
    code = "from tests.simulate.seed_run import simulate; print([simulate(seed).digest for seed in (3, 22)])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code], env={**environment, "PYTHONHASHSEED": hashes}, check=True, capture_output=True
        ).stdout
        for hashes in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert outputs[0].decode().strip() == str([simulate(seed).digest for seed in (3, 22)])


def test_different_seeds_differ() -> None:
    assert simulate(1).digest != simulate(2).digest


def _failure_message(report: Report) -> str:
    faults = "\n  ".join(report.faults)
    return f"seed {report.seed}:\n  {faults}\nTo reproduce it with a trace: make simulate SEEDS=1 SEED={report.seed} TRACE=1"

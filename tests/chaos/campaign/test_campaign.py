"""A short campaign on each database: nothing is lost, duplicated or out of order. `make chaos` runs long ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests import databases
from tests.chaos.campaign import database_targets
from tests.chaos.campaign.campaign import Campaign, run_campaign
from tests.chaos.campaign.fault_schedule import (
    CLIENT_CONNECTIONS,
    CONNECTIONS,
    FILES,
    NAMESPACES,
    PROCESSES,
    FaultKind,
    plan,
)

pytestmark = [pytest.mark.chaos, pytest.mark.slow]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", [kind for kind in database_targets.KINDS if kind in databases.names()])
async def test_a_campaign_finds_nothing(kind: str, tmp_path: Path) -> None:
    if reason := database_targets.why_not(kind):
        pytest.skip(reason)
    report = await run_campaign(Campaign(kind, 8, 5, tmp_path, workers=2, clients=2, pause=0.3))
    assert [str(fault) for fault in report.faults] == []
    assert report.totals["start acknowledged"] > 10
    assert report.injected.total() > 3


@pytest.mark.parametrize("kinds", [PROCESSES, CONNECTIONS, FILES])
def test_the_plan_of_a_seed_is_fixed_and_contains_every_kind(kinds: tuple[FaultKind, ...]) -> None:
    first, second = (plan(kinds, "3", 1.0) for _ in range(2))
    planned_faults = [next(first) for _ in range(3 * len(kinds))]
    assert planned_faults == [next(second) for _ in planned_faults]
    assert Counter(planned.kind for planned in planned_faults) == dict.fromkeys(kinds, 3)


def test_every_kind_of_fault_is_injected_somewhere() -> None:
    assert {*PROCESSES, *CONNECTIONS, *FILES, *CLIENT_CONNECTIONS, *NAMESPACES} == set(FaultKind)

"""A short campaign on each database: nothing is lost, doubled or out of order. `make chaos` is the long one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests import databases
from tests.chaos.campaign import database_targets
from tests.chaos.campaign.campaign import Campaign, wage
from tests.chaos.campaign.fault_schedule import CLIENTS, FILES, ISLANDS, LINES, PROCESSES, Blow, plan

pytestmark = [pytest.mark.chaos, pytest.mark.slow]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", [kind for kind in database_targets.KINDS if kind in databases.names()])
async def test_a_campaign_finds_nothing(kind: str, tmp_path: Path) -> None:
    if reason := database_targets.why_not(kind):
        pytest.skip(reason)
    report = await wage(Campaign(kind, 8, 5, tmp_path, workers=2, clients=2, calm=0.3))
    assert [str(fault) for fault in report.faults] == []
    assert report.figures["start acknowledged"] > 10
    assert report.blows.total() > 3


@pytest.mark.parametrize("blows", [PROCESSES, LINES, FILES])
def test_a_seed_gives_one_plan_in_which_everything_comes(blows: tuple[Blow, ...]) -> None:
    first, second = (plan(blows, "3", 1.0) for _ in range(2))
    strikes = [next(first) for _ in range(3 * len(blows))]
    assert strikes == [next(second) for _ in strikes]
    assert Counter(strike.blow for strike in strikes) == dict.fromkeys(blows, 3)


def test_every_blow_is_struck_somewhere() -> None:
    assert {*PROCESSES, *LINES, *FILES, *CLIENTS, *ISLANDS} == set(Blow)

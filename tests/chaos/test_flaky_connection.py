"""An app whose connections to the database break at random, before, after and during a request."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests import servers
from tests.chaos import competing_consumers, hotel_workload, order_workflows
from tests.chaos.hotel_workload import Acknowledgements, HotelClient, count, faults, stop_clerks, until
from tests.postgres_proxy import Cut, proxy_to

from romancy import App

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

VISITS, CLERKS, EVERY = 80, 3, 400


@pytest.fixture
def address() -> str:
    return servers.shared_postgres_database()


@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_is_lost_or_done_twice(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setenv(order_workflows.EFFECT_LOG, str(tmp_path / "effects"))
    rng, acknowledgements = random.Random(seed), Acknowledgements()

    def now_and_then(text: str, number: int) -> Cut | None:
        return rng.choice((Cut.BEFORE, Cut.AFTER, Cut.DURING)) if rng.random() * EVERY < 1 else None

    async with proxy_to(address) as line:
        app = App(
            line.address(address),
            workflows=[hotel_workload.visit, competing_consumers.clerk],
            heartbeat_interval=0.2,
            lease_timeout=5,
        )
        async with app:
            await servers.empty_postgres(address)
            await app._maintenance.register_worker()  # type: ignore[union-attr]
            await competing_consumers.start_clerks(app, CLERKS)
            line.expect(now_and_then)
            await HotelClient(app, acknowledgements, rng, at_once=10).serve(VISITS)

            async def all_gone() -> bool:
                return await count(address, hotel_workload.UNFINISHED) == 0

            await until(all_gone, "every visit ends")
            await stop_clerks(app, CLERKS)
            cuts = len(line.cuts)
            line.expect(lambda text, number: None)
    assert cuts > 5
    assert await faults(address, tmp_path, acknowledgements, VISITS) == []

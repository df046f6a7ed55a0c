"""Two services with different workflows on one database: neither is in the other's way."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import servers
from tests.chaos import competing_consumers, hotel_workload, order_workflows
from tests.chaos.hotel_workload import Books, Hands, Reception, close_clerks, count, faults, rows, until

from romancy import Client

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

FLOOD, VISITS, CLERKS = 1500, 60, 3
ORDERS_LEFT = "SELECT count(*) FROM romancy_instances WHERE ended_at IS NULL AND workflow = 'order'"
IN_WRONG_HANDS = """
    SELECT i.id, i.workflow, w.service FROM romancy_instances AS i JOIN romancy_journal AS j ON j.instance_id = i.id
    JOIN romancy_workers AS w ON w.id = j.worker
    WHERE (i.workflow = 'order') <> (w.service = 'orders')
"""


@pytest.fixture
def server() -> Iterator[servers.Postgres]:
    one = servers.Postgres()
    yield one
    one.remove()


async def test_a_flood_in_one_service_does_not_drown_the_other(server: servers.Postgres, tmp_path: Path) -> None:
    address, books = server.address, Books()
    folders = [tmp_path / name for name in ("orders", "visits")]
    for folder in folders:
        folder.mkdir()
    with Hands(address, folders[0], service="orders") as busy, Hands(address, folders[1], service="visits") as calm:
        flooded = busy.start()
        calm.start()
        async with Client(address, workflows=hotel_workload.SERVICES["all"]) as client:
            reception = Reception(client, books, random.Random(5))
            flooding = asyncio.create_task(_flood(client))
            await _until_count(address, "SELECT count(*) FROM romancy_instances", at_least=FLOOD // 3)
            await competing_consumers.hire(client, CLERKS)
            await reception.serve(VISITS)
            await _until_count(address, hotel_workload.FINISHED, at_least=VISITS)
            await flooding
            assert await count(address, ORDERS_LEFT) > 0, "the visits were over while the flood was not"

            flooded.kill()  # what nobody can run waits, and the other service goes on
            left = await count(address, ORDERS_LEFT)
            await reception.serve(VISITS, first=VISITS)
            await _until_count(address, hotel_workload.FINISHED, at_least=2 * VISITS)
            await close_clerks(client, CLERKS)
            assert await count(address, ORDERS_LEFT) == left
            assert await rows(address, IN_WRONG_HANDS) == []

            busy.start()
            await _until_count(address, ORDERS_LEFT, at_most=0)
            for number in range(0, FLOOD, 50):
                assert (await client.get_result(f"order-{number}")).output == order_workflows.expected(number)
        assert await rows(address, IN_WRONG_HANDS) == []
        assert await faults(address, folders[1], books, 2 * VISITS) == []
        assert await hotel_workload.wrong_repetitions(address, order_workflows.read(folders[0] / "ledger")) == []
        assert "Traceback" not in busy.texts() + calm.texts()


async def _flood(client: Client) -> None:
    numbers = iter(range(FLOOD))

    async def some() -> None:
        for number in numbers:
            await client.start_workflow(order_workflows.order.with_options(instance_id=f"order-{number}"), number)

    await asyncio.gather(*(some() for _ in range(50)))


async def _until_count(address: str, sql: str, *, at_least: int | None = None, at_most: int | None = None) -> None:
    async def seen() -> bool:
        found = await count(address, sql)
        return (at_least is None or found >= at_least) and (at_most is None or 0 <= found <= at_most)

    await until(seen, sql, seconds=100)

"""Two services with different workflows share one database without affecting each other."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import servers
from tests.chaos import competing_consumers, hotel_workload, order_workflows
from tests.chaos.hotel_workload import Acknowledgements, HotelClient, HotelWorkers, count, faults, rows, stop_clerks, until

from romancy import Client

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

ORDERS, VISITS, CLERKS = 1500, 60, 3
ORDERS_LEFT = "SELECT count(*) FROM romancy_instances WHERE ended_at IS NULL AND workflow = 'order'"
IN_WRONG_SERVICE = """
    SELECT i.id, i.workflow, w.service FROM romancy_instances AS i JOIN romancy_journal AS j ON j.instance_id = i.id
    JOIN romancy_workers AS w ON w.id = j.worker
    WHERE (i.workflow = 'order') <> (w.service = 'orders')
"""


@pytest.fixture
def server() -> Iterator[servers.Postgres]:
    one = servers.Postgres()
    yield one
    one.remove()


async def test_a_burst_in_one_service_does_not_delay_the_other(server: servers.Postgres, tmp_path: Path) -> None:
    address, acknowledgements = server.address, Acknowledgements()
    folders = [tmp_path / name for name in ("orders", "visits")]
    for folder in folders:
        folder.mkdir()
    with (
        HotelWorkers(address, folders[0], service="orders") as order_workers,
        HotelWorkers(address, folders[1], service="visits") as visit_workers,
    ):
        order_worker = order_workers.start()
        visit_workers.start()
        async with Client(address, workflows=hotel_workload.SERVICES["all"]) as client:
            hotel_client = HotelClient(client, acknowledgements, random.Random(5))
            starting = asyncio.create_task(_start_orders(client))
            await _until_count(address, "SELECT count(*) FROM romancy_instances", at_least=ORDERS // 3)
            await competing_consumers.start_clerks(client, CLERKS)
            await hotel_client.serve(VISITS)
            await _until_count(address, hotel_workload.FINISHED, at_least=VISITS)
            await starting
            assert await count(address, ORDERS_LEFT) > 0, "the visits ended before the orders"

            order_worker.kill()  # instances that no worker can run wait, and the other service continues
            left = await count(address, ORDERS_LEFT)
            await hotel_client.serve(VISITS, first=VISITS)
            await _until_count(address, hotel_workload.FINISHED, at_least=2 * VISITS)
            await stop_clerks(client, CLERKS)
            assert await count(address, ORDERS_LEFT) == left
            assert await rows(address, IN_WRONG_SERVICE) == []

            order_workers.start()
            await _until_count(address, ORDERS_LEFT, at_most=0)
            for number in range(0, ORDERS, 50):
                assert (await client.get_result(f"order-{number}")).output == order_workflows.expected(number)
        assert await rows(address, IN_WRONG_SERVICE) == []
        assert await faults(address, folders[1], acknowledgements, 2 * VISITS) == []
        assert await hotel_workload.wrong_repetitions(address, order_workflows.read(folders[0] / "effects")) == []
        assert "Traceback" not in order_workers.texts() + visit_workers.texts()


async def _start_orders(client: Client) -> None:
    numbers = iter(range(ORDERS))

    async def some() -> None:
        for number in numbers:
            await client.start_workflow(order_workflows.order.with_options(instance_id=f"order-{number}"), number)

    await asyncio.gather(*(some() for _ in range(50)))


async def _until_count(address: str, sql: str, *, at_least: int | None = None, at_most: int | None = None) -> None:
    async def seen() -> bool:
        found = await count(address, sql)
        return (at_least is None or found >= at_least) and (at_most is None or 0 <= found <= at_most)

    await until(seen, sql, seconds=100)

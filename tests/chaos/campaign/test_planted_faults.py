"""The comparison finds each fault that is planted in the app or in the database."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import httpx
import pytest
from tests.chaos import hotel_workload, order_workflows
from tests.chaos.campaign import campaign, campaign_workflows, clients
from tests.chaos.campaign.app import CampaignApp
from tests.chaos.campaign.campaign import Report
from tests.chaos.campaign.comparison import Fault, Sort
from tests.chaos.campaign.planted_faults import VARIABLE, Plant

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

ORDERS = 24
TIMEOUT = 60.0
"""Seconds; long enough that a late answer on a busy machine does not count as an unknown outcome."""
UNENDING = {Plant.LOST_EVENT, Plant.LOST_MESSAGE, Plant.LOST_CANCEL, Plant.DISORDERED_MESSAGE}
"""With these faults some orders never end, so the test does not wait for them."""
FOUND_AS = {
    Plant.LOST_START: Sort.LOST,
    Plant.LOST_EVENT: Sort.LOST,
    Plant.LOST_MESSAGE: Sort.LOST,
    Plant.LOST_CANCEL: Sort.LOST,
    Plant.REFUSED_START: Sort.REFUSED,
    Plant.REFUSED_EVENT: Sort.REFUSED,
    Plant.REFUSED_MESSAGE: Sort.REFUSED,
    Plant.REFUSED_CANCEL: Sort.REFUSED,
    Plant.DOUBLED_EVENT: Sort.DOUBLED,
    Plant.DOUBLED_MESSAGE: Sort.DOUBLED,
    Plant.DISORDERED_MESSAGE: Sort.DISORDER,
    Plant.DOUBLED_ROW: Sort.DOUBLED,
    Plant.LOST_ROW: Sort.LOST,
    Plant.LOST_COMPENSATION: Sort.LOST,
    Plant.LOST_LETTER: Sort.LOST,
}


async def _faults(folder: Path, *, timeout: float) -> list[Fault]:
    """Run a campaign in this process without injected faults, and return the faults found."""
    address = str(folder / "chaos.db")
    await hotel_workload.rows(address, campaign_workflows.ROWS)
    app = CampaignApp(address, heartbeat_interval=0.5, lease_timeout=30)
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))

    def open(number: int) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")

    async with clients.open_clients(["operator", "c0"], 1, open, folder, seed=1, timeout=TIMEOUT) as (operator, client):
        await campaign.start_long_running(operator, address, 30)
        over = asyncio.Event()
        serving = asyncio.create_task(client.live(over, at_once=12))
        while client.served < ORDERS:
            await asyncio.sleep(0.01)
        over.set()
        await serving
        await campaign.none_left(address, campaign.ORDERS_LEFT, timeout)
        await campaign.stop_long_running(operator, address, timeout)
    await app.shutdown()
    report = Report()
    await campaign.compare_state(address, folder, report)
    return report.faults


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(order_workflows.EFFECT_LOG, str(tmp_path / "effects"))
    return tmp_path


@pytest.mark.parametrize("plant", Plant)
async def test_a_planted_fault_is_found(plant: Plant, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"{plant}:2")
    timeout = 2 if plant in UNENDING else 60
    assert FOUND_AS[plant] in {fault.sort for fault in await _faults(folder, timeout=timeout)}


TAMPERING = {
    "an activity is recorded twice": """
        INSERT INTO romancy_history
        SELECT instance_id, generation, seq + 100, kind, op, outcome, at, name, role, digest, input, value, attempt,
            site, scheduled_at, started_at, ended_at, worker, epoch
        FROM romancy_history WHERE name = 'stamp' LIMIT 1""",
    "there is a gap in a history": "DELETE FROM romancy_history WHERE instance_id LIKE 'order-%' AND seq = 2",
    "something was left behind": """
        INSERT INTO romancy_waits (instance_id, op, kind, since, key, site) VALUES ('clerk-0', 'x', 'timer', 0, '', '')""",
    "nothing would wake the instance": """
        UPDATE romancy_instances SET ended_at = NULL, status = 'running', owner = NULL, wake_at = NULL
        WHERE id = 'clerk-0'""",
    "two workers have written in one epoch": """
        UPDATE romancy_history SET worker = 'x' WHERE instance_id LIKE 'order-%' AND seq = 2""",
    "the epoch decreases in a history": """
        UPDATE romancy_history SET epoch = 99 WHERE instance_id LIKE 'order-%' AND seq = 3""",
}


async def test_a_changed_row_is_found(folder: Path) -> None:
    assert await _faults(folder, timeout=60) == []
    for number, (what, sql) in enumerate(TAMPERING.items()):
        copy = folder.parent / f"{folder.name}-{number}"
        shutil.copytree(folder, copy)
        await hotel_workload.rows(str(copy / "chaos.db"), sql)
        report = Report()
        await campaign.compare_state(str(copy / "chaos.db"), copy, report)
        assert any(fault.sort is Sort.BROKEN and fault.what.startswith(what) for fault in report.faults), what


async def test_an_effect_that_is_repeated_without_a_loss_is_found(folder: Path) -> None:
    assert await _faults(folder, timeout=60) == []
    effects = folder / "effects"
    effects.write_text(2 * effects.read_text())
    report = Report()
    await campaign.compare_state(str(folder / "chaos.db"), folder, report)
    assert any("had not lost the instance" in fault.what for fault in report.faults)

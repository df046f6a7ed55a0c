"""A SQLite file that is deleted, moved or replaced under a running app: no write to the lost file is acknowledged."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from romancy import App, Client, StoreError, WorkflowContext, workflow
from romancy.store.sqlite import file_identity


@workflow
async def order(ctx: WorkflowContext, number: int) -> int:
    return number


def delete(file: Path) -> None:
    file.unlink()


def move(file: Path) -> None:
    file.rename(file.with_suffix(".old"))


def names(file: str) -> set[str]:
    """The names in the folder of the file."""
    return set(os.listdir(Path(file).parent))


def move_back(file: Path) -> None:
    file.with_suffix(".old").rename(file)


def replace(file: Path) -> None:
    shutil.copy(file, file.with_suffix(".copy"))
    os.replace(file.with_suffix(".copy"), file)


def delete_the_log(file: Path) -> None:
    Path(f"{file}-wal").unlink()


def lead_a_link_elsewhere(link: Path) -> None:
    shutil.copy(link, link.with_suffix(".copy"))
    link.unlink()
    link.symlink_to(link.with_suffix(".copy"))


@pytest.fixture(autouse=True)
def always_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_identity, "_CHECK_INTERVAL", 0)


@pytest.mark.parametrize("harm", [delete, move, replace, delete_the_log])
async def test_nothing_is_acknowledged_into_nowhere(file: str, harm: Callable[[Path], None]) -> None:
    async with App(file, workflows=[order], shutdown_timeout=0) as app:
        assert await (await app.start_workflow(order, 1)).result() == 1
        while await app.ready() is not None:  # until the worker has polled once
            await asyncio.sleep(0.005)
        harm(Path(file))
        with pytest.raises(StoreError, match="while it is open here") as caught:
            await app.start_workflow(order, 2)
        assert caught.value.retryable
        with pytest.raises(StoreError, match="while it is open here"):
            await app.send_event("paid", "/shop")
        assert await app.ready() is not None


async def test_a_link_that_leads_elsewhere(tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "real.db")
    async with App(str(link), workflows=[order], shutdown_timeout=0) as app:
        await app.start_workflow(order, 1)
        lead_a_link_elsewhere(link)
        with pytest.raises(StoreError, match="replaced by another"):
            await app.start_workflow(order, 2)


async def test_it_goes_on_when_the_file_is_put_back(file: str) -> None:
    place = Path(file)
    async with App(file, workflows=[order], shutdown_timeout=0) as app:
        move(place)
        with pytest.raises(StoreError, match="deleted or moved"):
            await app.start_workflow(order.with_options(instance_id="a"), 1)
        move_back(place)
        handle = await app.start_workflow(order.with_options(instance_id="b"), 2)
        assert await handle.result() == 2
        while await app.ready() is not None:
            await asyncio.sleep(0.005)


async def test_a_heart_makes_no_new_file(file: str) -> None:
    async with Client(file, workflows=[order]) as client:
        heartbeat = client._store.heartbeat("worker")
        delete(Path(file))
        with pytest.raises(StoreError, match="deleted or moved"):
            await asyncio.to_thread(heartbeat.renew, 10)
    assert Path(file).name not in names(file)

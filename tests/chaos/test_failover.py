"""The primary is lost with its data and its standby is promoted; workers and clients find the new primary by themselves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import servers
from tests.chaos import competing_consumers, hotel_workload
from tests.chaos.hotel_workload import Acknowledgements, HotelClient, HotelWorkers, count, faults, stop_clerks, until

from romancy import Client, StoreError
from romancy.clock import SystemClock
from romancy.store.open import open_store
from romancy.store.sql import server

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

VISITS, CLERKS = 250, 3


class Pair:
    """A primary, and a synchronous standby."""

    def __init__(self) -> None:
        self.primary = servers.Postgres()
        self.standby = servers.Standby(self.primary)

    def address(self, options: str = "") -> str:
        """An address with both servers, the primary first."""
        return f"postgresql://romancy@127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}/postgres{options}"

    def fail_over(self) -> None:
        """Kill the primary and promote the standby."""
        self.primary.kill()
        self.standby.promote()

    def remove(self) -> None:
        """Stop both servers."""
        self.standby.remove()
        self.primary.remove()


@pytest.fixture
def pair() -> Iterator[Pair]:
    one = Pair()
    yield one
    one.remove()


@pytest.mark.parametrize("options", ["?target_session_attrs=read-write", ""], ids=["asked to write", "not asked"])
async def test_a_standby_takes_over(pair: Pair, tmp_path: Path, options: str) -> None:
    acknowledgements, address = Acknowledgements(), pair.address(options)
    with HotelWorkers(address, tmp_path) as workers:
        for _ in range(2):
            workers.start()
        async with Client(address, workflows=[hotel_workload.visit, competing_consumers.clerk]) as client:
            await competing_consumers.start_clerks(client, CLERKS)
            serving = asyncio.create_task(HotelClient(client, acknowledgements, random.Random(3), at_once=20).serve(VISITS))

            async def some_have_come() -> bool:
                return len(acknowledgements.started) > VISITS // 3

            await until(some_have_come, "visits begin", more=lambda: workers.texts()[-3000:])
            await asyncio.to_thread(pair.fail_over)
            started_before = len(acknowledgements.started)
            await serving

            async def all_are_gone() -> bool:
                return await count(pair.standby.address, hotel_workload.UNFINISHED) == 0

            await until(all_are_gone, "every visit ends", more=lambda: workers.texts()[-3000:])
            await stop_clerks(client, CLERKS)
        assert started_before < VISITS, "the primary died during the load"
        assert await faults(pair.standby.address, tmp_path, acknowledgements, VISITS) == [], workers.texts()[-3000:]
        assert "Traceback" not in workers.texts()


async def test_a_standby_alone_is_refused(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A standby is not written to, and the error says that it is a standby."""
    monkeypatch.setattr(server, "_RETRY_TIMEOUT", 0.1)
    for address in (pair.standby.address, f"{pair.standby.address}?target_session_attrs=read-write"):
        store = open_store(address, clock=SystemClock())
        with pytest.raises(
            StoreError, match=r"is a standby, or read-only|no server that matches target_session_attrs"
        ) as caught:
            await store.open()
        assert caught.value.retryable
        await store.close()

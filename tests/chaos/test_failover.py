"""The primary dies with everything on it; its standby takes over; workers and clients find it by themselves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import servers
from tests.chaos import competing_consumers, hotel_workload
from tests.chaos.hotel_workload import Books, Hands, Reception, close_clerks, count, faults, until

from romancy import Client, StoreError
from romancy.clock import SystemClock
from romancy.store.open import open_store
from romancy.store.sql import server as patience

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

VISITS, CLERKS = 250, 3


class Pair:
    """A primary, and a standby that has everything that was acknowledged."""

    def __init__(self) -> None:
        self.primary = servers.Postgres()
        self.standby = servers.Standby(self.primary)

    def address(self, options: str = "") -> str:
        """Both of them, the primary first."""
        return f"postgresql://romancy@127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}/postgres{options}"

    def fail_over(self) -> None:
        """The primary is gone, the standby is promoted."""
        self.primary.kill()
        self.standby.promote()

    def remove(self) -> None:
        """Stop what is left."""
        self.standby.remove()
        self.primary.remove()


@pytest.fixture
def pair() -> Iterator[Pair]:
    one = Pair()
    yield one
    one.remove()


@pytest.mark.parametrize("options", ["?target_session_attrs=read-write", ""], ids=["asked to write", "not asked"])
async def test_a_standby_takes_over(pair: Pair, tmp_path: Path, options: str) -> None:
    books, address = Books(), pair.address(options)
    with Hands(address, tmp_path) as hands:
        for _ in range(2):
            hands.start()
        async with Client(address, workflows=[hotel_workload.visit, competing_consumers.clerk]) as client:
            await competing_consumers.hire(client, CLERKS)
            serving = asyncio.create_task(Reception(client, books, random.Random(3), at_once=20).serve(VISITS))

            async def some_have_come() -> bool:
                return len(books.started) > VISITS // 3

            await until(some_have_come, "visits begin", more=lambda: hands.texts()[-3000:])
            await asyncio.to_thread(pair.fail_over)
            acknowledged = len(books.started)
            await serving

            async def all_are_gone() -> bool:
                return await count(pair.standby.address, hotel_workload.UNFINISHED) == 0

            await until(all_are_gone, "every visit ends", more=lambda: hands.texts()[-3000:])
            await close_clerks(client, CLERKS)
        assert acknowledged < VISITS, "the primary died in the middle"
        assert await faults(pair.standby.address, tmp_path, books, VISITS) == [], hands.texts()[-3000:]
        assert "Traceback" not in hands.texts()


async def test_a_standby_alone_is_of_no_use(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not written to, and said to be what it is."""
    monkeypatch.setattr(patience, "_RETRY_TIMEOUT", 0.1)
    for address in (pair.standby.address, f"{pair.standby.address}?target_session_attrs=read-write"):
        store = open_store(address, clock=SystemClock())
        with pytest.raises(
            StoreError, match=r"is a standby, or read-only|no server that fits target_session_attrs"
        ) as caught:
            await store.open()
        assert caught.value.retryable
        await store.close()

"""Processes that relay and are killed: no event is lost, and one process at a time has each event."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.outbox.fake_broker import Desk
from tests.outbox.receiver import Hang, Receiver, Respond

from romancy import Client

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.chaos


@contextmanager
def relaying(database: str, url: str, *, lease: float = 1.0) -> Iterator[subprocess.Popen[bytes]]:
    """A process that relays, after its start; killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.outbox.relay_process", database, url, str(lease)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"},
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        yield process
    finally:
        process.kill()
        process.communicate()


async def put(database: str, *ids: str) -> None:
    async with Client(database, workflows=[], broker=Desk(name="http")) as client:
        for event_id in ids:
            await client.send_event("told", "/shop", event_id=event_id)


async def emptied(database: str) -> None:
    async with Client(database, workflows=[]) as client:
        while (await client.list_outbox()).items:
            await asyncio.sleep(0.02)


def so_many(count: int, times: Counter[str]) -> bool:
    return len(times) >= count


async def test_killed_between_sending_and_noting_it_the_event_is_sent_again(database: str) -> None:
    with Receiver(lambda request, nth: Hang() if nth == 1 else Respond()) as receiver:
        with relaying(database, receiver.url) as first:
            await put(database, "e-1")
            await receiver.until(lambda times: times["e-1"] == 1)
            first.kill()  # the server has received the event, but the delivery is not recorded
            first.wait()
        with relaying(database, receiver.url):
            await receiver.until(lambda times: times["e-1"] == 2)
            await emptied(database)
    one, two = receiver.requests
    assert one.body == two.body, "the event is repeated with the same id"


async def test_nothing_is_lost_whichever_process_is_killed(database: str) -> None:
    ids = [f"e-{n:02}" for n in range(40)]
    with Receiver() as receiver:
        await put(database, *ids)
        for count in (5, 15, 25):
            with relaying(database, receiver.url) as process:
                await receiver.until(partial(so_many, count))
                process.kill()
                process.wait()
        with relaying(database, receiver.url):
            await receiver.until(lambda times: len(times) == len(ids))
            await emptied(database)
    assert sorted(receiver.times) == ids


async def test_two_that_relay_one_database_send_nothing_twice(database: str) -> None:
    ids = [f"e-{n:03}" for n in range(200)]
    with Receiver() as one, Receiver() as two, relaying(database, one.url, lease=60), relaying(database, two.url, lease=60):
        await put(database, *ids)
        await emptied(database)
    assert one.times + two.times == dict.fromkeys(ids, 1)

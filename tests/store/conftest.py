"""Stores on every database, in every configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Literal

import pytest
from tests import mariadb, servers

from romancy.clock import SystemClock
from romancy.codec import NO_CODEC, Compress, Encrypt, FileBlobs, Layer, Offload, read_codec
from romancy.store.open import open_store
from romancy.store.port import Store

VARIANTS = ["file", "file inline", "memory", "postgres", "mariadb", "file coded", "postgres coded", "mariadb coded"]
Open = Callable[[], Store]
MakeStore = Callable[[], Awaitable[Store]]


@pytest.fixture(params=VARIANTS)
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """A function that makes unopened stores on one database."""
    variant: str = request.param
    threads: Literal["threads", "inline"] = "inline" if "inline" in variant else "threads"
    if variant.startswith("postgres"):
        address = servers.shared_postgres_database()
    elif variant.startswith("mariadb"):
        if why_not := mariadb.why_not():
            pytest.skip(why_not)
        address = mariadb.shared_database()
    else:
        address = ":memory:" if variant == "memory" else str(tmp_path / "test.db")
    coder = read_codec(_codec(tmp_path)) if "coded" in variant else NO_CODEC
    return lambda: open_store(address, clock=SystemClock(), threads=threads, codec=coder)


def _codec(folder: Path) -> list[Layer | Offload]:
    """All layers. Short payloads stay in the database."""
    return [Compress(over=1), Encrypt({"old": b"o" * 32, "new": b"n" * 32}), Offload(FileBlobs(folder / "blobs"), over=120)]


@pytest.fixture
async def store(request: pytest.FixtureRequest, new_store: Open) -> AsyncIterator[Store]:
    """An open store on an empty database."""
    if request.node.callspec.params["new_store"].startswith("postgres"):
        await servers.empty_postgres(servers.shared_postgres_database())
    if request.node.callspec.params["new_store"].startswith("mariadb"):
        await mariadb.empty(mariadb.shared_database())
    opened_store = new_store()
    await opened_store.open()
    yield opened_store
    await opened_store.close()


@pytest.fixture
async def make_store(request: pytest.FixtureRequest, new_store: Open, store: Store) -> AsyncIterator[MakeStore]:
    """A function that opens one more store on the same database."""
    if request.node.callspec.params["new_store"] == "memory":
        pytest.skip("a database in memory has only one store")
    opened: list[Store] = []

    async def make() -> Store:
        opened.append(new_store())
        await opened[-1].open()
        return opened[-1]

    yield make
    for opened_store in opened:
        await opened_store.close()

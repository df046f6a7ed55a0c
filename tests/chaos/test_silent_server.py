"""A server that stops answering: every call ends within its timeout, and the app can be closed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import databases
from tests.http.asgi_client import STRUCTURED, call, structured
from tests.postgres_proxy import Cut, SilentProxy, once, proxy_to, silent_proxy_to
from tests.servers import Postgres
from tests.store.conformance.builders import create, publish

from romancy import ActivityContext, App, StoreError, WorkflowContext, WorkflowHandle, activity, workflow
from romancy.clock import SystemClock, monotonic
from romancy.store.open import ServerOptions, open_store
from romancy.store.sql import call_timeout, server

pytestmark = pytest.mark.chaos


@activity
async def double(ctx: ActivityContext, number: int) -> int:
    return 2 * number


@workflow
async def order(ctx: WorkflowContext, number: int) -> int:
    return await double(ctx, number)


@pytest.fixture(params=["postgres", "mariadb"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database on a server."""
    if request.param not in databases.names():
        pytest.skip(f"{request.param} is not one of ROMANCY_TEST_DATABASES")
    with databases.lending(request.param, tmp_path) as lend:
        yield lend()


@pytest.fixture
async def proxy(address: str) -> AsyncIterator[SilentProxy]:
    """A proxy to the server."""
    async with silent_proxy_to(address) as one:
        yield one


@pytest.fixture
def fall_silent(proxy: SilentProxy, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Silences the server and shortens the timeout of calls to a tenth of a second."""

    def fall_silent() -> None:
        proxy.silence()
        monkeypatch.setattr(call_timeout, "CALL_TIMEOUT", 0.1)
        monkeypatch.setattr("romancy.app._HEALTH_CHECK_TIMEOUT", 0.1)

    return fall_silent


@pytest.fixture
async def app(proxy: SilentProxy, address: str) -> AsyncIterator[App]:
    """An app that uses the proxy. It is closed at the end, whether the server answers or not."""
    async with App(proxy.address(address), workflows=[order], shutdown_timeout=0.1, listen_notify=False, pool_size=3) as app:
        assert await (await app.start_workflow(order, 1)).result() == 2
        yield app


async def test_every_call_is_answered(
    app: App, proxy: SilentProxy, fall_silent: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fall_silent()
    calls: list[Callable[[], Any]] = [
        lambda: app.start_workflow(order, 2),
        lambda: app.send_event("paid", "/shop"),
        lambda: app.list_instances(),
        lambda: app.get_handle("nothing").status(),
    ]
    for _ in range(2):  # first on open connections, then on new ones
        found = await asyncio.gather(*(call() for call in calls for _ in range(5)), return_exceptions=True)
        assert [type(one) for one in found] == [StoreError] * len(found)
        assert all(one.retryable for one in found if isinstance(one, StoreError))
        assert await app.ready() is not None
    proxy.resume()
    monkeypatch.setattr(call_timeout, "CALL_TIMEOUT", 30.0)
    handle: WorkflowHandle[int] | None = None
    while handle is None:
        try:
            handle = await app.start_workflow(order, 3)
        except StoreError:
            await asyncio.sleep(0.01)
    assert await handle.result() == 6


@pytest.fixture
def stoppable() -> Iterator[Postgres]:
    """A server of the test's own, whose processes can be stopped."""
    server = Postgres()
    yield server
    server.send(signal.SIGCONT)
    server.remove()


async def test_http_is_answered_while_the_server_is_stopped(stoppable: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    async def post(id: str) -> int:
        return (await call(app, "/events", structured(id=id), headers=STRUCTURED)).status

    async with App(stoppable.address, workflows=[order], shutdown_timeout=0.1) as app:
        assert await post("before") == 202
        stoppable.send(signal.SIGSTOP)
        monkeypatch.setattr(call_timeout, "CALL_TIMEOUT", 0.1)
        monkeypatch.setattr("romancy.app._HEALTH_CHECK_TIMEOUT", 0.1)
        assert await asyncio.gather(*(post(f"meanwhile-{number}") for number in range(5))) == [503] * 5
        assert (await call(app, "/health/ready", method="GET")).status == 503
        assert (await call(app, "/health/live", method="GET")).status == 200
        stoppable.send(signal.SIGCONT)
        monkeypatch.setattr(call_timeout, "CALL_TIMEOUT", 30.0)
        while await post("after") != 202:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("where", "known"),
    [("^BEGIN", True), ("romancy_subscriptions", True), ("^COMMIT$", False), ("INSERT INTO romancy_instances", False)],
)
async def test_an_error_says_whether_the_outcome_is_known(
    postgres: str, monkeypatch: pytest.MonkeyPatch, where: str, known: bool
) -> None:
    ahead = [0.0]
    for module in (call_timeout, server):
        monkeypatch.setattr(module, "monotonic", lambda: monotonic() + ahead[0])
    async with proxy_to(postgres) as proxy:
        store = open_store(proxy.address(postgres), clock=SystemClock(), server=ServerOptions(listen_notify=False))
        await store.open()
        proxy.expect(once(where, Cut.STALL))
        write = create("a") if "INSERT" in where else publish()
        writing = asyncio.ensure_future(store.commit([write]))
        while not proxy.cuts:
            await asyncio.sleep(0.005)
        ahead[0] = 100.0  # the timeout expires while the server is silent
        with pytest.raises(StoreError) as caught:
            await writing
        assert ("not known whether this was written" in str(caught.value)) is not known
        assert caught.value.retryable
        await store.close()


async def test_an_app_is_closed_while_calls_hang(proxy: SilentProxy, address: str, fall_silent: Callable[[], None]) -> None:
    before = asyncio.all_tasks()
    async with App(proxy.address(address), workflows=[order], shutdown_timeout=0.1) as app:
        assert await (await app.start_workflow(order, 1)).result() == 2
        fall_silent()
        hanging: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(app.start_workflow(order, number)) for number in range(5)
        ]
        hanging += [asyncio.ensure_future(app.list_instances()) for _ in range(5)]
        await asyncio.sleep(0)
    found = await asyncio.gather(*hanging, return_exceptions=True)
    assert all(isinstance(one, Exception) for one in found)
    left = [task.get_name() for task in asyncio.all_tasks() - before if "romancy" in task.get_name()]
    assert left == []

"""Whatever the store raises, and wherever: it is logged, and everything that works in the background goes on."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

import pytest

from romancy import (
    ActivityContext,
    App,
    Client,
    StoreError,
    WorkflowCancelledError,
    WorkflowContext,
    activity,
    send_event,
    wait_event,
    workflow,
)
from romancy.admin.local import DatabaseManager
from romancy.admin.records import ActionKind
from romancy.store.sqlite.heartbeat import SqliteHeartbeat

ERRORS = [KeyError, IndexError, RuntimeError, MemoryError]
VERBS = (
    "commit",
    "claim",
    "sweep",
    "prune_instances",
    "prune_generations",
    "prune_messaging",
    "prune_audit",
    "roll_up",
    "kinds_waiting",
    "workers",
    "owned",
    "load",
    "inbox",
    "with_unread_inbox",
    "upcoming",
    "emit_staged",
    "endings",
    "claim_outbox",
    "record_outbox",
    "next_outbox_due",
    "count_outbox",
    "prune_outbox",
    "claim_bulk_action",
    "save_bulk_action",
)
"""What the tasks in the background ask of a store."""


CASES = [
    *((verb, ERRORS[(place + times) % len(ERRORS)], times) for place, verb in enumerate(VERBS) for times in (1, 4)),
    *(("commit", error, 2) for error in ERRORS),
]

Shop: TypeAlias = "tuple[App, Client, Taker]"


class Taker:
    """A broker that takes everything."""

    name = "taker"

    def __init__(self) -> None:
        self.taken: list[str] = []

    async def start(self) -> None:
        """There is nothing to do."""

    async def send(self, event: Any) -> None:
        self.taken.append(event.id)

    async def close(self) -> None:
        """There is nothing to do."""


@activity
async def double(ctx: ActivityContext, number: int) -> int:
    return 2 * number


@workflow
async def order(ctx: WorkflowContext, number: int) -> int:
    await send_event(ctx, "ordered", "/shop", {"number": number})
    paid = await wait_event(ctx, "paid", subject=ctx.instance_id)
    return await double(ctx, number) + int(paid.data["more"])


def app_of(database: str, broker: Taker) -> App:
    return App(
        database,
        workflows=[order],
        broker=broker,
        poll_interval=0.02,
        heartbeat_interval=0.02,
        lease_timeout=1,
        outbox_interval=0.02,
        outbox_retention=60,
        instance_retention=3600,
        archive_retention=3600,
        audit_retention=3600,
    )


class Fault:
    """A method that raises for a while."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, error: type[Exception], times: int
    ) -> None:
        self.left = times
        real = getattr(owner, name)

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            self._strike(error)
            return await real(*args, **kwargs)

        def called(*args: Any, **kwargs: Any) -> Any:
            self._strike(error)
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, awaited if inspect.iscoroutinefunction(real) else called)

    def _strike(self, error: type[Exception]) -> None:
        if self.left > 0:
            self.left -= 1
            raise error("nobody foresaw this")


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not what():
            await asyncio.sleep(0.005)


async def patiently(call: Callable[[], Any]) -> Any:
    """As a caller does who is told that it did not work."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await call()
            except (StoreError, *ERRORS) as error:
                if isinstance(error, WorkflowCancelledError):
                    raise
                await asyncio.sleep(0.005)


async def work(app: App, client: Client, broker: Taker, name: str) -> None:
    """Orders started here and elsewhere are claimed, get events, emit events and are cancelled; and one bulk action."""
    taken = len(broker.taken)
    await _paid(app, client, f"{name}-there")
    await _paid(app, app, f"{name}-here")
    await until(lambda: len(broker.taken) >= taken + 2)
    last = await patiently(lambda: app.start_workflow(order.with_options(instance_id=f"{name}-last"), 20))
    await patiently(last.cancel)
    with pytest.raises(WorkflowCancelledError):
        await patiently(last.result)
    manager = DatabaseManager(client)
    batch = await manager.start_bulk_action(ActionKind.PAUSE, "workflow:nothing")
    await until_done(manager, batch.batch_id)


async def _paid(app: App, starter: Client, name: str) -> None:
    handle = await patiently(lambda: starter.start_workflow(order.with_options(instance_id=name), 20))
    await patiently(lambda: starter.send_event("paid", "/shop", {"more": 2}, subject=name, event_id=f"paid-{name}"))
    assert await patiently(app.get_handle(name).result) == 42
    assert await patiently(handle.result) == 42


async def until_done(manager: DatabaseManager, batch_id: str) -> None:
    async def done() -> bool:
        return (await manager.get_bulk_action(batch_id)).status == "done"

    async with asyncio.timeout(60):
        while not await patiently(done):
            await asyncio.sleep(0.005)


def tasks_of(app: App) -> list[asyncio.Task[Any]]:
    return [
        *app._committer._tasks,  # type: ignore[union-attr]
        app._claimer._task,  # type: ignore[union-attr, list-item]
        app._maintenance._task,  # type: ignore[union-attr, list-item]
        app._bulk_actions._task,  # type: ignore[union-attr, list-item]
        *(relay._task for relay in app._relays),  # type: ignore[list-item]
    ]


@pytest.fixture
async def shop(file: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shop]:
    """An app that runs orders, and a client beside it."""
    monkeypatch.setattr("romancy.admin.bulk_actions._CLAIM", 20_000)  # what fails is left alone for so long
    monkeypatch.setattr("romancy.outbox.relay._PRUNE_EVERY", 20_000)
    monkeypatch.setattr("romancy.outbox.relay._COUNT_EVERY", 20_000)
    broker = Taker()
    async with app_of(file, broker) as app, Client(file, workflows=[order]) as client:
        yield app, client, broker


@pytest.mark.parametrize(("verb", "error", "times"), CASES)
async def test_what_nobody_foresaw_stops_nothing(
    shop: Shop,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    verb: str,
    error: type[Exception],
    times: int,
) -> None:
    await goes_on(shop, Fault(monkeypatch, shop[0]._open_store, verb, error, times), caplog)


@pytest.mark.parametrize("times", [1, 4])
async def test_nor_does_it_on_servers(
    database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, times: int
) -> None:
    broker = Taker()
    async with app_of(database, broker) as app, Client(database, workflows=[order]) as client:
        await goes_on((app, client, broker), Fault(monkeypatch, app._open_store, "commit", KeyError, times), caplog)


@pytest.mark.parametrize(("error", "times"), [(KeyError, 1), (MemoryError, 4)])
async def test_a_heart_beats_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: type[Exception], times: int
) -> None:
    await goes_on(shop, Fault(monkeypatch, SqliteHeartbeat, "renew", error, times), caplog)


@pytest.mark.parametrize(
    ("verb", "error"), [("register_worker", KeyError), ("heartbeat", RuntimeError), ("sweep", IndexError)]
)
async def test_a_worker_that_was_struck_off_starts_over(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, verb: str, error: type[Exception]
) -> None:
    app = shop[0]
    fault, name = Fault(monkeypatch, app._open_store, verb, error, 2), app._worker.id  # type: ignore[union-attr]
    await patiently(lambda: app._store.release(name, now=app._clock.now()))  # its row is gone, as if it had been buried
    await goes_on(shop, fault, caplog)
    assert app._worker.id != name  # type: ignore[union-attr]


async def test_an_app_shuts_down_although_it_cannot_give_back_what_it_owns(
    file: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with app_of(file, Taker()) as app:
        Fault(monkeypatch, app._open_store, "release", KeyError, 1)
    assert "could not be given back" in caplog.text


async def goes_on(shop: Shop, fault: Fault, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and then everything is as it was."""
    app, client, broker = shop
    await work(app, client, broker, "during")
    await until(lambda: fault.left == 0)
    await work(app, client, broker, "after")
    beats = app._maintenance._heartbeat_thread.heartbeats  # type: ignore[union-attr]
    await until(lambda: app._maintenance._heartbeat_thread.heartbeats > beats)  # type: ignore[union-attr]
    assert not any(task.done() for task in tasks_of(app))
    assert await app.ready() is None
    assert "nobody foresaw this" in caplog.text
    assert "Traceback" in caplog.text

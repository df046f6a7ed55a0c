"""An error of any type from any store call is logged, and every background task goes on."""

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
"""The store calls of the background tasks."""


CASES = [
    *((verb, ERRORS[(place + times) % len(ERRORS)], times) for place, verb in enumerate(VERBS) for times in (1, 4)),
    *(("commit", error, 2) for error in ERRORS),
]

Shop: TypeAlias = "tuple[App, Client, AcceptingBroker]"


class AcceptingBroker:
    """A broker that accepts every event."""

    name = "accepting"

    def __init__(self) -> None:
        self.accepted: list[str] = []

    async def start(self) -> None:
        """Nothing to open."""

    async def send(self, event: Any) -> None:
        self.accepted.append(event.id)

    async def close(self) -> None:
        """Nothing to close."""


@activity
async def double(ctx: ActivityContext, number: int) -> int:
    return 2 * number


@workflow
async def order(ctx: WorkflowContext, number: int) -> int:
    await send_event(ctx, "ordered", "/shop", {"number": number})
    paid = await wait_event(ctx, "paid", subject=ctx.instance_id)
    return await double(ctx, number) + int(paid.data["more"])


def app_of(database: str, broker: AcceptingBroker) -> App:
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
    """A method that raises in its first calls."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, error: type[Exception], times: int
    ) -> None:
        self.left = times
        real = getattr(owner, name)

        async def failing_coroutine(*args: Any, **kwargs: Any) -> Any:
            self._raise_if_left(error)
            return await real(*args, **kwargs)

        def failing_call(*args: Any, **kwargs: Any) -> Any:
            self._raise_if_left(error)
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, failing_coroutine if inspect.iscoroutinefunction(real) else failing_call)

    def _raise_if_left(self, error: type[Exception]) -> None:
        if self.left > 0:
            self.left -= 1
            raise error("unexpected error")


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not what():
            await asyncio.sleep(0.005)


async def until_accepted(call: Callable[[], Any]) -> Any:
    """Repeat a call until the store no longer fails."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await call()
            except (StoreError, *ERRORS) as error:
                if isinstance(error, WorkflowCancelledError):
                    raise
                await asyncio.sleep(0.005)


async def work(app: App, client: Client, broker: AcceptingBroker, name: str) -> None:
    """Run orders through start, claim, events and cancellation, and one bulk action."""
    accepted = len(broker.accepted)
    await _paid(app, client, f"{name}-there")
    await _paid(app, app, f"{name}-here")
    await until(lambda: len(broker.accepted) >= accepted + 2)
    last = await until_accepted(lambda: app.start_workflow(order.with_options(instance_id=f"{name}-last"), 20))
    await until_accepted(last.cancel)
    with pytest.raises(WorkflowCancelledError):
        await until_accepted(last.result)
    manager = DatabaseManager(client)
    batch = await manager.start_bulk_action(ActionKind.PAUSE, "workflow:nothing")
    await until_done(manager, batch.batch_id)


async def _paid(app: App, starter: Client, name: str) -> None:
    handle = await until_accepted(lambda: starter.start_workflow(order.with_options(instance_id=name), 20))
    await until_accepted(lambda: starter.send_event("paid", "/shop", {"more": 2}, subject=name, event_id=f"paid-{name}"))
    assert await until_accepted(app.get_handle(name).result) == 42
    assert await until_accepted(handle.result) == 42


async def until_done(manager: DatabaseManager, batch_id: str) -> None:
    async def done() -> bool:
        return (await manager.get_bulk_action(batch_id)).status == "done"

    async with asyncio.timeout(60):
        while not await until_accepted(done):
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
    """An app that runs orders, and a client on the same file."""
    monkeypatch.setattr("romancy.admin.bulk_actions._CLAIM", 20_000)  # after an error, the task waits for this long
    monkeypatch.setattr("romancy.outbox.relay._PRUNE_EVERY", 20_000)
    monkeypatch.setattr("romancy.outbox.relay._COUNT_EVERY", 20_000)
    broker = AcceptingBroker()
    async with app_of(file, broker) as app, Client(file, workflows=[order]) as client:
        yield app, client, broker


@pytest.mark.parametrize(("verb", "error", "times"), CASES)
async def test_an_unexpected_error_stops_no_task(
    shop: Shop,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    verb: str,
    error: type[Exception],
    times: int,
) -> None:
    await check_recovery(shop, Fault(monkeypatch, shop[0]._open_store, verb, error, times), caplog)


@pytest.mark.parametrize("times", [1, 4])
async def test_nor_does_it_on_servers(
    database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, times: int
) -> None:
    broker = AcceptingBroker()
    async with app_of(database, broker) as app, Client(database, workflows=[order]) as client:
        await check_recovery((app, client, broker), Fault(monkeypatch, app._open_store, "commit", KeyError, times), caplog)


@pytest.mark.parametrize(("error", "times"), [(KeyError, 1), (MemoryError, 4)])
async def test_a_heart_beats_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: type[Exception], times: int
) -> None:
    await check_recovery(shop, Fault(monkeypatch, SqliteHeartbeat, "renew", error, times), caplog)


@pytest.mark.parametrize(
    ("verb", "error"), [("register_worker", KeyError), ("heartbeat", RuntimeError), ("sweep", IndexError)]
)
async def test_a_worker_that_was_struck_off_starts_over(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, verb: str, error: type[Exception]
) -> None:
    app = shop[0]
    fault, name = Fault(monkeypatch, app._open_store, verb, error, 2), app._worker.id  # type: ignore[union-attr]
    await until_accepted(lambda: app._store.release(name, now=app._clock.now()))  # deletes the worker's row, as a sweep does
    await check_recovery(shop, fault, caplog)
    assert app._worker.id != name  # type: ignore[union-attr]


async def test_an_app_shuts_down_although_it_cannot_give_back_what_it_owns(
    file: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with app_of(file, AcceptingBroker()) as app:
        Fault(monkeypatch, app._open_store, "release", KeyError, 1)
    assert "could not be released" in caplog.text


async def check_recovery(shop: Shop, fault: Fault, caplog: pytest.LogCaptureFixture) -> None:
    """Check that the error is logged and that every task still works."""
    app, client, broker = shop
    await work(app, client, broker, "during")
    await until(lambda: fault.left == 0)
    await work(app, client, broker, "after")
    beats = app._maintenance._heartbeat_thread.heartbeats  # type: ignore[union-attr]
    await until(lambda: app._maintenance._heartbeat_thread.heartbeats > beats)  # type: ignore[union-attr]
    assert not any(task.done() for task in tasks_of(app))
    assert await app.ready() is None
    assert "unexpected error" in caplog.text
    assert "Traceback" in caplog.text

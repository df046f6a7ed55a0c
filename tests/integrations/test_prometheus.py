"""Tests of the metrics of an app in a registry of prometheus_client."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest, start_http_server
from tests.exposition_parser import Scrape, parse
from tests.http.asgi_client import call

from romancy import ActivityContext, App, WorkflowContext, activity, workflow
from romancy.integrations.prometheus import register
from romancy.metrics.metrics import Metric


@activity
async def charge(ctx: ActivityContext, amount: int) -> int:
    return amount


@workflow
async def checkout(ctx: WorkflowContext, amount: int) -> int:
    return await charge(ctx, amount)


def scrape(registry: CollectorRegistry) -> Scrape:
    return parse(generate_latest(registry).decode())


async def test_the_registry_has_the_metrics_of_the_metrics_path(file: str) -> None:
    registry = CollectorRegistry()
    async with App(file, workflows=[checkout]) as app:
        for amount in range(3):
            await (await app.start_workflow(checkout, amount)).result(timeout=10)
        register(app, registry)
        ours = parse((await call(app, "/metrics", method="GET")).body.decode())
        theirs = scrape(registry)
        assert list(theirs) == list(ours)
        for name, family in ours.items():
            assert (theirs[name].kind, theirs[name].help) == (family.kind, family.help), name
            assert theirs[name].samples.keys() == family.samples.keys(), name
        assert theirs.growing() == ours.growing() | {
            key: value for key, value in theirs.growing().items() if key[0].startswith("romancy_loop_lag_seconds")
        }
        assert theirs("romancy_workflows_ended_total", workflow="checkout", status="completed") == 3
        assert theirs("romancy_activity_seconds", "_count", activity="charge") == 3


async def test_the_collector_can_be_unregistered(file: str) -> None:
    registry = CollectorRegistry()
    Counter("orders", "Orders.", registry=registry).inc()
    async with App(file, workflows=[checkout]) as app:
        collector = register(app, registry)
        assert {"orders_total", "romancy_up"} <= set(scrape(registry))
        registry.unregister(collector)
        assert "romancy_up" not in scrape(registry)


async def test_a_server_in_a_thread_scrapes_while_the_app_works(file: str) -> None:
    registry = CollectorRegistry()
    async with App(file, workflows=[checkout]) as app:
        register(app, registry)
        server, thread = start_http_server(0, "127.0.0.1", registry)
        try:
            address = f"http://127.0.0.1:{server.server_port}/metrics"
            handles = [await app.start_workflow(checkout, amount) for amount in range(50)]
            answers = [await asyncio.to_thread(_read, address) for _ in range(5)]
            for handle in handles:
                await handle.result(timeout=10)
            while "romancy_queue_depth" not in parse(last := await asyncio.to_thread(_read, address)):
                await asyncio.sleep(0.01)  # the count is refreshed for the next scrape
        finally:
            await asyncio.to_thread(server.shutdown)
            server.server_close()
            thread.join()
    ended = [parse(text).growing() for text in [*answers, last]]
    assert all(value <= ended[-1][key] for one in ended for key, value in one.items())


def _read(address: str) -> str:
    with urlopen(address, timeout=10) as answer:
        text: str = answer.read().decode()
        return text


async def test_names_that_appear_while_a_thread_reads_do_no_harm(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = CollectorRegistry()
    app = App(file, workflows=[checkout])
    register(app, registry)
    figures, times = app.metrics, [0]

    def disturbed() -> list[Metric]:
        times[0] += 1
        if times[0] < 3:
            raise RuntimeError("dictionary changed size during iteration")
        return figures()

    monkeypatch.setattr(app, "metrics", disturbed)
    thread = threading.Thread(target=scrape, args=(registry,))
    thread.start()
    await asyncio.to_thread(thread.join)
    assert times == [3]


def test_an_app_that_is_not_running_is_reported(file: str) -> None:
    registry = CollectorRegistry()
    register(App(file, workflows=[checkout]), registry)
    assert scrape(registry)("romancy_up") == 0


def test_without_the_package_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['prometheus_client'] = None; import romancy.integrations.prometheus"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "pip install 'romancy[prometheus]'" in done.stderr

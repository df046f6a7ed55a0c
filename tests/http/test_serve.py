"""Tests of `romancy serve` with curl, the official CloudEvents SDK and raw sockets as clients."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cloudevents.core.bindings import http as sdk
from cloudevents.core.v1.event import CloudEvent
from tests.http.asgi_client import BATCH, STRUCTURED, event, structured
from tests.http.serve_process import SHOP, Served, until

pytestmark = pytest.mark.slow

REQUEST_TIMEOUT = 1.0
"""The `request_timeout` in seconds, for tests that wait until it expires."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("shop")) as served:
        yield served
        assert served.process.poll() is None, f"the server ended with {served.process.returncode}: {served.errors()}"


def curl(served: Served, path: str, *arguments: str) -> tuple[int, Any]:
    """Send a request with curl; return the status and the decoded body."""
    if shutil.which("curl") is None:
        pytest.skip("CURL IS MISSING: install curl, or the commands in the documentation are not tested")
    command = ["curl", "--silent", "--show-error", "--max-time", "60", "--write-out", "\n%{http_code}", *arguments]
    done = subprocess.run([*command, f"{served.url}{path}"], capture_output=True, text=True, check=True)
    body, _, status = done.stdout.rpartition("\n")
    return int(status), json.loads(body)


def test_the_server_warns_if_other_machines_can_reach_it_without_auth(tmp_path: Path) -> None:
    with Served(tmp_path, "--host", "0.0.0.0") as served:
        assert "0.0.0.0 can be reached from other machines" in served.errors()
        findings = httpx.get(f"{served.url}/api/v1/doctor", timeout=60).json()["items"]
        assert [one["level"] for one in findings if one["name"] == "access"] == ["warning"]


# --- curl


@pytest.mark.parametrize("path", ["/", "/events"])
def test_curl_structured(shop: Served, path: str) -> None:
    status, response = curl(
        shop, path, "-X", "POST", "-H", "Content-Type: application/cloudevents+json", "-d", structured(id=path).decode()
    )
    assert (status, response) == (202, {"status": "accepted", "instance_ids": []})
    assert ("shop", path) in shop.stored()


def test_curl_binary(shop: Served) -> None:
    headers = [
        "ce-specversion: 1.0",
        "ce-id: binary",
        "ce-source: /%E2%82%AC",
        "ce-type: paid",
        "Content-Type: application/json",
    ]
    status, _ = curl(shop, "/", *(part for one in headers for part in ("-H", one)), "-d", '{"amount": 99.99}')
    assert status == 202
    assert ("/€", "binary") in shop.stored()


def test_curl_batch(shop: Served) -> None:
    body = json.dumps([event(id="batch-1"), event(id="batch-2"), event(id="batch-1")])
    status, _ = curl(shop, "/", "-H", "Content-Type: application/cloudevents-batch+json", "-d", body)
    assert status == 202
    assert {("shop", "batch-1"), ("shop", "batch-2")} <= shop.stored()


def test_a_batch_is_all_or_nothing(shop: Served) -> None:
    body = json.dumps([event(id="whole"), event(id="spoilt", type="")])
    status, response = curl(shop, "/", "-H", "Content-Type: application/cloudevents-batch+json", "-d", body)
    assert (status, response["retryable"]) == (400, False)
    assert not {("shop", "whole"), ("shop", "spoilt")} & shop.stored()


def test_curl_without_a_content_type_is_refused_with_advice(shop: Served) -> None:
    status, response = curl(shop, "/", "-d", structured().decode())
    assert status == 415
    assert "application/cloudevents+json" in response["error"]


def test_curl_too_large(shop: Served, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b" " * (20 * 1024 * 1024))
    status, response = curl(
        shop, "/", "-H", "Content-Type: application/cloudevents+json", "--data-binary", f"@{tmp_path / 'large'}"
    )
    assert (status, response["error_type"]) == (413, "BodyTooLargeError")


def test_curl_too_large_in_chunks(shop: Served, tmp_path: Path) -> None:
    """Without a Content-Length the server finds the limit exceeded only while it reads."""
    (tmp_path / "large").write_bytes(b" " * (20 * 1024 * 1024))
    chunked = ["-H", "Transfer-Encoding: chunked", "-H", "Expect:"]
    status, _ = curl(
        shop, "/", *chunked, "-H", "Content-Type: application/cloudevents+json", "--data-binary", f"@{tmp_path / 'large'}"
    )
    assert status == 413


def test_curl_cancel_and_health(shop: Served) -> None:
    assert curl(shop, "/cancel/not%2Fknown", "-X", "POST")[0] == 404
    assert curl(shop, "/cancel/x", "-X", "POST", "-H", "X-Forwarded-For: 127.0.0.1")[0] == 403
    assert curl(shop, "/health/live")[0] == 200
    assert curl(shop, "/nowhere")[0] == 404
    assert curl(shop, "/", "-X", "DELETE")[0] == 405


# --- the official SDK


def test_the_sdk_in_both_modes(shop: Served) -> None:
    with httpx.Client(base_url=shop.url, timeout=60) as client:
        for name, convert in (("structured", sdk.to_structured_event), ("binary", sdk.to_binary_event)):
            sent = CloudEvent(
                {"type": "paid", "source": "/sdk", "id": name, "datacontenttype": "application/json"}, {"ü": "€"}
            )
            message = convert(sent)
            assert client.post("/", headers=message.headers, content=message.body).status_code == 202
    assert {("/sdk", "structured"), ("/sdk", "binary")} <= shop.stored()


def test_an_event_starts_a_workflow_once(shop: Served) -> None:
    body = structured(id="starts", type="ordered", data={"number": 7})
    with httpx.Client(base_url=shop.url, headers=STRUCTURED, timeout=60) as client:
        first, second = client.post("/", content=body), client.post("/", content=body)
    assert (first.status_code, len(first.json()["instance_ids"])) == (202, 1)
    assert (second.status_code, second.json()["instance_ids"]) == (202, [])


async def test_many_at_once(shop: Served) -> None:
    async with httpx.AsyncClient(
        base_url=shop.url, headers=STRUCTURED, limits=httpx.Limits(max_connections=20), timeout=60
    ) as client:
        answers = await asyncio.gather(*(client.post("/", content=structured(source="many", id=str(n))) for n in range(200)))
    assert [one.status_code for one in answers] == [202] * 200
    assert {("many", str(n)) for n in range(200)} <= shop.stored()


async def test_nothing_is_acknowledged_before_it_is_stored(shop: Served) -> None:
    async with httpx.AsyncClient(base_url=shop.url, headers=STRUCTURED, timeout=60) as client:
        while (await client.get("/health/ready")).status_code != 200:  # it prints its address before the file is open
            await asyncio.sleep(0.02)
        with shop.write_lock():
            posts = [asyncio.create_task(client.post("/", content=structured(source="held", id=str(n)))) for n in range(20)]
            for _ in range(20):
                assert (await client.get("/health/live")).status_code == 200
            assert not any(one.done() for one in posts)
        assert {(await one).status_code for one in posts} == {202}
    assert {("held", str(n)) for n in range(20)} <= shop.stored()


# --- slow and broken clients


@pytest.fixture(scope="module")
def short_timeout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("short_timeout"), ROMANCY_REQUEST_TIMEOUT=str(REQUEST_TIMEOUT)) as served:
        yield served


def drip(served: Served, start: bytes, drop: bytes) -> bytes:
    """Send the start of a request, then a few bytes at intervals until the server closes; return the response."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as connection:
        connection.sendall(start)
        connection.settimeout(0.05)
        response, deadline = b"", time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                part = connection.recv(1000)
                if not part:
                    return response
                response += part
            except TimeoutError:
                try:
                    connection.sendall(drop)
                except OSError:
                    return response
            except ConnectionError:
                return response
        raise AssertionError(f"the server did not close the connection; it sent {response!r}")


HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\n"


def test_headers_that_never_end(short_timeout: Served) -> None:
    assert b" 408 " in drip(short_timeout, HEAD, b"X-A: b\r\n")


def test_a_silent_connection(short_timeout: Served) -> None:
    assert b" 408 " in drip(short_timeout, b"", b"")


def test_a_body_that_never_ends(short_timeout: Served) -> None:
    start = HEAD + b"Content-Type: application/cloudevents+json\r\nContent-Length: 100000\r\n\r\n{"
    response = drip(short_timeout, start, b" ")
    assert b" 408 " in response
    assert b"RequestTimeoutError" in response


def test_an_endless_body_for_an_unknown_path(short_timeout: Served) -> None:
    """The response is sent at once, and the connection is closed without reading the rest of the body."""
    response = drip(short_timeout, HEAD.replace(b" / ", b" /nowhere ") + b"Content-Length: 100000\r\n\r\n", b" ")
    assert b" 404 " in response


def test_the_second_request_of_a_connection_has_the_timeout_too(short_timeout: Served) -> None:
    response = drip(short_timeout, b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n", b"G")
    assert response.count(b"HTTP/1.1") == 2
    assert response.startswith(b"HTTP/1.1 200")
    assert b" 400 " in response or b" 408 " in response


def test_slow_clients_do_not_block_others(short_timeout: Served) -> None:
    held = [socket.create_connection(("127.0.0.1", short_timeout.port), timeout=60) for _ in range(200)]
    for one in held:
        one.sendall(HEAD)
    answer = httpx.post(short_timeout.url, headers=STRUCTURED, content=structured(id="between"), timeout=60)
    for one in held:
        one.close()
    assert answer.status_code == 202


ENDLESS = HEAD + b"X: " + b"a" * 70_000
"""A header that is longer than the server's limit for incomplete headers."""


@pytest.mark.parametrize(
    "nonsense", [b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", ENDLESS], ids=["bytes", "no target", "endless"]
)
def test_nonsense_is_refused(shop: Served, nonsense: bytes) -> None:
    with socket.create_connection(("127.0.0.1", shop.port), timeout=60) as connection:
        connection.sendall(nonsense)
        assert connection.recv(100).startswith(b"HTTP/1.1 400")


# --- shutdown


async def keep_posting(served: Served, name: str, accepted: set[tuple[str, str]], stop: asyncio.Event) -> None:
    """Post one event after another; record the accepted ones."""
    async with httpx.AsyncClient(base_url=served.url, headers=STRUCTURED, timeout=60) as client:
        number = 0
        while not stop.is_set():
            number += 1
            try:
                answer = await client.post("/", content=structured(source=name, id=str(number)))
            except httpx.TransportError:
                await asyncio.sleep(0.01)
                continue
            assert answer.status_code in (202, 503), answer.text
            if answer.status_code == 202:
                accepted.add((name, str(number)))


async def post_while(served: Served, disturb: Any) -> set[tuple[str, str]]:
    """Post events with twenty clients while `disturb` runs; return the accepted events."""
    accepted: set[tuple[str, str]] = set()
    stop = asyncio.Event()
    posting = [asyncio.create_task(keep_posting(served, f"client-{n}", accepted, stop)) for n in range(20)]
    while len(accepted) < 100:
        await asyncio.sleep(0.01)
    await asyncio.to_thread(disturb)
    stop.set()
    await asyncio.gather(*posting)
    return accepted


@pytest.mark.parametrize(
    ("workers", "number"),
    # SIGHUP replaces the processes instead if there are several: see below.
    [("1", signal.SIGTERM), ("1", signal.SIGINT), ("1", signal.SIGHUP), ("2", signal.SIGTERM), ("2", signal.SIGINT)],
)
async def test_accepted_events_are_stored_after_the_shutdown(
    tmp_path: Path, database: str, number: int, workers: str
) -> None:
    with Served(tmp_path, "--workers", workers, database=database) as served:
        accepted = await post_while(served, lambda: served.end(number))
        assert served.end() == 0
        assert accepted <= served.stored()
        assert "Traceback" not in served.errors()


async def test_a_killed_server_has_lost_no_accepted_event(tmp_path: Path, database: str) -> None:
    with Served(tmp_path, database=database) as served:
        accepted = await post_while(served, lambda: served.end(signal.SIGKILL))
        assert accepted <= served.stored()


def test_a_slow_body_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with Served(tmp_path, ROMANCY_SHUTDOWN_TIMEOUT="1") as served:
        with socket.create_connection(("127.0.0.1", served.port), timeout=60) as connection:
            connection.sendall(HEAD + b"Content-Type: application/cloudevents+json\r\nContent-Length: 100\r\n\r\n")
            assert httpx.get(f"{served.url}/health/live", timeout=60).status_code == 200
            served.signal()
            assert connection.recv(100).startswith(b"HTTP/1.1 503")
        assert served.end() == 0


# --- several processes


def accepts_events(served: Served) -> bool:
    try:
        return httpx.post(served.url, headers=STRUCTURED, content=structured(), timeout=60).status_code == 202
    except httpx.TransportError:
        return False


def test_a_dead_process_is_replaced(tmp_path: Path, database: str) -> None:
    with Served(tmp_path, "--workers", "2", database=database) as served:
        assert accepts_events(served)
        first = served.children()
        assert len(first) == 2
        os.kill(first[0], signal.SIGKILL)
        until(lambda: len(set(served.children()) - {first[0]}) == 2, "a new process")
        assert accepts_events(served)
        served.signal()
        assert served.end() == 0


async def test_sighup_replaces_the_processes_one_by_one(tmp_path: Path, database: str) -> None:
    with Served(tmp_path, "--workers", "2", database=database) as served:
        assert accepts_events(served)
        before = set(served.children())

        def replace() -> None:
            served.signal(signal.SIGHUP)
            until(lambda: len(set(served.children()) - before) == 2 and not before & set(served.children()), "new processes")

        accepted = await post_while(served, replace)
        assert accepted <= served.stored()
        served.signal()
        assert served.end() == 0


def test_the_processes_stop_without_their_supervisor(tmp_path: Path) -> None:
    with Served(tmp_path, "--workers", "2") as served:
        assert accepts_events(served)
        children = served.children()
        served.signal(signal.SIGKILL)
        served.end()
        until(lambda: not any(is_alive(pid) for pid in children), "the end of the orphans")


def is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def test_batches_of_several_processes(tmp_path: Path, database: str) -> None:
    with Served(tmp_path, "--workers", "2", database=database) as served:
        bodies = [json.dumps([event(source=f"b{n}", id=str(m)) for m in range(50)]) for n in range(10)]
        answers = [httpx.post(served.url, headers=BATCH, content=body, timeout=60) for body in bodies]
        assert {one.status_code for one in answers} == {202}
        assert len(served.stored()) == 500


def test_reload_takes_up_new_code(tmp_path: Path) -> None:
    with Served(tmp_path, "--reload") as served:
        assert accepts_events(served)
        (tmp_path / "shop.py").write_text(SHOP.replace("shop.db", "other.db"))
        os.utime(tmp_path / "shop.py", (2**31, 2**31))  # the reloader compares modification times
        until(lambda: accepts_events(served) and (tmp_path / "other.db").exists(), "the new database")
        served.signal()
        assert served.end() == 0

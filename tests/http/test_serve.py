"""`romancy serve`, with curl, the official SDK and raw sockets as its clients."""

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

PATIENCE = 1.0
"""Seconds of `request_timeout` where a test waits for it to run out."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("shop")) as served:
        yield served
        assert served.process.poll() is None, f"it ended with {served.process.returncode}: {served.errors()}"


def curl(served: Served, path: str, *arguments: str) -> tuple[int, Any]:
    """What curl got: the status, and the JSON of the body."""
    if shutil.which("curl") is None:
        pytest.skip("CURL IS MISSING: install curl, or nobody knows whether the commands in the documentation work")
    command = ["curl", "--silent", "--show-error", "--max-time", "60", "--write-out", "\n%{http_code}", *arguments]
    done = subprocess.run([*command, f"{served.url}{path}"], capture_output=True, text=True, check=True)
    body, _, status = done.stdout.rpartition("\n")
    return int(status), json.loads(body)


def test_it_warns_when_others_can_reach_it_and_nobody_has_to_say_who_they_are(tmp_path: Path) -> None:
    with Served(tmp_path, "--host", "0.0.0.0") as served:
        assert "0.0.0.0 can be reached from other machines" in served.errors()
        findings = httpx.get(f"{served.url}/api/v1/doctor", timeout=60).json()["items"]
        assert [one["level"] for one in findings if one["name"] == "access"] == ["warning"]


# --- curl


@pytest.mark.parametrize("path", ["/", "/events"])
def test_curl_structured(shop: Served, path: str) -> None:
    status, said = curl(
        shop, path, "-X", "POST", "-H", "Content-Type: application/cloudevents+json", "-d", structured(id=path).decode()
    )
    assert (status, said) == (202, {"status": "accepted", "instance_ids": []})
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
    status, said = curl(shop, "/", "-H", "Content-Type: application/cloudevents-batch+json", "-d", body)
    assert (status, said["retryable"]) == (400, False)
    assert not {("shop", "whole"), ("shop", "spoilt")} & shop.stored()


def test_curl_without_a_content_type_is_told_how(shop: Served) -> None:
    status, said = curl(shop, "/", "-d", structured().decode())
    assert status == 415
    assert "application/cloudevents+json" in said["error"]


def test_curl_too_large(shop: Served, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b" " * (20 * 1024 * 1024))
    status, said = curl(
        shop, "/", "-H", "Content-Type: application/cloudevents+json", "--data-binary", f"@{tmp_path / 'large'}"
    )
    assert (status, said["error_type"]) == (413, "BodyTooLargeError")


def test_curl_too_large_in_chunks(shop: Served, tmp_path: Path) -> None:
    """Without a length nobody knows it beforehand."""
    (tmp_path / "large").write_bytes(b" " * (20 * 1024 * 1024))
    chunked = ["-H", "Transfer-Encoding: chunked", "-H", "Expect:"]
    status, _ = curl(
        shop, "/", *chunked, "-H", "Content-Type: application/cloudevents+json", "--data-binary", f"@{tmp_path / 'large'}"
    )
    assert status == 413


def test_curl_cancel_and_health(shop: Served) -> None:
    assert curl(shop, "/cancel/nobody%2Fknows", "-X", "POST")[0] == 404
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
        while (await client.get("/health/ready")).status_code != 200:  # it says its address before the file is open
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
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("impatient"), ROMANCY_REQUEST_TIMEOUT=str(PATIENCE)) as served:
        yield served


def drip(served: Served, start: bytes, drop: bytes) -> bytes:
    """Send a beginning, then a little now and then until the server has had enough; what it said."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as connection:
        connection.sendall(start)
        connection.settimeout(0.05)
        said, deadline = b"", time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                part = connection.recv(1000)
                if not part:
                    return said
                said += part
            except TimeoutError:
                try:
                    connection.sendall(drop)
                except OSError:
                    return said
            except ConnectionError:
                return said
        raise AssertionError(f"the server waits for ever; it said {said!r}")


HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\n"


def test_headers_that_never_end(impatient: Served) -> None:
    assert b" 408 " in drip(impatient, HEAD, b"X-A: b\r\n")


def test_a_connection_that_says_nothing(impatient: Served) -> None:
    assert b" 408 " in drip(impatient, b"", b"")


def test_a_body_that_never_ends(impatient: Served) -> None:
    start = HEAD + b"Content-Type: application/cloudevents+json\r\nContent-Length: 100000\r\n\r\n{"
    said = drip(impatient, start, b" ")
    assert b" 408 " in said
    assert b"RequestTimeoutError" in said


def test_a_body_that_nobody_wants_never_ends(impatient: Served) -> None:
    """The answer is sent at once; the connection is not kept for the rest."""
    said = drip(impatient, HEAD.replace(b" / ", b" /nowhere ") + b"Content-Length: 100000\r\n\r\n", b" ")
    assert b" 404 " in said


def test_the_second_request_of_a_connection_is_watched_too(impatient: Served) -> None:
    said = drip(impatient, b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n", b"G")
    assert said.count(b"HTTP/1.1") == 2
    assert said.startswith(b"HTTP/1.1 200")
    assert b" 400 " in said or b" 408 " in said


def test_slow_clients_do_not_keep_others_out(impatient: Served) -> None:
    held = [socket.create_connection(("127.0.0.1", impatient.port), timeout=60) for _ in range(200)]
    for one in held:
        one.sendall(HEAD)
    answer = httpx.post(impatient.url, headers=STRUCTURED, content=structured(id="between"), timeout=60)
    for one in held:
        one.close()
    assert answer.status_code == 202


ENDLESS = HEAD + b"X: " + b"a" * 70_000
"""A header that is longer than what is kept of one that has not ended."""


@pytest.mark.parametrize(
    "nonsense", [b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", ENDLESS], ids=["bytes", "no target", "endless"]
)
def test_nonsense_is_refused(shop: Served, nonsense: bytes) -> None:
    with socket.create_connection(("127.0.0.1", shop.port), timeout=60) as connection:
        connection.sendall(nonsense)
        assert connection.recv(100).startswith(b"HTTP/1.1 400")


# --- the end of a process


async def keep_posting(served: Served, name: str, accepted: set[tuple[str, str]], stop: asyncio.Event) -> None:
    """Post one event after another; remember what was acknowledged."""
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
    """Twenty clients post while something happens; what was acknowledged."""
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
    # Several processes are replaced at SIGHUP: see below.
    [("1", signal.SIGTERM), ("1", signal.SIGINT), ("1", signal.SIGHUP), ("2", signal.SIGTERM), ("2", signal.SIGINT)],
)
async def test_what_was_acknowledged_is_there_after_the_end(
    tmp_path: Path, database: str, number: int, workers: str
) -> None:
    with Served(tmp_path, "--workers", workers, database=database) as served:
        accepted = await post_while(served, lambda: served.end(number))
        assert served.end() == 0
        assert accepted <= served.stored()
        assert "Traceback" not in served.errors()


async def test_a_killed_server_has_lost_nothing_that_it_acknowledged(tmp_path: Path, database: str) -> None:
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


def answered(served: Served) -> bool:
    try:
        return httpx.post(served.url, headers=STRUCTURED, content=structured(), timeout=60).status_code == 202
    except httpx.TransportError:
        return False


def test_a_dead_process_is_replaced(tmp_path: Path, database: str) -> None:
    with Served(tmp_path, "--workers", "2", database=database) as served:
        assert answered(served)
        first = served.children()
        assert len(first) == 2
        os.kill(first[0], signal.SIGKILL)
        until(lambda: len(set(served.children()) - {first[0]}) == 2, "a new process")
        assert answered(served)
        served.signal()
        assert served.end() == 0


async def test_sighup_replaces_them_one_by_one(tmp_path: Path, database: str) -> None:
    with Served(tmp_path, "--workers", "2", database=database) as served:
        assert answered(served)
        before = set(served.children())

        def replace() -> None:
            served.signal(signal.SIGHUP)
            until(lambda: len(set(served.children()) - before) == 2 and not before & set(served.children()), "new processes")

        accepted = await post_while(served, replace)
        assert accepted <= served.stored()
        served.signal()
        assert served.end() == 0


def test_without_their_supervisor_they_stop(tmp_path: Path) -> None:
    with Served(tmp_path, "--workers", "2") as served:
        assert answered(served)
        children = served.children()
        served.signal(signal.SIGKILL)
        served.end()
        until(lambda: not any(_lives(pid) for pid in children), "the end of the orphans")


def _lives(pid: int) -> bool:
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
        assert answered(served)
        (tmp_path / "shop.py").write_text(SHOP.replace("shop.db", "other.db"))
        os.utime(tmp_path / "shop.py", (2**31, 2**31))  # files are compared by their time
        until(lambda: answered(served) and (tmp_path / "other.db").exists(), "the new database")
        served.signal()
        assert served.end() == 0

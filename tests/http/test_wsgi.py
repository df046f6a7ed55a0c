"""Tests of the app as a WSGI application, with the server and the validator of wsgiref."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import httpx
import pytest
from tests.http.asgi_client import STRUCTURED, Recorder, binary, serve, structured

from romancy import App, WorkflowContext, workflow
from romancy.errors import StoreError
from romancy.http import wsgi
from romancy.http.problems import UnavailableError
from romancy.http.types import Receive, Scope, Send
from romancy.http.wsgi import WSGIApp, to_wsgi


@workflow(event_handler=True)
async def paid(ctx: WorkflowContext, amount: float) -> float:
    return amount


class ThreadedServer(ThreadingMixIn, WSGIServer):
    """A server with a thread for each request, like most WSGI servers."""

    daemon_threads = False
    request_queue_size = 128


class SilentHandler(WSGIRequestHandler):
    """A request handler that writes no log."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def served(application: WSGIApp) -> Iterator[httpx.Client]:
    """Run a server of the standard library on a free port."""
    with make_server("127.0.0.1", 0, validator(application), ThreadedServer, SilentHandler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{server.server_port}", timeout=60) as client:
                yield client
        finally:
            server.shutdown()
            serving.join()
            application.close()


def test_any_thread_can_use_the_app(database: str) -> None:
    app = App(database, workflows=[paid])
    application = to_wsgi(app)
    handle = application.run(app.start_workflow(paid, 5.0))  # before the first request
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda _: application.run(handle.result(timeout=30)), range(2))) == [5.0, 5.0]
    application.close()


def test_an_app_that_cannot_start_cannot_be_used(tmp_path: Path) -> None:
    app = App(str(tmp_path / "no" / "folder.db"), workflows=[paid])
    application = to_wsgi(app)
    with pytest.raises(UnavailableError, match="could not start"):
        application.run(app.start_workflow(paid, 5.0))


def test_a_real_app(database: str) -> None:
    with served(to_wsgi(App(database, workflows=[paid]))) as client:
        answer = client.post("/events", content=structured(), headers=STRUCTURED)
        assert (answer.status_code, len(answer.json()["instance_ids"])) == (202, 1)
        assert (
            client.post("/", content=b"x", headers={**binary(id="%E2%82%AC"), "content-type": "text/plain"}).status_code
            == 202
        )
        assert client.post("/", content=b"{", headers=STRUCTURED).status_code == 400
        assert client.post("/cancel/a%2Fb").status_code == 404
        assert client.get("/nowhere").json()["retryable"] is False
        assert client.get("/health/ready").status_code == 200


def test_paths_headers_and_bodies_arrive() -> None:
    service = Recorder()
    with served(to_wsgi(serve(service))) as client:
        assert client.post("/cancel/%C3%BC%2F%20x", json={"reason": "r"}).status_code == 200
        assert service.cancelled == [("ü/ x", "r")]
        assert client.post("/", content=b"\xff" * 200_000, headers=binary(subject="%E2%82%AC")).status_code == 202
        assert (service.stored[0].subject, len(service.stored[0].data or b"")) == ("€", 200_000)


def test_a_body_that_is_too_large() -> None:
    with served(to_wsgi(serve(Recorder(), max_body_size=10))) as client:
        assert client.post("/", content=b"x" * 11, headers=binary()).status_code == 413


def test_many_at_once() -> None:
    service = Recorder()
    with served(to_wsgi(serve(service))) as client, ThreadPoolExecutor(20) as threads:
        posts = [threads.submit(client.post, "/", content=structured(id=str(n)), headers=STRUCTURED) for n in range(200)]
        assert {one.result().status_code for one in posts} == {202}
    assert (service.starts, service.stops, len(service.stored)) == (1, 1, 200)


def test_closing_twice_and_starting_again() -> None:
    service = Recorder()
    application = to_wsgi(serve(service))
    application.close()
    for _ in range(2):
        with served(application) as client:
            assert client.get("/health/ready").status_code == 200
        application.close()
    assert (service.starts, service.stops) == (2, 2)


class FailingStart(Recorder):
    """A fake app whose first starts fail, at once or when the test lets them."""

    def __init__(self, fails: int = 1, *, waits: bool = False) -> None:
        super().__init__()
        self.fails = fails
        self.may_fail = threading.Event()
        self.starting = threading.Event()
        if not waits:
            self.may_fail.set()

    async def startup(self) -> None:
        await super().startup()
        if self.starts <= self.fails:
            self.starting.set()
            await asyncio.to_thread(self.may_fail.wait, 60)
            raise StoreError("postgresql://db.internal/shop cannot be reached.")


def test_a_failed_start_is_repeated_after_a_pause(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    now, service = [100.0], FailingStart()
    monkeypatch.setattr(wsgi, "monotonic", lambda: now[0])
    with served(to_wsgi(serve(service))) as client:
        for _ in range(3):
            answer = client.get("/health/ready")
            assert (answer.status_code, answer.json()["retryable"]) == (503, True)
            assert "db.internal" not in answer.text, "the response must not name the database"
        assert service.starts == 1, "the failure is remembered"
        assert caplog.text.count("db.internal") == 1
        now[0] += 1.0
        assert client.get("/health/ready").status_code == 200


def test_requests_do_not_wait_while_the_start_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    now, service = [100.0], FailingStart(fails=2)
    monkeypatch.setattr(wsgi, "monotonic", lambda: now[0])
    application = to_wsgi(serve(service))
    assert call_wsgi(application, environ_of("/health/ready"))[0].startswith("503")
    now[0] += 1.0
    service.may_fail.clear()
    service.starting.clear()
    with ThreadPoolExecutor(1) as threads:
        trying = threads.submit(call_wsgi, application, environ_of("/health/ready"))
        assert service.starting.wait(60)
        assert call_wsgi(application, environ_of("/health/ready"))[0].startswith("503")
        assert not trying.done()
        service.may_fail.set()
        assert trying.result(60)[0].startswith("503")
    assert service.starts == 2
    application.close()


def test_concurrent_requests_share_the_result_of_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wsgi, "monotonic", lambda: 100.0)  # for the requests that arrive after the failure
    service = FailingStart(waits=True)
    application = to_wsgi(serve(service))
    with ThreadPoolExecutor(4) as threads:
        asking = [threads.submit(call_wsgi, application, environ_of("/health/ready")) for _ in range(4)]
        assert service.starting.wait(60)
        service.may_fail.set()
        assert {one.result(60)[0] for one in asking} == {"503 Service Unavailable"}
    assert service.starts == 1
    application.close()


def environ_of(path: str, **more: Any) -> dict[str, Any]:
    environ: dict[str, Any] = {"PATH_INFO": path, **more}
    setup_testing_defaults(environ)
    return environ


def call_wsgi(application: WSGIApp, environ: dict[str, Any]) -> tuple[str, Iterator[bytes]]:
    """Call the application; return the status and the parts of the body."""
    statuses: list[str] = []

    def start_response(status: str, headers: Any, info: Any = None, /) -> Any:
        statuses.append(status)

    parts = iter(application(environ, start_response))
    return statuses[0], parts


def test_below_a_script_name() -> None:
    application = to_wsgi(serve(Recorder()))
    status, parts = call_wsgi(application, environ_of("/health/live", SCRIPT_NAME="/x"))
    assert (status, b"".join(parts)) == ("200 OK", b'{"status":"alive"}')
    application.close()


def test_a_response_is_streamed_and_may_be_closed_early() -> None:
    gone = threading.Event()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError("no lifespan")
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        assert (await receive())["type"] == "http.disconnect"
        gone.set()

    application = to_wsgi(endless)
    _, parts = call_wsgi(application, environ_of("/"))
    assert next(parts) == b"one"
    assert isinstance(parts, Generator)
    parts.close()
    assert gone.wait(60)
    application.close()


def test_an_application_that_breaks() -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError

    application = to_wsgi(broken)
    status, parts = call_wsgi(application, environ_of("/"))
    assert (status, list(parts)) == ("500 Internal Server Error", [])
    application.close()


PROGRAM = """
from wsgiref.util import setup_testing_defaults
from romancy import App
from romancy.http.wsgi import to_wsgi
environ = {"PATH_INFO": "/health/ready"}
setup_testing_defaults(environ)
print(list(to_wsgi(App("wsgi.db"))(environ, print)))
"""


def test_a_process_that_does_not_close_the_app_ends(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")

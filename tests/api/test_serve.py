"""Tests of the API with a real server in a process of its own."""

from __future__ import annotations

from pathlib import Path

import httpx
from tests.http.serve_process import Served


def test_a_stream_does_not_hold_up_the_end_of_the_server(tmp_path: Path) -> None:
    with Served(tmp_path) as served:
        with httpx.stream("GET", f"{served.url}/api/v1/stream", timeout=60) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "retry: 1000"
            served.signal()
            for _ in lines:  # read to the end of the body: a connection that is cut off raises here
                pass
        assert served.end() == 0
        assert "Traceback" not in served.errors()


def test_from_the_login_to_a_started_workflow(tmp_path: Path) -> None:
    with Served(tmp_path, ROMANCY_AUTH="admin:secret") as served, httpx.Client(base_url=served.url, timeout=60) as browser:
        assert browser.get("/api/v1/workers").status_code == 401
        ours = {"origin": served.url}
        assert browser.post("/viewer/login", data={"token": "secret"}, headers=ours).status_code == 303
        assert len(browser.get("/api/v1/workers").json()["items"]) == 1
        body = {"workflow": "order", "input": {"number": 7}, "instance_id": "order/7"}
        assert browser.post("/api/v1/workflows/start", json=body, headers=ours).status_code == 403
        ours["x-romancy-request"] = "1"
        assert browser.post("/api/v1/workflows/start", json=body, headers=ours).json() == {"instance_id": "order/7"}
        assert browser.post("/viewer/logout", headers=ours).status_code == 303
        assert browser.get("/api/v1/workers").status_code == 401
        assert "secret" not in served.errors()

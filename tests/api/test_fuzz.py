"""Fuzz tests of the API, the viewer and access control: unusual ids, filters, page tokens, numbers and paths.

Every response has an expected status: no 500, no traceback, no 503 (the database is available), and no request hangs.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.api.fake_manager import FakeManager, serve
from tests.http.asgi_client import STRUCTURED, Answer, call, structured
from tests.property.hypothesis_settings import examples, unhurried

from romancy import App, Token, WorkflowContext, wait_event, workflow
from romancy.api.endpoints import BASE, ENDPOINTS
from romancy.presenters import make_page_token

TOKEN = Token("t" * 20)
ADMIN = {"authorization": f"Bearer {TOKEN.value}"}
FAR = ("203.0.113.9", 1)
ANSWERS = {200, 303, 400, 404, 409, 413, 415, 431}

# --- unusual values

_PIECES = [
    "\0",
    "\n",
    "\r\n",
    "\x1b[31m",
    "%00",
    "%",
    "*",
    '"',
    "\\",
    "'",
    "--",
    "..",
    "/",
    "\u202e",
    "ü",
    "😀",
    "\ud7ff",
    "{",
    ":",
]
unusual_text = st.lists(st.sampled_from(_PIECES) | st.text(max_size=5), max_size=8).map("".join) | st.sampled_from(
    ["one", "a" * 255, "a" * 1024, "a" * 1025, "ü" * 1024, "a" * 5000]
)
numbers = st.sampled_from(
    ["0", "1", "-1", "2147483647", "2147483648", "9" * 15, "9" * 16, "9" * 30, "1e9", "0x1", "\u00b2", "\u0661"]
)
tokens = (
    unusual_text
    | st.binary(max_size=30).map(lambda raw: base64.urlsafe_b64encode(raw).decode())
    | st.tuples(st.sampled_from([0, 1, -1, 2**31, 2**62, 2**63, 10**30]), unusual_text).map(
        lambda pair: make_page_token(*pair)
    )
)
_KEYS = [
    "status",
    "workflow",
    "id",
    "worker",
    "waits",
    "error",
    "older",
    "newer",
    "input.number",
    "input.a.b.0",
    "nokey",
    "",
]
_terms = st.tuples(st.sampled_from(["", "-"]), st.sampled_from(_KEYS), st.sampled_from([":", ""]), unusual_text | numbers)
filters = st.lists(_terms.map("".join) | unusual_text, max_size=4).map(" ".join)
payloads = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | unusual_text,
    lambda one: st.lists(one) | st.dictionaries(unusual_text, one),
    max_leaves=5,
)


def values_for(name: str) -> st.SearchStrategy[Any]:
    """Values for a parameter with this name."""
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "filter": filters,
        "q": filters,
        "page_token": tokens,
        "generation": numbers,
        "gen": numbers,
        "upto": numbers,
        "limit": numbers,
        "before": numbers,
        "rows": numbers,
        "action": st.sampled_from(["cancel", "retry", "pause", "resume", "terminate", "eat"]),
        "workflow": st.just("waiting") | unusual_text,
    }
    return kinds.get(name, unusual_text | tokens | numbers)


@st.composite
def api_request(draw: Callable[[Any], Any]) -> tuple[str, str, dict[str, str], bytes]:
    """A request to the API, with values for some of its parameters."""
    endpoint = draw(st.sampled_from([one for one in ENDPOINTS if one.path != "/prune"]))
    names = draw(st.lists(st.sampled_from([*endpoint.request_model.model_fields, "x"]), unique=True, max_size=4))
    if endpoint.method == "GET":
        return "GET", BASE + endpoint.path, {name: draw(values_for(name)) for name in names}, b""
    body = {name: draw(values_for(name) | payloads) for name in names}
    for name in ("ids", "input"):
        if name in body and draw(st.booleans()):
            body[name] = draw(st.lists(unusual_text, max_size=3)) if name == "ids" else {"number": draw(payloads)}
    return "POST", BASE + endpoint.path, {}, json.dumps(body).encode()


_PAGES: dict[str, list[str]] = {
    "": [],
    "instances": ["q", "after"],
    "instance": ["id", "gen", "view", "after", "upto", "before", "rows", "open", "full"],
    "workflows": [],
    "workers": [],
    "channels": ["name", "after"],
    "groups": ["name", "after"],
    "outbox": ["dead", "after"],
    "batches": ["id"],
    "audit": ["before"],
    "start": ["workflow", "like", "as"],
    "event": ["id", "op", "type", "as"],
    "confirm": ["action", "id", "key", "q", "all"],
    "theme": ["to", "back"],
    "payload": ["id", "gen", "what"],
    "assets/..%2f..%2fpage.py": [],
    "assets/../page.py": [],
}
_FORMS: dict[str, list[str]] = {
    "start": ["workflow", "as", "json", "instance_id", "/number"],
    "event": ["id", "op", "type", "subject", "json", "to", "as"],
    "confirm": ["action", "id", "key", "q", "all"],
    "do": ["action", "id", "key", "q", "all", "word", "reason"],
    "requeue": ["letter", "all"],
    "abort": ["id"],
}
_WORDS = {
    "id": ["one"],
    "view": ["history", "diagram", "code", "generations", "audit"],
    "as": ["json"],
    "workflow": ["waiting"],
}
_JSON = st.sampled_from(["{}", "[" * 5000, '{"number": 1e999}', '{"number": "\\ud800"}', '{"number": NaN}', "{", "9" * 5000])


@st.composite
def page_request(draw: Callable[[Any], Any]) -> tuple[str, str, dict[str, str], bytes]:
    """A request to a page of the viewer, with values for some of its parameters."""
    method = draw(st.sampled_from(["GET", "POST"]))
    page, names = draw(st.sampled_from(list((_PAGES if method == "GET" else _FORMS).items())))
    given = {name: draw(_value(name)) for name in names if draw(st.integers(0, 3))}
    if method == "GET":
        return method, f"/viewer/{page}", given, b""
    return method, f"/viewer/{page}", {}, urlencode(given, errors="surrogatepass").encode()


def _value(name: str) -> st.SearchStrategy[str]:
    known = st.sampled_from(_WORDS[name]) if name in _WORDS else st.nothing()
    return known | (_JSON if name == "json" else values_for(name).map(str))


# --- requests to a real app


@workflow
async def waiting(ctx: WorkflowContext, number: int = 0) -> object:
    return (await wait_event(ctx, "paid")).data


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as one:
        yield one


async def send(app: App, method: str, path: str, query: dict[str, str], body: bytes) -> Answer:
    kind = "application/json" if path.startswith("/api") else "application/x-www-form-urlencoded"
    headers = {**ADMIN, "content-type": kind, "accept": "text/html"}
    encoded = urlencode(query, errors="surrogatepass").encode()
    async with asyncio.timeout(30):
        return await call(app, path, body, method, headers=headers, query_string=encoded, client=FAR)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("requests", [api_request(), page_request()], ids=["api", "viewer"])
def test_unusual_requests(database: str, runner: asyncio.Runner, requests: st.SearchStrategy[Any]) -> None:
    app = App(database, workflows=[waiting], auth=[TOKEN])
    runner.run(app.startup())
    runner.run(app.start_workflow(waiting.with_options(instance_id="one")))

    @unhurried(examples(250))
    @given(requests)
    def check(request: tuple[str, str, dict[str, str], bytes]) -> None:
        answer = runner.run(send(app, *request))
        assert answer.status in ANSWERS, (request, answer)
        assert b"Traceback" not in answer.body

    try:
        check()
    finally:
        runner.run(app.shutdown())


# --- access control

_PATHS = [
    *("/", "/events", "/cancel/one", "/metrics", "/viewer", "/viewer/", "/viewer/do"),
    *(BASE + one.path for one in ENDPOINTS),
]
_INSERTS = ["\n", "\r", "\0", "/", "//", "/.", "/..", "%2f", "%0a", ";", "?", "#", "\u2028", "\t", " ", "\\", "ª", "."]


@st.composite
def altered_path(draw: Callable[[Any], Any]) -> str:
    """A known path with other characters in it, or in upper case."""
    path = draw(st.sampled_from(_PATHS))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(path)) | st.just(len(path)) | st.just(0))
        path = path[:at] + draw(st.sampled_from(_INSERTS)) + path[at:]
    return str(path.upper() if draw(st.integers(0, 9)) == 0 else path)


@pytest.mark.parametrize("auth", [[TOKEN], None, "open"], ids=["with tokens", "without", "open"])
def test_no_spelling_of_a_path_lets_an_unauthenticated_caller_in(runner: asyncio.Runner, auth: Any) -> None:
    """From another machine and without a token: 401, 403, 404 or 405. With `auth="open"`, events are accepted."""
    manager = FakeManager()
    app = serve(manager, auth)

    @unhurried(examples(1000))
    @given(
        altered_path(),
        st.sampled_from(["GET", "POST", "HEAD", "PUT", "DELETE", "get", "OPTIONS"]),
        st.sampled_from(["", "/app"]),
    )
    def check(path: str, method: str, root: str) -> None:
        sent = {"headers": STRUCTURED, "client": FAR, "root_path": root, "raw_path": quote(path).encode()}
        answer = runner.run(call(app, root + path, structured(), method, **sent))
        open_to_all = auth == "open" and path in ("/", "/events", "/events/") and method == "POST"
        assert answer.status == 202 if open_to_all else answer.status in (401, 403, 404, 405), (path, method, answer)
        assert manager.calls == []

    check()

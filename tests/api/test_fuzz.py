"""Strange ids, filters, page tokens, numbers and paths: at the API, the viewer and the door, before a real app.

Whatever is asked, the answer is one of ours: no 500, no traceback, no 503 (the database is there), and none takes for ever.
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
from tests.api.fake_manager import Asked, serve
from tests.http.asgi_client import STRUCTURED, Answer, call, structured
from tests.property.hypothesis_settings import examples, unhurried

from romancy import App, Token, WorkflowContext, wait_event, workflow
from romancy.api.endpoints import BASE, ENDPOINTS
from romancy.presenters import make_page_token

TOKEN = Token("t" * 20)
ADMIN = {"authorization": f"Bearer {TOKEN.value}"}
FAR = ("203.0.113.9", 1)
ANSWERS = {200, 303, 400, 404, 409, 413, 415, 431}

# --- what is strange

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
odd = st.lists(st.sampled_from(_PIECES) | st.text(max_size=5), max_size=8).map("".join) | st.sampled_from(
    ["one", "a" * 255, "a" * 1024, "a" * 1025, "ü" * 1024, "a" * 5000]
)
numbers = st.sampled_from(
    ["0", "1", "-1", "2147483647", "2147483648", "9" * 15, "9" * 16, "9" * 30, "1e9", "0x1", "\u00b2", "\u0661"]
)
tokens = (
    odd
    | st.binary(max_size=30).map(lambda raw: base64.urlsafe_b64encode(raw).decode())
    | st.tuples(st.sampled_from([0, 1, -1, 2**31, 2**62, 2**63, 10**30]), odd).map(lambda pair: make_page_token(*pair))
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
_terms = st.tuples(st.sampled_from(["", "-"]), st.sampled_from(_KEYS), st.sampled_from([":", ""]), odd | numbers)
filters = st.lists(_terms.map("".join) | odd, max_size=4).map(" ".join)
payloads = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | odd,
    lambda one: st.lists(one) | st.dictionaries(odd, one),
    max_leaves=5,
)


def by_name(name: str) -> st.SearchStrategy[Any]:
    """Something for a parameter of that name."""
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
        "workflow": st.just("waiting") | odd,
    }
    return kinds.get(name, odd | tokens | numbers)


@st.composite
def api_question(draw: Callable[[Any], Any]) -> tuple[str, str, dict[str, str], bytes]:
    """A path of the API, and something for some of its parameters."""
    endpoint = draw(st.sampled_from([one for one in ENDPOINTS if one.path != "/prune"]))
    names = draw(st.lists(st.sampled_from([*endpoint.request_model.model_fields, "x"]), unique=True, max_size=4))
    if endpoint.method == "GET":
        return "GET", BASE + endpoint.path, {name: draw(by_name(name)) for name in names}, b""
    body = {name: draw(by_name(name) | payloads) for name in names}
    for name in ("ids", "input"):
        if name in body and draw(st.booleans()):
            body[name] = draw(st.lists(odd, max_size=3)) if name == "ids" else {"number": draw(payloads)}
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
def visit(draw: Callable[[Any], Any]) -> tuple[str, str, dict[str, str], bytes]:
    """A page of the viewer, and something for some of its parameters."""
    method = draw(st.sampled_from(["GET", "POST"]))
    page, names = draw(st.sampled_from(list((_PAGES if method == "GET" else _FORMS).items())))
    given = {name: draw(_value(name)) for name in names if draw(st.integers(0, 3))}
    if method == "GET":
        return method, f"/viewer/{page}", given, b""
    return method, f"/viewer/{page}", {}, urlencode(given, errors="surrogatepass").encode()


def _value(name: str) -> st.SearchStrategy[str]:
    known = st.sampled_from(_WORDS[name]) if name in _WORDS else st.nothing()
    return known | (_JSON if name == "json" else by_name(name).map(str))


# --- before a real app


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
    asked = urlencode(query, errors="surrogatepass").encode()
    async with asyncio.timeout(30):
        return await call(app, path, body, method, headers=headers, query_string=asked, client=FAR)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("asked", [api_question(), visit()], ids=["api", "viewer"])
def test_strange_questions(database: str, runner: asyncio.Runner, asked: st.SearchStrategy[Any]) -> None:
    app = App(database, workflows=[waiting], auth=[TOKEN])
    runner.run(app.startup())
    runner.run(app.start_workflow(waiting.with_options(instance_id="one")))

    @unhurried(examples(250))
    @given(asked)
    def asking(question: tuple[str, str, dict[str, str], bytes]) -> None:
        answer = runner.run(send(app, *question))
        assert answer.status in ANSWERS, (question, answer)
        assert b"Traceback" not in answer.body

    try:
        asking()
    finally:
        runner.run(app.shutdown())


# --- before the door

_PATHS = [
    *("/", "/events", "/cancel/one", "/metrics", "/viewer", "/viewer/", "/viewer/do"),
    *(BASE + one.path for one in ENDPOINTS),
]
_TWISTS = ["\n", "\r", "\0", "/", "//", "/.", "/..", "%2f", "%0a", ";", "?", "#", "\u2028", "\t", " ", "\\", "ª", "."]


@st.composite
def twisted(draw: Callable[[Any], Any]) -> str:
    """A known path, spelt in another way."""
    path = draw(st.sampled_from(_PATHS))
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(path)) | st.just(len(path)) | st.just(0))
        path = path[:place] + draw(st.sampled_from(_TWISTS)) + path[place:]
    return str(path.upper() if draw(st.integers(0, 9)) == 0 else path)


@pytest.mark.parametrize("auth", [[TOKEN], None, "open"], ids=["with tokens", "without", "open"])
def test_no_spelling_of_a_path_lets_a_stranger_in(runner: asyncio.Runner, auth: Any) -> None:
    """From far away and without a token: 401, 403, or nothing there. Only events are for all if they are open."""
    manager = Asked()
    app = serve(manager, auth)

    @unhurried(examples(1000))
    @given(
        twisted(), st.sampled_from(["GET", "POST", "HEAD", "PUT", "DELETE", "get", "OPTIONS"]), st.sampled_from(["", "/app"])
    )
    def asking(path: str, method: str, root: str) -> None:
        sent = {"headers": STRUCTURED, "client": FAR, "root_path": root, "raw_path": quote(path).encode()}
        answer = runner.run(call(app, root + path, structured(), method, **sent))
        open_to_all = auth == "open" and path in ("/", "/events", "/events/") and method == "POST"
        assert answer.status == 202 if open_to_all else answer.status in (401, 403, 404, 405), (path, method, answer)
        assert manager.calls == []

    asking()

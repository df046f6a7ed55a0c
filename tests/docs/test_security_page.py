"""Tests that existing tests prove each sentence of the security page that promises something."""

from __future__ import annotations

import ast
import json
import re
import tracemalloc
from functools import cache
from pathlib import Path

import pytest
from tests.docs.pages import DOCS, ROOT
from tests.http.asgi_client import STRUCTURED, Recorder, call, serve, structured

from romancy import App, Token
from romancy.auth import Tokens
from romancy.cli.main import parser
from romancy.cli.uvicorn import server
from romancy.http import strict_json

PAGE = DOCS / "explanation" / "security.md"
PARTS = ("Who can do what", "What is set by default", "Writing the database")

ACCESS, API, ASGI, LOGIN, SERVE = (
    f"tests/{name}.py"
    for name in ("http/test_access", "api/test_access", "http/test_gateway", "api/test_login", "http/test_serve")
)
EVENTS, ORIGINS, WSGI = "tests/http/test_cloudevents.py", "tests/viewer/test_other_origins.py", "tests/http/test_wsgi.py"
FAILURE, CODEC, FILTERS = "tests/unit/test_failure.py", "tests/acceptance/test_codec.py", "tests/admin/test_filters.py"
HTTP, MYSQL, EDDA = (
    "tests/outbox/test_http.py",
    "tests/store/dialects/test_mysql_charsets.py",
    "tests/integrations/test_edda.py",
)

ADVICE = (
    "| the author of a workflow |",
    "| an attacker between the app and its database or broker |",
    "Lower `max_body_size` where memory is short",
    "quick against a word",
    "Treat the right to write the database",
    "Anyone who can write the database can start any workflow",
)
"""Parts of sentences that promise nothing."""

PROVEN_BY: dict[str, tuple[str, ...]] = {
    # access
    "`auth` set |": (
        f"{ACCESS}::test_strangers_are_asked_who_they_are",
        f"{API}::test_unauthenticated_callers_get_the_same_response_everywhere",
    ),
    "`auth` not set | ask whether": (
        f"{ACCESS}::test_events_are_taken_from_this_machine_only",
        f"{ACCESS}::test_health_is_open",
    ),
    '`auth="open"` | the same': (f"{ACCESS}::test_open_is_for_events_only",),
    "| a program or person on this machine": (f"{ACCESS}::test_this_machine_may_control",),
    "| a page of another origin, in a browser": (
        f"{API}::test_a_session_does_not_let_other_origins_write",
        f"{API}::test_without_auth_other_origins_are_refused",
    ),
    "| a token with role `events`": (f"{ACCESS}::test_roles", f"{API}::test_needed_roles"),
    "| a token with role `read`": (f"{ACCESS}::test_roles", f"{API}::test_needed_roles"),
    "| a token with role `admin`": (f"{ACCESS}::test_roles", f"{API}::test_needed_roles"),
    "| anyone who can **read** the database": ("tests/docs/test_security_page.py::test_no_token_is_in_the_database",),
    "| anyone who can **write** the database": (f"{CODEC}::test_a_plain_row_in_place_of_an_encrypted_one",),
    # access control of the HTTP interface
    "listens on `127.0.0.1`": ("tests/docs/test_security_page.py::test_the_server_listens_on_loopback_by_default",),
    "Without `auth` everything but the health checks answers": (
        f"{ACCESS}::test_events_are_taken_from_this_machine_only",
        f"{ACCESS}::test_a_forwarded_request_is_not_from_this_machine",
        f"{ACCESS}::test_pages_in_a_browser_may_neither_steer_nor_send",
        f"{API}::test_without_auth_only_this_machine",
        f"{ORIGINS}::test_a_foreign_name_for_this_machine_is_refused",
    ),
    "`romancy serve` warns": (
        f"{SERVE}::test_the_server_warns_if_other_machines_can_reach_it_without_auth",
        f"{ACCESS}::test_open_is_for_events_only",
        "tests/admin/test_local.py::test_the_doctor_says_who_may_call",
    ),
    "The caller's address is taken from the connection": (f"{ACCESS}::test_a_forwarded_request_is_not_from_this_machine",),
    "Access is decided before the body is read": (
        f"{ACCESS}::test_a_refused_request_stores_nothing_and_starts_nothing",
        f"{ACCESS}::test_no_other_spelling_of_a_path_needs_no_token",
        "tests/api/test_fuzz.py::test_no_spelling_of_a_path_lets_an_unauthenticated_caller_in",
    ),
    # tokens, actions, sessions
    "compared in constant time": ("tests/docs/test_security_page.py::test_every_token_is_compared_in_constant_time",),
    "They are not written to logs": (
        f"{ACCESS}::test_a_token_does_not_show_its_value",
        f"{API}::test_the_audit_names_the_caller",
        "tests/docs/test_security_page.py::test_no_token_is_in_the_database",
    ),
    "`expires=` ends them": (
        f"{ACCESS}::test_strangers_are_asked_who_they_are",
        f"{API}::test_a_session_ends_with_its_token",
    ),
    "**Actions** leave a line": (
        "tests/admin/test_local.py::test_every_action_leaves_a_line",
        "tests/api/test_app.py::test_the_audit_names_the_token",
        "tests/api/test_app.py::test_the_audit_names_the_caller_of_a_function_and_programs",
        "tests/integrations/test_mcp.py::test_a_call_can_be_cancelled_once",
    ),
    "Events and messages that are sent through the API": (
        "tests/docs/test_security_page.py::test_events_and_messages_sent_through_the_api_are_audited",
        "tests/admin/test_local.py::test_every_action_leaves_a_line",
    ),
    "Events that are posted to `/` or `/events` leave none": (
        "tests/docs/test_security_page.py::test_no_token_is_in_the_database",
    ),
    "A browser exchanges a token for a cookie": (
        f"{LOGIN}::test_a_token_is_exchanged_for_a_session",
        f"{LOGIN}::test_over_https_the_cookie_is_secure",
    ),
    "Nothing of it is stored": (f"{API}::test_a_session_has_the_role_of_its_token",),
    "Sessions end when their token is removed": (
        f"{API}::test_a_session_ends_with_its_token",
        f"{LOGIN}::test_the_logout_removes_the_cookie",
    ),
    # browsers
    "Requests that write are refused to pages of other origins": (
        f"{ACCESS}::test_pages_of_others_may_not_write_by_what_a_function_goes_by",
        f"{ACCESS}::test_a_cookie_does_not_let_pages_of_others_write",
        f"{ACCESS}::test_pages_in_a_browser_may_neither_steer_nor_send",
        f"{ORIGINS}::test_a_form_of_another_origin_is_refused",
        "tests/http/test_behind_auth.py::test_without_auth_other_machines_and_other_origins_are_refused",
    ),
    "also require the header `X-Romancy-Request: 1`": (
        f"{API}::test_a_session_does_not_let_other_origins_write",
        f"{ACCESS}::test_a_cookie_does_not_let_pages_of_others_write",
    ),
    "There is no CORS": ("tests/docs/test_security_page.py::test_no_other_origin_may_read",),
    "Every response carries a Content-Security-Policy": (f"{ASGI}::test_every_response_restricts_browsers",),
    "Stored user data is escaped": (
        "tests/viewer/test_hostile_text.py::test_hostile_text_is_not_executed",
        "tests/viewer/test_hostile_text.py::test_hostile_text_is_shown_escaped",
        "tests/cli/test_command.py::test_control_characters_are_escaped",
        "tests/cli/test_command.py::test_control_characters_of_arguments_are_escaped_in_messages",
    ),
    # limits
    "| a body |": (
        f"{ASGI}::test_a_body_that_is_too_large",
        f"{ASGI}::test_all_bodies_together_are_bounded",
        f"{LOGIN}::test_slow_connections_do_not_block_the_login",
    ),
    "| the time of a body": (f"{SERVE}::test_a_body_that_never_ends", f"{SERVE}::test_headers_that_never_end"),
    "| address and headers |": (f"{ASGI}::test_headers_that_are_too_large",),
    "| connections of one process |": ("tests/docs/test_security_page.py::test_connections_are_bounded",),
    "| events in one batch": (f"{EVENTS}::test_a_wrong_body_is_explained", f"{EVENTS}::test_a_wrong_attribute_is_named"),
    "| `id`, `source`, `type`": (f"{EVENTS}::test_a_wrong_attribute_is_named",),
    "| nesting of JSON": (
        f"{EVENTS}::test_nesting_is_counted_outside_of_strings",
        f"{EVENTS}::test_millions_of_arrays_are_refused_before_they_are_read",
    ),
    "| a filter line |": (f"{FILTERS}::test_what_is_wrong_is_told",),
    "| a page of a list": ("tests/api/test_routes.py::test_an_invalid_parameter_is_named",),
    "| streams of one process": (
        "tests/api/test_sse.py::test_the_number_of_streams_is_limited",
        "tests/api/test_sse.py::test_a_silent_stream_is_kept_alive_and_then_ends",
    ),
    "| what is stored of a broker's answer": (f"{FAILURE}::test_the_trace_is_limited",),
    "The time that reading takes grows": (
        f"{EVENTS}::test_how_long_reading_takes_grows_with_the_text_alone",
        f"{FILTERS}::test_a_pattern_of_many_stars_takes_no_longer_than_others",
    ),
    "up to forty times its size": ("tests/docs/test_security_page.py::test_reading_takes_forty_times_the_size_at_most",),
    # errors and secrets
    "told what was wrong with their request": (f"{ASGI}::test_a_refusal_says_why",),
    "Faults of the app are answered with a general sentence": (f"{ASGI}::test_a_fault_of_ours_is_logged_and_not_shown",),
    "Error messages of the database": (
        f"{ASGI}::test_what_the_database_says_is_not_for_everybody",
        f"{WSGI}::test_a_failed_start_is_repeated_after_a_pause",
    ),
    "Tracebacks are never part of a response": (
        f"{ASGI}::test_a_fault_of_ours_is_logged_and_not_shown",
        "tests/api/test_routes.py::test_a_fault_is_not_shown",
    ),
    "Passwords in database and broker addresses": (
        "tests/acceptance/test_options.py::test_a_password_in_a_wrong_address_is_not_told",
        "tests/store/dialects/test_postgres_errors.py::test_the_right_password_is_shown_nowhere",
        f"{HTTP}::test_no_secret_is_told",
    ),
    "strings from outside are logged as literals": ("tests/admin/test_local.py::test_every_action_leaves_a_line",),
    # the database
    "Values are never a part of SQL": (f"{MYSQL}::test_what_strangers_choose_is_stored_as_it_is_and_not_executed",),
    "they are bound; on MySQL": (f"{MYSQL}::test_no_value_stands_in_a_statement_but_as_digits",),
    "Each connection runs `SET NAMES": (f"{MYSQL}::test_a_connection_that_does_not_keep_to_what_it_is_told_is_refused",),
    "asks for the password in clear": (
        "tests/store/dialects/test_mysql_password.py::test_a_password_is_not_sent_in_clear_over_a_line_that_others_can_read",
    ),
    "Nothing is unpickled": ("tests/docs/test_security_page.py::test_nothing_is_unpickled",),
    "They cannot choose which code runs": (
        f"{FAILURE}::test_a_record_does_not_import_a_module_that_is_not_loaded",
        f"{FAILURE}::test_looking_up_a_name_runs_no_code_of_its_module",
    ),
    "A stored exception is rebuilt": (
        f"{FAILURE}::test_a_record_does_not_import_a_module_that_is_not_loaded",
        f"{FAILURE}::test_looking_up_a_name_runs_no_code_of_its_module",
    ),
    "A compensation that the [Edda layer]": (f"{EDDA}::test_a_record_does_not_choose_what_is_called",),
    "`required=True` refuses rows": (f"{CODEC}::test_a_plain_row_in_place_of_an_encrypted_one",),
    # brokers
    "A broker's address comes from your configuration": (f"{HTTP}::test_the_address_and_the_headers_are_as_given",),
    "Redirects are not followed": (f"{HTTP}::test_a_redirect_is_not_followed",),
    "`HTTPBroker` reads 64 KB": (
        f"{HTTP}::test_an_endless_answer_is_not_read_to_its_end",
        f"{HTTP}::test_who_does_not_answer_gets_it_again",
    ),
}
"""The tests that prove each sentence, by a part of the sentence."""


def sentences() -> list[str]:
    """The sentences and the table rows of the parts that promise something."""
    found: list[str] = []
    for part in PARTS:
        text = re.split(rf"^##+ {part}\n", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1]
        text = re.split(r"^## ", text, maxsplit=1, flags=re.MULTILINE)[0]
        text = re.sub(r"^###.*\n", "", text, flags=re.MULTILINE)
        rows = [line for line in text.splitlines() if line.startswith("|")]
        found += [row for at, row in enumerate(rows) if not is_head(rows, at)]
        prose = "\n".join(line for line in text.splitlines() if not line.startswith("|"))
        for paragraph in prose.split("\n\n"):
            found += [one for one in re.split(r"(?<=\.)(?:\*\*)? (?=[A-Z`*])", " ".join(paragraph.split())) if len(one) > 3]
    return [one for one in found if not re.fullmatch(r"\*\*[\w ]+\.(\*\*)?", one)]


def is_head(rows: list[str], at: int) -> bool:
    return rows[at].startswith("|-") or (at + 1 < len(rows) and rows[at + 1].startswith("|-"))


@pytest.mark.parametrize("sentence", sentences())
def test_a_sentence_is_proven_by_tests(sentence: str) -> None:
    assert [part for part in (*PROVEN_BY, *ADVICE) if part in sentence], "name the tests that prove it in PROVEN_BY"


def test_every_part_is_in_a_sentence() -> None:
    assert [part for part in (*PROVEN_BY, *ADVICE) if not any(part in one for one in sentences())] == []


@cache
def functions_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("test", sorted({test for tests in PROVEN_BY.values() for test in tests}))
def test_the_tests_exist(test: str) -> None:
    path, _, name = test.partition("::")
    assert name in functions_of(path)


# --- tests without another file


def test_the_server_listens_on_loopback_by_default() -> None:
    given = parser().parse_args(["serve", "shop:app"])
    assert given.host == "127.0.0.1"


def test_connections_are_bounded() -> None:
    config = server._config(App(":memory:"), parser().parse_args(["serve", "shop:app"]))
    assert config.limit_concurrency == 1000


def test_nothing_is_unpickled() -> None:
    for file in (ROOT / "src").rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        imported = {one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names}
        imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not imported & {"pickle", "marshal", "shelve", "dill", "cloudpickle"}, file


def test_every_token_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr("romancy.auth.hmac.compare_digest", compare)
    known = Tokens((Token("first"), Token("second"), Token("third")))
    assert known.find("first", 0) == Token("first")
    assert [one for one, _ in compared] == [b"first", b"second", b"third"]


async def test_no_other_origin_may_read() -> None:
    headers = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    for method in ("OPTIONS", "GET", "POST"):
        for path in ("/events", "/api/v1/instances", "/viewer/", "/metrics"):
            answer = await call(serve(Recorder(), [Token("secret")]), path, method=method, headers=headers)
            assert not [name for name in answer.headers if name.startswith("access-control")]
            assert answer.status >= 400


async def test_no_token_is_in_the_database(tmp_path: Path) -> None:
    token, file = "t0k3n-that-is-stored-nowhere", tmp_path / "shop.db"
    authorization = {"authorization": f"Bearer {token}"}
    async with App(str(file), workflows=[], auth=[Token(token)]) as app:
        assert (await call(app, "/events", structured(), headers={**STRUCTURED, **authorization})).status == 202
        assert (await call(app, "/cancel/one", headers=authorization)).status == 404
        lines = json.loads((await call(app, "/api/v1/audit", method="GET", headers=authorization)).body)["items"]
        assert lines == []
        assert token.encode() not in stored_in(tmp_path)


async def test_events_and_messages_sent_through_the_api_are_audited(tmp_path: Path) -> None:
    json_script = {"content-type": "application/json", "x-romancy-request": "1", "authorization": "Bearer secret"}
    async with App(str(tmp_path / "shop.db"), workflows=[], auth=[Token("secret", name="Ada")]) as app:
        for path, sent in (("events", {"type": "paid", "data": 1}), ("messages", {"channel": "news", "data": 1})):
            assert (await call(app, f"/api/v1/{path}", json.dumps(sent).encode(), headers=json_script)).status == 200
        lines = json.loads((await call(app, "/api/v1/audit", method="GET", headers=json_script)).body)["items"]
        assert [(line["actor"], line["action"]) for line in lines] == [("Ada", "publish"), ("Ada", "send_event")]


def stored_in(folder: Path) -> bytes:
    """The contents of all files in a folder."""
    return b"".join(file.read_bytes() for file in folder.iterdir())


@pytest.mark.parametrize("part", [b"[],", b'"ab",', b"1.5,", b'{"a":1},', b"[[1]],"])
def test_reading_takes_forty_times_the_size_at_most(part: bytes) -> None:
    body = b"[" + part * (200_000 // len(part)) + part[:-1] + b"]"
    tracemalloc.start()
    try:
        value = strict_json.read(body)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert value
    assert most < 40 * len(body)

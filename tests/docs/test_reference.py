"""Tests that the reference documents every name, option and default of the code."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.docs.pages import DOCS, ROOT, anchors_of, headings_of, name_of, pages, prose_of, table_of

import romancy
from romancy import (
    AcceptedEvent,
    ActivityContext,
    App,
    AttemptEntry,
    ChannelMode,
    Client,
    HistoryEntry,
    Hooks,
    Instance,
    JournalLine,
    OutboxEntry,
    ReceivedEvent,
    ReceivedMessage,
    RetryPolicy,
    Status,
    UndeliverableEvent,
    WaitingFor,
    WorkflowContext,
    brokers,
    testing,
)
from romancy import errors as error_module
from romancy.authoring.activity import activity
from romancy.authoring.guard import _AUDITED
from romancy.authoring.workflow import workflow
from romancy.cli.commands.completion import levels
from romancy.cli.main import parser
from romancy.hooks import HOOK_METHODS, hooks
from romancy.integrations import opentelemetry, prometheus
from romancy.model.history import Kind, Outcome
from romancy.settings import OPTIONS
from romancy.testing import POINTS, TestEnvironment

REFERENCE = DOCS / "reference"
EXPLANATION = DOCS / "explanation"
ERRORS = [one for one in vars(error_module).values() if isinstance(one, type) and one.__module__ == error_module.__name__]

RECORDS = [Instance, WaitingFor, HistoryEntry, AttemptEntry, JournalLine]
MESSAGING_RECORDS = [ReceivedEvent, ReceivedMessage, AcceptedEvent, UndeliverableEvent, OutboxEntry]
MESSAGING_FUNCTIONS = [
    *[romancy.wait_event, romancy.send_event],
    *[romancy.subscribe, romancy.unsubscribe, romancy.receive, romancy.publish, romancy.send_to],
    *[romancy.join_group, romancy.leave_group, romancy.get_group_members, romancy.send_to_group],
]
WORDS = re.findall(
    r"\w+",
    """
    activity attempt batch broker channel claim commit compensation determinism epoch event generation group handler
    heartbeat history incarnation instance journal lease message mode operation outbox park recur relay replay run
    status subject subscription timer transition wait wake worker workflow
    """,
)


def default_text(default: Any) -> str:
    return repr(default) if not isinstance(default, float) else f"{default:g}"


def test_every_option_is_in_the_table_with_its_default_and_variable() -> None:
    rows = {row[0]: row for row in table_of(REFERENCE / "options.md", "Table")}
    assert list(rows) == [option.name for option in OPTIONS]
    for option in OPTIONS:
        _, default, variable, _ = rows[option.name]
        assert variable == option.variable
        assert default == default_text(option.default)


def test_every_argument_of_an_app_is_documented() -> None:
    text = prose_of(REFERENCE / "options.md")
    for name in inspect.signature(App).parameters:
        assert name == "unknown" or f"`{name}`" in text


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_every_error_has_a_section(error: type) -> None:
    assert error.__name__ in headings_of(REFERENCE / "errors.md")


def test_the_errors_page_has_no_other_sections() -> None:
    sections = {heading for heading in headings_of(REFERENCE / "errors.md") if heading.endswith("Error")}
    assert sections == {error.__name__ for error in ERRORS}


def test_every_status_is_in_the_table() -> None:
    rows = {row[0]: row[1] for row in table_of(REFERENCE / "statuses.md", "Table")}
    assert rows == {status.value: "yes" if status.ended else "no" for status in Status}


def fields(cls: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(cls)]


@pytest.mark.parametrize("record", RECORDS + MESSAGING_RECORDS, ids=lambda record: record.__name__)
def test_every_field_is_in_its_table(record: type) -> None:
    page = "messaging.md" if record in MESSAGING_RECORDS else "instances-and-history.md"
    rows = table_of(REFERENCE / page, record.__name__)
    assert [row[0] for row in rows] == fields(record)


def signature_of(function: Callable[..., Any]) -> str:
    """The signature of a function as the reference writes it: `publish(ctx, channel, data, *, metadata=None)`."""
    signature = inspect.signature(function)
    bare = [parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()]
    text = str(inspect.Signature(bare)).replace("'", '"')
    return f"{function.__name__}{text.replace('(self, ', '(')}"


@pytest.mark.parametrize("function", MESSAGING_FUNCTIONS, ids=lambda function: function.__name__)
def test_every_messaging_function_is_in_the_reference_with_its_signature(function: Callable[..., Any]) -> None:
    assert f"| `{signature_of(function)}` |" in prose_of(REFERENCE / "messaging.md")


def test_every_messaging_call_is_documented_with_its_signature() -> None:
    rows = {row[0] for row in table_of(REFERENCE / "app-and-client.md", "Send events and messages")}
    names = [row.partition("(")[0] for row in rows]
    assert {function.__name__ for function in MESSAGING_FUNCTIONS} & public(Client) <= set(names)
    assert rows == {signature_of(getattr(Client, name)) for name in names}


def test_every_mode_of_a_channel_is_documented() -> None:
    text = prose_of(REFERENCE / "messaging.md")
    for mode in ChannelMode:
        assert f'| `ChannelMode.{mode.name}`, `"{mode.value}"` |' in text


def test_every_kind_and_outcome_is_documented() -> None:
    page = REFERENCE / "instances-and-history.md"
    assert {row[0] for row in table_of(page, "Kinds")} == {kind.value for kind in Kind} - {"start"}  # not in histories
    assert {row[0] for row in table_of(page, "Outcomes")} == {outcome.value for outcome in Outcome}


@pytest.mark.parametrize(("section", "function"), [("@workflow", workflow), ("@activity", activity)])
def test_every_option_of_a_decorator_is_documented(section: str, function: Callable[..., Any]) -> None:
    rows = {row[0]: row[1] for row in table_of(REFERENCE / "decorators.md", section)}
    parameters = inspect.signature(function).parameters.values()
    expected = {one.name: repr(one.default) for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY}
    assert rows == expected


def test_every_field_of_a_retry_policy_is_documented() -> None:
    rows = {row[0]: row[1] for row in table_of(REFERENCE / "decorators.md", "RetryPolicy")}
    defaults = {field.name: field.default for field in dataclasses.fields(RetryPolicy)}
    assert list(rows) == list(defaults)
    for name, default in defaults.items():
        assert rows[name] == ("(Exception,)" if name == "retryable" else repr(default))


def public(cls: type) -> set[str]:
    """The public names of a class and of its instances' attributes."""
    given = set(re.findall(r"self\.([a-z]\w*)(?:: .+)? = ", inspect.getsource(cls)))
    return {name for base in cls.__mro__[:-1] for name in vars(base) if not name.startswith("_")} | given


@pytest.mark.parametrize("context", [WorkflowContext, ActivityContext], ids=lambda context: context.__name__)
def test_every_attribute_of_a_context_is_documented(context: type) -> None:
    rows = {row[0].partition("(")[0] for row in table_of(REFERENCE / "contexts.md", context.__name__)}
    assert rows == public(context) | {"instance_id", "workflow_name", "worker_id"}


def test_every_call_of_an_app_is_documented() -> None:
    text = prose_of(REFERENCE / "app-and-client.md")
    for name in public(Client) | public(App):
        assert f"`{name}(" in text, name


def test_every_hook_is_documented_with_its_info() -> None:
    hints = {name: inspect.signature(getattr(Hooks, name)).parameters["info"].annotation for name in HOOK_METHODS}
    assert {row[0]: row[1] for row in table_of(REFERENCE / "hooks.md", "Methods")[: len(HOOK_METHODS)]} == hints


def test_every_field_of_an_info_is_documented() -> None:
    rows = {row[0]: re.findall(r"`(\w+)`", f"`{row[1]}`") for row in table_of(REFERENCE / "hooks.md", "Infos")}
    assert set(rows) == {inspect.signature(getattr(Hooks, name)).parameters["info"].annotation for name in HOOK_METHODS}
    for name, documented in rows.items():
        assert documented == fields(getattr(hooks, name))[len(fields(hooks.Info)) :], name


def test_every_crash_point_is_documented_and_explained() -> None:
    for page in (REFERENCE / "testing.md", EXPLANATION / "what-happens-when.md"):
        assert [row[0] for row in table_of(page, "Crash points")] == list(POINTS)


def test_everything_a_test_environment_offers_is_documented() -> None:
    text = prose_of(REFERENCE / "testing.md")
    for name in public(TestEnvironment):
        assert f"`{name}" in text, name


GENERATED = REFERENCE / "names.md"
PUBLIC = [*romancy.__all__, *testing.__all__, *brokers.__all__, *opentelemetry.__all__, *prometheus.__all__]


@pytest.mark.parametrize("name", sorted(set(PUBLIC)))
def test_every_public_name_is_in_a_page_that_is_not_generated(name: str) -> None:
    written = [page for page in pages() if page.is_relative_to(DOCS) and page != GENERATED]
    assert any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", page.read_text(encoding="utf-8")) for page in written)


def test_the_page_of_all_names_is_current() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "reference.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_public_name_has_a_docstring() -> None:
    parts = re.split(r"^###+ `(.+)`\n", GENERATED.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    entries = dict(zip(parts[::2], parts[1::2], strict=True))
    assert {*romancy.__all__, *testing.__all__, *brokers.__all__} <= set(entries)
    constants = {"Duration", "POINTS", "__version__"}
    bare = re.compile(r"```py\n.*?\n```|^## [^\n]+$", re.DOTALL | re.MULTILINE)
    undocumented = {name for name, text in entries.items() if not bare.sub("", text).strip()}
    assert undocumented == constants


@pytest.mark.parametrize("command", sorted({one.path.split()[0] for one in levels(parser()) if one.path}))
def test_every_command_has_a_section(command: str) -> None:
    """The options of each command are checked in `tests/cli`."""
    sections = [heading.split(", ") for heading in headings_of(REFERENCE / "command-line.md")]
    assert any(command in names for names in sections)


def test_every_method_of_hooks_is_documented() -> None:
    rows = [row[0].partition("(")[0] for row in table_of(REFERENCE / "hooks.md", "Methods") if row[0].isascii()]
    assert public(Hooks) <= {row.strip("`") for row in rows} | set(re.findall(r"`(\w+)\(", prose_of(REFERENCE / "hooks.md")))


def test_every_environment_variable_is_documented() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    text = "".join(page.read_text(encoding="utf-8") for page in REFERENCE.glob("*.md"))
    variables = {option.variable for option in OPTIONS} | set(re.findall(r"\bROMANCY_[A-Z_]*[A-Z]\b", source))
    assert {one for one in variables if f"`{one}`" not in text} <= {
        "ROMANCY_DEFAULT_RETRY",
        "ROMANCY_HOOKS",
        "ROMANCY_PATH",  # a setting of Django's
    }


def test_every_extra_is_documented() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    rows = [row[0] for row in table_of(REFERENCE / "installation.md", "Extras")]
    assert rows == sorted(set(project["optional-dependencies"]) - {"dev", "docs"})


def test_refused_audit_events_are_listed() -> None:
    text = prose_of(EXPLANATION / "determinism.md")
    for event in _AUDITED:
        assert f"`{event}`" in text, event


def test_the_tests_named_in_the_guarantees_exist() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py|src/[\w/]+\.py)::(\w+)`", prose_of(EXPLANATION / "guarantees.md"))
    assert len(named) > 10
    for path, test in named:
        assert test in functions_of(ROOT / path), f"{path}::{test}"


def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("word", WORDS)
def test_the_glossary_has_the_words(word: str) -> None:
    assert word in anchors_of(DOCS / "glossary.md")


def test_pages_are_plain() -> None:
    for page in pages():
        if page.is_relative_to(DOCS):
            text = page.read_text(encoding="utf-8")
            unusual = {character for character in text if ord(character) > 0x2500}
            assert not unusual, f"{name_of(page)}: {unusual}"
            assert text.startswith("# "), name_of(page)

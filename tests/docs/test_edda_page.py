"""Tests that the page on the Edda layer lists every name and every option."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re

import pytest
from tests.docs.pages import DOCS, prose_of, table_of

from romancy.integrations import edda
from romancy.integrations.edda import EddaApp, WorkflowContext, WorkflowHooks
from romancy.integrations.edda.integrations.mcp import EddaMCPServer
from romancy.integrations.edda.unsupported import MODULE
from romancy.integrations.edda.unsupported import MODULES as MISSING

PAGE = DOCS / "reference" / "edda.md"
PARTS = {"addressed_events", "coercion", "current_app", "facades", "result_types", "unsupported"}
"""Modules of the layer that Edda does not have."""
MODULES = [one.name for one in pkgutil.walk_packages(edda.__path__, f"{edda.__name__}.")]


def named(cell: str) -> set[str]:
    return set(re.findall(r"[\w.]+", cell))


def first_cells(heading: str) -> set[str]:
    return {name for row in table_of(PAGE, heading) for name in named(row[0])}


def public(owner: type) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_")}


def test_every_name_is_in_the_table_and_no_other() -> None:
    assert first_cells("Names") == set(edda.__all__)


def test_every_module_is_in_the_table_with_what_it_has() -> None:
    rows = {name: named(row[1]) for row in table_of(PAGE, "Modules") for name in named(row[0])}
    ours = {name.removeprefix(f"{edda.__name__}.") for name in MODULES}
    assert set(rows) == ours - PARTS
    text = prose_of(PAGE)
    for module in rows:
        for name in importlib.import_module(f"{edda.__name__}.{module}").__all__:
            assert f"`{name}`" in text, f"{module}.{name}"


def test_every_name_of_a_context_and_an_app_is_there() -> None:
    assert public(WorkflowContext) <= first_cells("The context")
    text = prose_of(PAGE)
    for name in public(EddaApp) | set(inspect.signature(EddaApp).parameters) - {"options"}:
        assert f"`{name}`" in text, name


def test_every_name_of_a_tool_server_is_there() -> None:
    assert public(EddaMCPServer) == first_cells("Tools for assistants")
    line = next(one for one in PAGE.read_text(encoding="utf-8").splitlines() if "`EddaMCPServer(name" in one)
    assert all(name in line for name in set(inspect.signature(EddaMCPServer).parameters) - {"options"})


def test_every_hook_is_there_with_its_arguments() -> None:
    rows = {row[0]: re.findall(r"\w+", row[1]) for row in table_of(PAGE, "Hooks")}
    methods = {name: getattr(WorkflowHooks, name) for name in public(WorkflowHooks)}
    assert rows == {name: list(inspect.signature(one).parameters)[1:] for name, one in methods.items()}


def test_unavailable_names_are_listed() -> None:
    assert first_cells("Not offered") == {*MODULE, *MISSING}


@pytest.mark.parametrize("name", sorted(MODULE))
def test_an_unavailable_name_is_not_exported(name: str) -> None:
    assert name not in edda.__all__

"""The addresses of databases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from romancy.clock import SystemClock
from romancy.errors import ConfigurationError
from romancy.store.open import open_store, sqlite_path


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("orders.db", "orders.db"),
        ("data/orders.db", "data/orders.db"),
        ("sqlite:///orders.db", "orders.db"),
        ("sqlite:///data/orders.db", "data/orders.db"),
        ("file:orders.db", "orders.db"),
        ("SQLite:///orders.db", "orders.db"),
    ],
)
def test_relative_paths_are_made_absolute(address: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert sqlite_path(address) == str(tmp_path / path)


@pytest.mark.parametrize(
    "address", ["/var/orders.db", "sqlite:////var/orders.db", "file:/var/orders.db", "file:///var/orders.db"]
)
def test_absolute_paths(address: str) -> None:
    assert sqlite_path(address) == "/var/orders.db"


@pytest.mark.parametrize("address", [":memory:", "sqlite:///:memory:", "file::memory:"])
def test_memory(address: str) -> None:
    assert sqlite_path(address) == ":memory:"


@pytest.mark.parametrize("scheme", ["cockroachdb", "cockroachdb+asyncpg"])
def test_other_databases_are_refused_without_their_password(scheme: str) -> None:
    with pytest.raises(ConfigurationError, match="not supported by this version") as caught:
        open_store(f"{scheme}://me:s3cret@host/db", clock=SystemClock())
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("address", ["redis://:s3cret@host", "orcale://me:s3cret@host/db"])
def test_an_unknown_scheme_lists_what_is_accepted(address: str) -> None:
    with pytest.raises(ConfigurationError, match=r"sqlite:///relative\.db.*:memory:") as caught:
        open_store(address, clock=SystemClock())
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "address", ["", "sqlite://orders.db", "sqlite:orders.db", "sqlite:///", "sqlite:///a.db?mode=ro", "file:a.db?x=1"]
)
def test_addresses_that_name_no_file(address: str) -> None:
    with pytest.raises(ConfigurationError, match="Accepted are"):
        open_store(address, clock=SystemClock())


@pytest.mark.parametrize("password", ["1/s3cret", "1?s3cret=1", "1#s3cret", "1/2?s3cret=x", "[s3cret", "1@s3cret"])
@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_a_password_that_was_not_escaped_is_not_shown_as_something_else(scheme: str, password: str) -> None:
    """Behind a slash it would be read as the name of the database, behind a question mark as that of an option."""
    try:
        store: Any = open_store(f"{scheme}://me:{password}@host/db", clock=SystemClock())
        shown = store._database.label + repr(store)
    except ConfigurationError as error:
        shown = str(error)
    assert "s3cret" not in shown

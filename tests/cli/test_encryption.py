"""A database whose payloads are encrypted: the command with the key, and without."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.cli.sample_database import Place, copied, prepare, romancy

KEYS = """
from romancy import Compress, Encrypt

CODEC = [Compress(over=64), Encrypt({"first": b"1" * 32})]
"""
WITH_KEY = {"ROMANCY_CODEC": "keys:CODEC"}


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encrypted")
    (folder / "keys.py").write_text(KEYS)
    prepare(folder, more="codec='keys:CODEC'")
    return folder


@pytest.fixture
def shop(encrypted: Path, tmp_path: Path) -> Place:
    return Place(copied(encrypted, tmp_path), ["--database", "shop.db"])


@pytest.mark.parametrize(
    "command",
    [
        ["list"],
        ["list", "input.customer:ada"],
        ["list", "error:refused"],
        *(["get", name] for name in ("done-1", "failed-1", "waits-1", "gone-1", "rounds-1")),
        *(["history", name] for name in ("done-1", "failed-1", "waits-1", "gone-1")),
        *(["explain", name] for name in ("failed-1", "waits-1", "listens-1", "nap-1")),
        ["channels"],
        ["outbox", "list"],
        ["doctor"],
    ],
    ids=" ".join,
)
def test_nothing_breaks_without_the_key(shop: Place, command: list[str]) -> None:
    for more in ([], ["--json"]):
        done = shop(*command, *more)
        assert "Traceback" not in done.stderr
        assert not re.search(r"\bada\b", done.stdout)  # a word of its own: ids are hexadecimal, and may hold the letters
        assert done.returncode == (done.returncode if command == ["doctor"] else 0), done.stderr


def test_what_is_encoded_is_said_to_be(shop: Place) -> None:
    found = shop.json("get", "failed-1")
    assert found["input"] == "encoded: encrypted with key 'first'"
    assert found["error"]["message"] == "encrypted with key 'first'"
    assert "encrypted with key 'first'" in shop.good("history", "done-1")
    assert "encrypted with key 'first'" in shop.good("result", "done-1")
    assert "cannot be decoded here" in shop.refused("export", "done-1", code=6)


def test_with_the_key_everything_is_shown(shop: Place) -> None:
    done = romancy("get", "failed-1", "--json", *shop.where, folder=shop.folder, variables=WITH_KEY)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["input"] == {"cents": -5}
    found = romancy("list", "input.customer:bob", "-o", "ids", *shop.where, folder=shop.folder, variables=WITH_KEY)
    assert found.stdout.split() == ["waits-2"]
    replayed = romancy("replay", "--all-open", "shop:app", folder=shop.folder)  # the app has the key
    assert replayed.returncode == 0, replayed.stderr

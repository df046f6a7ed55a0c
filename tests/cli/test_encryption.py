"""Tests of commands on a database with encrypted payloads, with the key and without it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.cli.sample_database import CommandTarget, copied, prepare, romancy

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
def shop(encrypted: Path, tmp_path: Path) -> CommandTarget:
    return CommandTarget(copied(encrypted, tmp_path), ["--database", "shop.db"])


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
def test_nothing_breaks_without_the_key(shop: CommandTarget, command: list[str]) -> None:
    for more in ([], ["--json"]):
        done = shop(*command, *more)
        assert "Traceback" not in done.stderr
        assert not re.search(r"\bada\b", done.stdout)  # as a whole word, because hexadecimal ids may contain these letters
        assert done.returncode == (done.returncode if command == ["doctor"] else 0), done.stderr


def test_encoded_payloads_are_marked(shop: CommandTarget) -> None:
    found = shop.json("get", "failed-1")
    assert found["input"] == "encoded: encrypted with key 'first'"
    assert found["error"]["message"] == "encrypted with key 'first'"
    assert "encrypted with key 'first'" in shop.succeed("history", "done-1")
    assert "encrypted with key 'first'" in shop.succeed("result", "done-1")
    assert "cannot be decoded here" in shop.fail("export", "done-1", code=6)


def test_with_the_key_everything_is_shown(shop: CommandTarget) -> None:
    done = romancy("get", "failed-1", "--json", *shop.options, folder=shop.folder, variables=WITH_KEY)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["input"] == {"cents": -5}
    found = romancy("list", "input.customer:bob", "-o", "ids", *shop.options, folder=shop.folder, variables=WITH_KEY)
    assert found.stdout.split() == ["waits-2"]
    replayed = romancy("replay", "--all-open", "shop:app", folder=shop.folder)  # the app has the key
    assert replayed.returncode == 0, replayed.stderr

"""Tests of the commands `romancy serve`, `migrate` and `version`: usage, errors, exit codes."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.http.serve_process import SHOP

from romancy import __version__
from romancy.cli.app_loader import load_app
from romancy.cli.main import main
from romancy.errors import ConfigurationError

PLAIN = "from romancy import App\napp = App('shop.db')\n"
"""A module without workflows, because imported workflows would stay registered in this process."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the import path, which is also the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def romancy(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "romancy", *arguments], cwd=folder, capture_output=True, text=True)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out.startswith(f"romancy {__version__} (Python ")


def test_the_console_script_is_the_same_command() -> None:
    script = Path(sys.executable).with_name("romancy")
    if not script.exists():
        pytest.skip("the console script is not installed: run `make` again")
    assert subprocess.run([script, "version"], capture_output=True, text=True).stdout.startswith("romancy ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--nonsense"],
        ["nonsense"],
        ["serve"],
        ["serve", "a:b", "--port", "x"],
        ["serve", "a:b", "--port", "70000"],
        ["serve", "a:b", "--workers", "0"],
        ["serve", "a:b", "--workers", "2", "--reload"],
    ],
)
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: romancy" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nothere_:app", r"There is no module 'nothere_' in .*"),
        ("given_apps:other", r"module given_apps has no 'other'. Did you mean app or second"),
        ("given_apps:number", r"given_apps:number is an object of type int, not a romancy.App: .*"),
        ("given_apps:App", r"given_apps:App is class App, not a romancy.App: .*"),
        ("given_apps:app.nothing", r"an object of type App has no 'nothing'. .*"),
        (":app", r"'' is not the name of a module: give MODULE:APP, e.g. shop:app."),
        ("shop.py:app", r"There is no module 'shop.py' in .*"),
        ("a-b", r"'a-b' is not the name of a module: .*"),
    ],
)
def test_a_wrong_target_is_explained(folder: Path, target: str, message: str) -> None:
    (folder / "given_apps.py").write_text(PLAIN + "second = App('other.db')\nnumber = 5\n")
    with pytest.raises(ConfigurationError) as refused:
        load_app(target)
    assert re.search(message, str(refused.value))


def test_app_is_the_usual_name(folder: Path) -> None:
    (folder / "usual_name.py").write_text(PLAIN)
    assert load_app("usual_name") is load_app("usual_name:app")


def test_a_module_that_lacks_something_itself_is_not_called_missing(folder: Path) -> None:
    (folder / "lacking.py").write_text("import nothere_\n")
    with pytest.raises(ModuleNotFoundError, match="nothere_"):
        load_app("lacking:app")


def test_an_error_is_one_sentence_and_1(tmp_path: Path) -> None:
    done = romancy(tmp_path, "serve", "nothere_:app")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"romancy: There is no module 'nothere_' in .*\n", done.stderr)


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = romancy(tmp_path, "serve", "shop:app", "--port", str(port))
    assert (done.returncode, done.stderr) == (
        1,
        f"romancy: Cannot listen on 127.0.0.1 port {port}: Address already in use.\n",
    )


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_app_that_cannot_start(tmp_path: Path, workers: str) -> None:
    (tmp_path / "shop.py").write_text(SHOP.replace('"shop.db"', f'"{tmp_path}/no/such/folder.db"'))
    done = romancy(tmp_path, "serve", "shop:app", "--port", "0", "--workers", workers)
    assert done.returncode == 1
    assert "StoreError" in done.stderr
    assert "Traceback" not in done.stderr


def test_uvicorn_is_missing(tmp_path: Path) -> None:
    """Without uvicorn, as in an installation without extras."""
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['uvicorn'] = None\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "romancy", "serve", "shop:app"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (
        1,
        "romancy: `romancy serve` needs uvicorn, which is not installed: pip install 'romancy[serve]'\n",
    )


def test_migrate_looks_and_applies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = str(tmp_path / "shop.db")
    assert main(["migrate", "status", "--database", database]) == 3
    assert "missing  0001_initial" in capsys.readouterr().out
    assert not (tmp_path / "shop.db").exists()
    assert main(["migrate", "up", "--database", database]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "applied  0001_initial"
    assert main(["migrate", "up", "--database", database]) == 0
    assert capsys.readouterr().out == "The schema is up to date.\n"
    assert main(["migrate", "status", "--json", "--database", database]) == 0
    assert all(one["applied"] for one in json.loads(capsys.readouterr().out))


def test_migrate_says_what_is_wrong_without_the_password(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "status", "--database", "oracle://me:s3cret@host/db"]) == 1
    message = capsys.readouterr().err
    assert "oracle" in message
    assert "s3cret" not in message

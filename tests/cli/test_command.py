"""The command itself: where it looks, how it ends, what it says when something is wrong; and the rest of its commands."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.cli.sample_database import SHOP, Place, environment, romancy

from romancy.cli.commands.completion import levels
from romancy.cli.main import main, parser
from romancy.cli.output import note, one_line, read_line
from romancy.cli.parser import parse_span, read_arguments
from romancy.cli.terminal_text import escape

# --- where it looks


def test_variables_say_where_to_look(shop: Place, served: Place) -> None:
    url = served.where[1]
    for variables in ({"ROMANCY_DATABASE": "shop.db"}, {"ROMANCY_URL": url, "ROMANCY_DATABASE": "nothere.db"}):
        done = romancy("list", "id:done-1", "-o", "ids", folder=shop.folder, variables=variables)
        assert (done.stdout, done.returncode) == ("done-1\n", 0), done.stderr
    done = romancy("list", "-o", "ids", "--database", "nothere.db", folder=shop.folder, variables={"ROMANCY_URL": url})
    assert done.returncode == 6


def test_options_may_stand_before_the_command(shop: Place) -> None:
    assert romancy("--database", "shop.db", "--json", "list", folder=shop.folder).stdout.startswith("{")


def test_a_database_is_never_made(tmp_path: Path) -> None:
    done = romancy("list", "--database", "typo.db", folder=tmp_path)
    assert (done.returncode, done.stdout) == (6, "")
    assert f"There is no database file {tmp_path / 'typo.db'}. Name the right one" in done.stderr
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "empty.db").touch()
    done = romancy("list", "--database", "empty.db", folder=tmp_path)
    assert (done.returncode, done.stdout) == (6, "")
    assert "empty.db has no tables of romancy" in done.stderr


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_alone_it_says_what_there_is(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = romancy(*arguments, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: romancy" in done.stdout
    assert "explain" in done.stdout


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter, which pytest's are not."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user who may not write the file")
@pytest.mark.parametrize("beside", [True, False], ids=["open elsewhere", "closed"])
def test_a_file_that_may_only_be_read_is_read(
    shop: Place,
    open_folder: Path,
    beside: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(open_folder)
    for name in ("shop.db", "shop.db-wal", "shop.db-shm"):
        if (source := shop.folder / name).exists():
            shutil.copy(source, open_folder / name)
    with closing(sqlite3.connect("shop.db")) as keeper:
        keeper.execute("SELECT count(*) FROM romancy_instances").fetchall()
        if not beside:
            keeper.close()
        assert Path("shop.db-wal").exists() is beside
        arguments = ("list", "--database", "shop.db", "-o", "ids")
        assert main(arguments) == 0  # everything is imported before the rights are given up
        expected = capsys.readouterr().out
        assert expected
        os.seteuid(65534)  # the folders above are closed to this user, and this one cannot be written
        try:
            assert not os.access("shop.db", os.W_OK, effective_ids=True)
            code = main(arguments)
        finally:
            os.seteuid(0)
        assert (code, capsys.readouterr().out) == (0, expected)


@pytest.mark.parametrize(
    "arguments",
    [
        ("start", "order", "--id", "mixed-1", "number=1"),
        ("start", "--id", "mixed-2", "order", "number=1"),
        ("start", "order", "number=1", "--id=mixed-3"),
        ("start", "order", "--id", "mixed-4", "--", "number=1"),
    ],
)
def test_options_may_stand_anywhere(arguments: tuple[str, ...]) -> None:
    given = read_arguments(parser(), arguments)
    assert (given.workflow, given.parts, given.instance_id[:5]) == ("order", ["number=1"], "mixed")


def test_two_places_are_wrong_usage(shop: Place) -> None:
    assert "give one of them" in shop.refused("list", "--url", "http://127.0.0.1:1", code=2)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://nothere.invalid", "https://127.0.0.1:1"])
def test_nobody_answers(tmp_path: Path, url: str) -> None:
    done = romancy("list", "--url", url, folder=tmp_path)
    assert (done.returncode, done.stdout) == (6, "")
    assert f"{url} cannot be reached" in done.stderr


@pytest.mark.parametrize(
    "url", ["nothere", "ftp://x", "http://", "http://u:s3cret@x", "http://x:99999", "http://x/?a=s3cret"]
)
def test_what_is_no_address(tmp_path: Path, url: str) -> None:
    done = romancy("list", "--url", url, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "s3cret" not in done.stderr
    assert "The URL of an app" in done.stderr


def test_something_else_answers(served: Place, tmp_path: Path) -> None:
    done = romancy("list", "--url", f"{served.where[1]}/elsewhere", folder=tmp_path)
    assert done.returncode == 2
    assert "There is no API of romancy" in done.stderr


def test_tokens(tmp_path: Path) -> None:
    """An app with two roles: a stranger is refused, a reader may look only, and no token is ever printed."""
    (tmp_path / "shop.py").write_text(SHOP.replace("{more}", ""))
    variables = environment(ROMANCY_AUTH="admin:adm1n-t,read:r3ad-t", ROMANCY_SHUTDOWN_TIMEOUT="1")
    command = [sys.executable, "-m", "romancy", "serve", "shop:app", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, env=variables, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        try:
            for token, arguments, code in [
                (None, ["list"], 3),
                ("wr0ng-t", ["list"], 3),
                ("r3ad-t", ["list"], 0),
                ("r3ad-t", ["cancel", "x"], 3),
                ("adm1n-t", ["cancel", "x"], 4),
            ]:
                given = {} if token is None else {"ROMANCY_TOKEN": token}
                done = romancy(*arguments, "--url", url, folder=tmp_path, variables=given)
                assert done.returncode == code, (token, arguments, done.stderr)
                assert "-t" not in done.stdout + done.stderr
            assert romancy("list", "--url", url, "--token", "adm1n-t", folder=tmp_path).returncode == 0
        finally:
            process.send_signal(signal.SIGTERM)


# --- how it prints


def test_without_rich_programs_get_their_json(shop: Place) -> None:
    """As where only `romancy` is installed."""
    (shop.folder / "sitecustomize.py").write_text("import sys\nsys.modules['rich'] = None\nsys.modules['rich.box'] = None\n")
    path = os.pathsep.join([str(shop.folder), os.environ.get("PYTHONPATH", "")])
    without = {"PYTHONPATH": path}
    done = romancy("list", *shop.where, folder=shop.folder, variables=without)
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install 'romancy[cli]'" in done.stderr
    for arguments in (["list", "--json"], ["list", "-o", "ids"], ["result", "done-1"], ["cancel", "waits-1", "--json"]):
        assert romancy(*arguments, *shop.where, folder=shop.folder, variables=without).returncode == 0


def test_nothing_is_coloured_where_no_terminal_is(shop: Place) -> None:
    for variables in ({}, {"NO_COLOR": "1"}, {"TERM": "xterm-256color"}):
        assert "\x1b" not in romancy("list", *shop.where, folder=shop.folder, variables=variables).stdout


@pytest.mark.parametrize("arguments", [["list"], ["get", "waits-1"], ["list", "-o", "jsonl"], ["workers", "--json"]])
def test_watching_ends_with_a_signal(place: Place, arguments: list[str]) -> None:
    command = [sys.executable, "-m", "romancy", *arguments, *place.where, "--watch=0.05"]
    with subprocess.Popen(
        command, cwd=place.folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        seen = [process.stdout.readline() for _ in range(60)]  # more than one round
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert (process.wait(timeout=30), process.stderr.read()) == (130, "")
    assert any(line.strip() for line in seen)


def test_following_ends_with_a_signal(served: Place) -> None:
    command = [sys.executable, "-m", "romancy", "history", "waits-1", "--follow", *served.where]
    with subprocess.Popen(command, cwd=served.folder, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "reserve:1" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130


def test_a_reader_that_goes_away_is_no_error(shop: Place) -> None:
    command = f"{sys.executable} -m romancy list -o jsonl --database shop.db | head -c 10"
    done = subprocess.run(["bash", "-c", command], cwd=shop.folder, env=environment(), capture_output=True, timeout=40)
    assert done.stderr == b""


def test_texts_are_shown_and_not_obeyed() -> None:
    assert escape("a\x1b[31m\n\u202eb\x9bc\ud800") == "a\\x1b[31m\\x0a\\u202eb\\x9bc\\ud800"
    assert escape("\u061c\ufeff\U000e0041👍") == "\\u061c\\ufeff\\U000e0041👍"
    for name in ("plain", "with space", "-x", '"quoted"', "line\nbreak", " edge", "\u202e", "ü"):
        assert read_line(one_line(name)) == name
        assert "\n" not in one_line(name)


def test_what_is_said_of_an_argument_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    note("Nothing has happened in a\x1b[2Jb\u061c yet.")
    assert capsys.readouterr().err == "Nothing has happened in a\\x1b[2Jb\\u061c yet.\n"


@pytest.mark.parametrize(
    ("arguments", "loads"),
    [(["list"], False), (["workflows", "--app", "shop:app"], True), (["migrate", "status"], False)],
)
def test_a_file_here_is_not_taken_for_a_package(shop: Place, arguments: list[str], loads: bool) -> None:
    """As the console script runs: a folder of others may hold files that are called as packages are."""
    for name in ("rich", "pydantic", "sqlite3", "asyncpg"):
        (shop.folder / f"{name}.py").write_text("print('it was run')")
    (shop.folder / "shop.py").write_text("from romancy import App\nprint('loaded')\napp = App('shop.db', workflows=[])")
    command = [sys.executable, "-P", "-c", "from romancy.cli.main import run; run()", *arguments]
    variables = environment(ROMANCY_DATABASE="shop.db")
    done = subprocess.run(command, cwd=shop.folder, env=variables, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "it was run" not in done.stdout
    assert ("loaded" in done.stdout) == loads


def test_durations() -> None:
    assert [parse_span(text) for text in ("90", "1.5s", "15m", "1h", "30d", "2w")] == [90, 1.5, 900, 3600, 2592000, 1209600]


# --- usage


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lst"], "Did you mean list?"),
        (["list", "--jsn"], "Did you mean --json"),
        (["batch", "gte"], "Did you mean get?"),
        (["list", "-o", "tabel"], "Did you mean table?"),
        (["list", "--limit", "0"], "no number"),
        (["list", "--watch=never"], "no interval"),
        (["history"], "ID"),
        (["completion", "tcsh"], "bash, zsh, fish"),
    ],
)
def test_wrong_usage_is_told_with_advice(tmp_path: Path, arguments: list[str], said: str) -> None:
    done = romancy(*arguments, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize("path", [one.path for one in levels(parser())])
def test_every_command_has_help(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args([*path.split(), "--help"])
    assert ended.value.code == 0
    assert f"usage: romancy {path}".strip() in capsys.readouterr().out


# --- histories


def test_a_history_is_exported_and_replayed(shop: Place) -> None:
    (shop.folder / "h.json").write_text(shop.good("export", "waits-1"))
    done = romancy("replay", "h.json", "shop:order", folder=shop.folder)
    assert done.stdout == "1 entries fit; it waits for paid:1.\n", done.stderr
    assert romancy("replay", "h.json", "shop:pay", folder=shop.folder).returncode == 1
    changed = (shop.folder / "shop.py").read_text().replace('await reserve(ctx, "lamp")', 'await reserve(ctx, "chair")')
    (shop.folder / "later.py").write_text(changed)
    done = romancy("replay", "h.json", "later:order", folder=shop.folder)
    assert done.returncode == 1
    assert "reserve" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["nothere.json", "shop:order"], 2),
        (["shop.py", "shop:order"], 2),
        (["shop.py"], 2),
        ([], 2),
        (["shop.py", "shop:nothere"], 2),
        (["shop.py", "shop:app"], 2),
        (["x", "--all-open", "shop:app"], 2),
    ],
)
def test_what_cannot_be_replayed(shop: Place, arguments: list[str], code: int) -> None:
    done = romancy("replay", *arguments, folder=shop.folder)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


def test_code_is_checked_against_all_that_is_in_flight(shop: Place) -> None:
    done = romancy("replay", "--all-open", "shop:app", folder=shop.folder)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr == "6 of 6 instances in flight fit the code.\n"
    changed = (shop.folder / "shop.py").read_text().replace('await reserve(ctx, "lamp")', 'await reserve(ctx, "chair")')
    (shop.folder / "shop.py").write_text(changed)
    done = romancy("replay", "--all-open", "shop:app", "--json", folder=shop.folder)
    assert done.returncode == 1
    wrong = {one["instance_id"] for one in json.loads(done.stdout)["items"] if not one["fits"]}
    assert {"waits-1", "waits-2", "paused-1"} <= wrong
    assert "nap-1" not in wrong


def test_a_history_over_http_is_refused(served: Place) -> None:
    assert "--database" in served.refused("export", "waits-1", code=2)


# --- the others


def test_the_doctor(place: Place) -> None:
    done = place("doctor", "--json")
    findings = json.loads(done.stdout)["items"]
    assert done.returncode == int(any(one["level"] == "error" for one in findings))
    assert {one["level"] for one in findings} <= {"ok", "warning", "error"}
    assert "check" in place("doctor").stdout


def test_a_database_is_measured(shop: Place) -> None:
    done = romancy("bench", "--count", "20", "--json", *shop.where, folder=shop.folder)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["workflows"] == 20
    assert found["workflows_per_second"] > 0
    ids = shop.good("list", "workflow:romancy.bench", "-o", "ids").split()
    assert len(ids) == 41
    assert "at once" in romancy("bench", "--count", "2", *shop.where, folder=shop.folder).stdout


def test_apps_do_not_know_what_is_measured(served: Place) -> None:
    assert "romancy.bench" not in served.good("workflows", "-o", "ids").split()


def test_the_demonstration(tmp_path: Path) -> None:
    done = romancy("demo", "--help", folder=tmp_path)
    assert "--forgetful" in done.stdout
    done = romancy("demo", "--keep", str(tmp_path / "kept"), folder=tmp_path)
    assert done.returncode == 0, done.stdout
    assert list((tmp_path / "kept").rglob("shop.db"))


def test_the_viewer_is_opened(tmp_path: Path) -> None:
    def address(*arguments: str) -> str:
        return romancy("open", *arguments, folder=tmp_path).stdout

    assert address() == "http://127.0.0.1:8000/viewer/\n"
    assert (
        address("a/b ?&", "--url", "https://ops.example/app/")
        == "https://ops.example/app/viewer/instance?id=a%2Fb%20%3F%26\n"
    )
    assert address("x", "--no-browser") == "http://127.0.0.1:8000/viewer/instance?id=x\n"


def test_version(tmp_path: Path) -> None:
    assert romancy("version", folder=tmp_path).stdout.startswith("romancy ")


def test_migrations(tmp_path: Path) -> None:
    assert romancy("migrate", "status", "--database", "new.db", folder=tmp_path).returncode == 3
    assert romancy("migrate", "up", "--database", "new.db", folder=tmp_path).returncode == 0
    assert romancy("list", "--database", "new.db", folder=tmp_path).stderr == "There are no instances.\n"


# --- completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_understood_by_their_shells(tmp_path: Path, shell: str) -> None:
    script = romancy("completion", shell, folder=tmp_path).stdout
    assert "terminate" in script
    assert "page-token" in script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    (tmp_path / "script").write_text(script)
    done = subprocess.run([shell, "-n", "script"], cwd=tmp_path, capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["romancy", "ca"], {"cancel"}),
        (["romancy", "batch", ""], {"list", "get", "abort"}),
        (["romancy", "list", "--page"], {"--page-token"}),
        (["romancy", "list", "-o", "js"], {"json", "jsonl"}),
        (["romancy", "list", "--status", "waiting_for_e"], {"waiting_for_event"}),
        (["romancy", "--json", "outbox", "re"], {"requeue"}),
        (["romancy", "completion", "z"], {"zsh"}),
    ],
)
def test_bash_completes(bash_script: Path, words: list[str], offered: set[str]) -> None:
    line = " ".join(f"'{word}'" for word in words)
    program = f'source {bash_script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _romancy; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, timeout=20)
    assert done.stderr == ""
    found = set(done.stdout.split())
    assert {word for word in found if not word.startswith("-") or words[-1].startswith("-")} == offered


@pytest.fixture(scope="module")
def bash_script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    (folder / "script").write_text(romancy("completion", "bash", folder=folder).stdout)
    return folder / "script"

"""Tests of the command line: target, exit codes, output, usage errors, and the commands without a test file of their own."""

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
from tests.cli.sample_database import SHOP, CommandTarget, environment, romancy

from romancy.cli.commands.completion import levels
from romancy.cli.main import main, parser
from romancy.cli.output import note, one_line, read_line
from romancy.cli.parser import parse_span, read_arguments
from romancy.cli.terminal_text import escape

# --- the target


def test_variables_name_the_target(shop: CommandTarget, served: CommandTarget) -> None:
    url = served.options[1]
    for variables in ({"ROMANCY_DATABASE": "shop.db"}, {"ROMANCY_URL": url, "ROMANCY_DATABASE": "nothere.db"}):
        done = romancy("list", "id:done-1", "-o", "ids", folder=shop.folder, variables=variables)
        assert (done.stdout, done.returncode) == ("done-1\n", 0), done.stderr
    done = romancy("list", "-o", "ids", "--database", "nothere.db", folder=shop.folder, variables={"ROMANCY_URL": url})
    assert done.returncode == 6


def test_options_may_stand_before_the_command(shop: CommandTarget) -> None:
    assert romancy("--database", "shop.db", "--json", "list", folder=shop.folder).stdout.startswith("{")


def test_a_database_is_never_created(tmp_path: Path) -> None:
    done = romancy("list", "--database", "typo.db", folder=tmp_path)
    assert (done.returncode, done.stdout) == (6, "")
    assert f"There is no database file {tmp_path / 'typo.db'}. Give the right one" in done.stderr
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "empty.db").touch()
    done = romancy("list", "--database", "empty.db", folder=tmp_path)
    assert (done.returncode, done.stdout) == (6, "")
    assert "empty.db lacks the tables of romancy" in done.stderr


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_without_a_command_the_help_is_printed(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = romancy(*arguments, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: romancy" in done.stdout
    assert "explain" in done.stdout


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter; pytest's temporary folders are closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user who may not write the file")
@pytest.mark.parametrize("opened_elsewhere", [True, False], ids=["open elsewhere", "closed"])
def test_a_file_that_may_only_be_read_is_read(
    shop: CommandTarget,
    open_folder: Path,
    opened_elsewhere: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(open_folder)
    for name in ("shop.db", "shop.db-wal", "shop.db-shm"):
        if (source := shop.folder / name).exists():
            shutil.copy(source, open_folder / name)
    with closing(sqlite3.connect("shop.db")) as keeper:
        keeper.execute("SELECT count(*) FROM romancy_instances").fetchall()
        if not opened_elsewhere:
            keeper.close()
        assert Path("shop.db-wal").exists() is opened_elsewhere
        arguments = ("list", "--database", "shop.db", "-o", "ids")
        assert main(arguments) == 0  # import everything before the process gives up its privileges
        expected = capsys.readouterr().out
        assert expected
        os.seteuid(65534)  # this user can neither enter the folders above nor write this one
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


def test_two_targets_are_wrong_usage(shop: CommandTarget) -> None:
    assert "give only one of them" in shop.fail("list", "--url", "http://127.0.0.1:1", code=2)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://nothere.invalid", "https://127.0.0.1:1"])
def test_a_server_that_cannot_be_reached(tmp_path: Path, url: str) -> None:
    done = romancy("list", "--url", url, folder=tmp_path)
    assert (done.returncode, done.stdout) == (6, "")
    assert f"{url} cannot be reached" in done.stderr


@pytest.mark.parametrize(
    "url", ["nothere", "ftp://x", "http://", "http://u:s3cret@x", "http://x:99999", "http://x/?a=s3cret"]
)
def test_an_invalid_url(tmp_path: Path, url: str) -> None:
    done = romancy("list", "--url", url, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "s3cret" not in done.stderr
    assert "URL of an app" in done.stderr


def test_a_url_without_the_api(served: CommandTarget, tmp_path: Path) -> None:
    done = romancy("list", "--url", f"{served.options[1]}/elsewhere", folder=tmp_path)
    assert done.returncode == 2
    assert "There is no romancy API" in done.stderr


def test_tokens(tmp_path: Path) -> None:
    """Without a token commands are refused, the role `read` may only read, and no token is printed."""
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


# --- output


def test_without_rich_json_is_printed(shop: CommandTarget) -> None:
    """Without `rich`, as in an installation without extras, only the JSON output and the plain output work."""
    (shop.folder / "sitecustomize.py").write_text("import sys\nsys.modules['rich'] = None\nsys.modules['rich.box'] = None\n")
    path = os.pathsep.join([str(shop.folder), os.environ.get("PYTHONPATH", "")])
    without = {"PYTHONPATH": path}
    done = romancy("list", *shop.options, folder=shop.folder, variables=without)
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install 'romancy[cli]'" in done.stderr
    for arguments in (["list", "--json"], ["list", "-o", "ids"], ["result", "done-1"], ["cancel", "waits-1", "--json"]):
        assert romancy(*arguments, *shop.options, folder=shop.folder, variables=without).returncode == 0


def test_without_a_terminal_there_are_no_colours(shop: CommandTarget) -> None:
    for variables in ({}, {"NO_COLOR": "1"}, {"TERM": "xterm-256color"}):
        assert "\x1b" not in romancy("list", *shop.options, folder=shop.folder, variables=variables).stdout


@pytest.mark.parametrize("arguments", [["list"], ["get", "waits-1"], ["list", "-o", "jsonl"], ["workers", "--json"]])
def test_watching_ends_with_a_signal(place: CommandTarget, arguments: list[str]) -> None:
    command = [sys.executable, "-m", "romancy", *arguments, *place.options, "--watch=0.05"]
    with subprocess.Popen(
        command, cwd=place.folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        seen = [process.stdout.readline() for _ in range(60)]  # more than one refresh
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert (process.wait(timeout=30), process.stderr.read()) == (130, "")
    assert any(line.strip() for line in seen)


def test_following_ends_with_a_signal(served: CommandTarget) -> None:
    command = [sys.executable, "-m", "romancy", "history", "waits-1", "--follow", *served.options]
    with subprocess.Popen(command, cwd=served.folder, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "reserve:1" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130


def test_a_reader_that_goes_away_is_no_error(shop: CommandTarget) -> None:
    command = f"{sys.executable} -m romancy list -o jsonl --database shop.db | head -c 10"
    done = subprocess.run(["bash", "-c", command], cwd=shop.folder, env=environment(), capture_output=True, timeout=40)
    assert done.stderr == b""


def test_control_characters_are_escaped() -> None:
    assert escape("a\x1b[31m\n\u202eb\x9bc\ud800") == "a\\x1b[31m\\x0a\\u202eb\\x9bc\\ud800"
    assert escape("\u061c\ufeff\U000e0041👍") == "\\u061c\\ufeff\\U000e0041👍"
    for name in ("plain", "with space", "-x", '"quoted"', "line\nbreak", " edge", "\u202e", "ü"):
        assert read_line(one_line(name)) == name
        assert "\n" not in one_line(name)


def test_control_characters_of_arguments_are_escaped_in_messages(capsys: pytest.CaptureFixture[str]) -> None:
    note("Nothing has happened in a\x1b[2Jb\u061c yet.")
    assert capsys.readouterr().err == "Nothing has happened in a\\x1b[2Jb\\u061c yet.\n"


@pytest.mark.parametrize(
    ("arguments", "loads"),
    [(["list"], False), (["workflows", "--app", "shop:app"], True), (["migrate", "status"], False)],
)
def test_a_file_in_the_working_directory_is_not_imported_as_a_package(
    shop: CommandTarget, arguments: list[str], loads: bool
) -> None:
    """The working directory is not on the import path: it may hold files with the names of packages."""
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
    ("arguments", "message"),
    [
        (["lst"], "Did you mean list?"),
        (["list", "--jsn"], "Did you mean --json"),
        (["batch", "gte"], "Did you mean get?"),
        (["list", "-o", "tabel"], "Did you mean table?"),
        (["list", "--limit", "0"], "is not a positive number"),
        (["list", "--watch=never"], "is not an interval"),
        (["history"], "ID"),
        (["completion", "tcsh"], "bash, zsh, fish"),
    ],
)
def test_wrong_usage_is_reported_with_advice(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = romancy(*arguments, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


@pytest.mark.parametrize("path", [one.path for one in levels(parser())])
def test_every_command_has_help(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args([*path.split(), "--help"])
    assert ended.value.code == 0
    assert f"usage: romancy {path}".strip() in capsys.readouterr().out


# --- export and replay


def test_a_history_is_exported_and_replayed(shop: CommandTarget) -> None:
    (shop.folder / "h.json").write_text(shop.succeed("export", "waits-1"))
    done = romancy("replay", "h.json", "shop:order", folder=shop.folder)
    assert done.stdout == "1 entry matches; the instance is waiting for paid:1.\n", done.stderr
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
def test_what_cannot_be_replayed(shop: CommandTarget, arguments: list[str], code: int) -> None:
    done = romancy("replay", *arguments, folder=shop.folder)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


def test_code_is_checked_against_all_instances_in_flight(shop: CommandTarget) -> None:
    done = romancy("replay", "--all-open", "shop:app", folder=shop.folder)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr == "The code matches 6 of 6 instances in flight.\n"
    changed = (shop.folder / "shop.py").read_text().replace('await reserve(ctx, "lamp")', 'await reserve(ctx, "chair")')
    (shop.folder / "shop.py").write_text(changed)
    done = romancy("replay", "--all-open", "shop:app", "--json", folder=shop.folder)
    assert done.returncode == 1
    wrong = {one["instance_id"] for one in json.loads(done.stdout)["items"] if not one["fits"]}
    assert {"waits-1", "waits-2", "paused-1"} <= wrong
    assert "nap-1" not in wrong


def test_a_history_over_http_is_refused(served: CommandTarget) -> None:
    assert "--database" in served.fail("export", "waits-1", code=2)


# --- other commands


def test_the_doctor(place: CommandTarget) -> None:
    done = place("doctor", "--json")
    findings = json.loads(done.stdout)["items"]
    assert done.returncode == int(any(one["level"] == "error" for one in findings))
    assert {one["level"] for one in findings} <= {"ok", "warning", "error"}
    assert "check" in place("doctor").stdout


def test_a_database_is_measured(shop: CommandTarget) -> None:
    done = romancy("bench", "--count", "20", "--json", *shop.options, folder=shop.folder)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["workflows"] == 20
    assert found["workflows_per_second"] > 0
    ids = shop.succeed("list", "workflow:romancy.bench", "-o", "ids").split()
    assert len(ids) == 41
    assert "at once" in romancy("bench", "--count", "2", *shop.options, folder=shop.folder).stdout


def test_apps_do_not_list_the_benchmark_workflow(served: CommandTarget) -> None:
    assert "romancy.bench" not in served.succeed("workflows", "-o", "ids").split()


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
def test_completion_scripts_are_valid_in_their_shells(tmp_path: Path, shell: str) -> None:
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

"""The demonstration shows what it promises, checks it, and cleans up; its check detects violations."""

from __future__ import annotations

import errno
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from romancy import Error, HistoryEntry, Instance, Status
from romancy.clock import to_micros
from romancy.demo.checks import check_all
from romancy.demo.external_services import ServiceRequest, read_requests
from romancy.demo.records import InstanceRecord, Kill
from romancy.demo.terminal import Colour, Terminal, paint, plain
from romancy.demo.timeline import draw
from romancy.model.history import AttemptRow
from romancy.model.transition import JournalNote
from romancy.store.port import JournalEntry

TIMEOUT = 110
DEMO = [sys.executable, "-m", "romancy.demo"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment whose temporary files lie in a folder of the test."""
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "TERM")}
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    return kept | {"TMPDIR": str(temporary), "PYTHONIOENCODING": "utf-8", "COLUMNS": "80", "TERM": "xterm"}


def left(environment: dict[str, str]) -> list[str]:
    """The temporary files that are left, and (on Linux) the worker processes that still run in that folder."""
    folder = environment["TMPDIR"]
    commands = [command_of(path) for path in Path("/proc").glob("[0-9]*")]
    return [*os.listdir(folder), *(command for command in commands if folder in command)]


def command_of(process: Path) -> str:
    try:
        return (process / "cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:  # the process has ended meanwhile
        return ""


@pytest.mark.slow
def test_the_demonstration_ends_well(environment: dict[str, str], tmp_path: Path) -> None:
    keep = tmp_path / "kept"
    done = subprocess.run(
        [*DEMO, "--keep", str(keep)], capture_output=True, text=True, encoding="utf-8", env=environment, timeout=TIMEOUT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert "FAILED:" not in done.stdout
    told = done.stdout[: done.stdout.index("Try next\n")]
    assert [line for line in told.splitlines() if len(line) > 80] == []
    assert left(environment) == []
    in_order(
        done.stdout,
        "order-1001 is stored",
        "charge   39.80 EUR, slow card",
        "no result is recorded",
        "kill -9",
        "worker-2 has started",
        "known, not repeated",
        "order-1001 has completed",
        "empty card: declined",
        "refund   20.00 EUR, gift card",
        "release  1 samovar",
        "order-1002 has failed",
        "What happened",
        "rollback",
        "✓ every effect on external services happened once",
        "Try next",
        "Files",
    )
    (folder,) = keep.iterdir()
    assert str(folder) in done.stdout
    typed = re.search(r"keep the files here  (\S+) -m romancy\.demo --keep \.\n", done.stdout)
    assert typed, "the command that it prints can be run"
    assert Path(shutil.which(typed[1]) or "").resolve() == Path(sys.executable).resolve()
    charges = [line for line in read_requests(folder / "requests.jsonl") if line.key == "order-1001:1:charge:1"]
    assert [line.outcome for line in charges] == ["applied", "repeated"]
    assert [line.worker.partition("/")[0] for line in charges] == ["worker-1", "worker-2"]
    assert (folder / "shop.db").exists()


def in_order(text: str, *words: str) -> None:
    """Check that the words appear in this order."""
    position = 0
    for word in words:
        position = text.find(word, position)
        assert position >= 0, f"{word!r} is missing, or not in its place:\n{text}"


@pytest.mark.slow
def test_a_bank_that_forgets_keys_is_found_out(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [*DEMO, "--forgetful"], capture_output=True, text=True, encoding="utf-8", env=environment, timeout=TIMEOUT
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED: order-1001:1:charge:1 took effect 2 times" in done.stdout
    assert left(environment) == []


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("1  An order arrives", signal.SIGINT),
        ("charge   39.80", signal.SIGTERM),
        ("worker-2 has started", signal.SIGINT),
    ],
)
def test_an_interrupted_demonstration_clears_away(environment: dict[str, str], moment: str, number: signal.Signals) -> None:
    with subprocess.Popen(
        DEMO, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8", env=environment
    ) as demo:
        assert demo.stdout is not None
        assert demo.stderr is not None
        assert any(moment in line for line in demo.stdout)
        demo.send_signal(number)
        rest, errors = demo.communicate(timeout=TIMEOUT)
    assert demo.returncode == 128 + number, rest + errors
    assert errors == ""
    assert "Interrupted" in rest
    assert left(environment) == []


def test_a_killed_demonstration_leaves_no_worker(environment: dict[str, str]) -> None:
    with subprocess.Popen(DEMO, stdout=subprocess.PIPE, text=True, encoding="utf-8", env=environment) as demo:
        assert demo.stdout is not None
        (worker,) = (
            int(found[1]) for found in map(re.compile(r"\(process (\d+)\)").search, until_started(demo.stdout)) if found
        )
        demo.kill()
    wait_until_gone(worker)


def until_started(lines: Iterator[str]) -> Iterator[str]:
    """The lines up to the start of the first worker."""
    for line in lines:
        yield line
        if "worker-1 has started" in line:
            return


def wait_until_gone(process: int) -> None:
    """Wait until a process has ended that is not a child of this one."""
    pause = threading.Event()
    for _ in range(TIMEOUT * 10):
        if not runs(process):
            return
        pause.wait(0.1)
    raise AssertionError(f"process {process} still runs")


def runs(process: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        os.kill(process, 0)
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:  # no /proc on this system, or the process has just ended, which the next call reports
        return True


def test_a_reader_that_leaves_is_no_fault(environment: dict[str, str]) -> None:
    with subprocess.Popen(DEMO, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as demo:
        assert demo.stdout is not None
        assert demo.stderr is not None
        demo.stdout.readline()
        demo.stdout.close()
        errors = demo.stderr.read()
        demo.wait(TIMEOUT)
    assert errors == b""
    assert left(environment) == []


@pytest.mark.slow
def test_a_terminal_gets_colours(environment: dict[str, str]) -> None:
    leader, follower = pty.openpty()
    with subprocess.Popen(DEMO, stdout=follower, stderr=follower, env=environment) as demo:
        os.close(follower)
        written = read_all(leader)
        assert demo.wait(TIMEOUT) == 0, written
    os.close(leader)
    assert "\x1b[" in written


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_colours_are_for_those_who_want_them(environment: dict[str, str], coloured: bool) -> None:
    leader, follower = pty.openpty()
    with open(follower, "w", encoding="ascii") as stream:
        terminal = Terminal(stream, environment)
        terminal.line(paint("▆✓", Colour.OK))
        written = os.read(leader, 100).decode().rstrip()
    os.close(leader)
    assert terminal.coloured is coloured
    assert written == ("\x1b[32m#+\x1b[0m" if coloured else "#+")


def read_all(terminal: int) -> str:
    """Read a terminal until no process has it open, which Linux reports as EIO."""
    found = b""
    while True:
        try:
            some = os.read(terminal, 65536)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            some = b""
        if not some:
            return found.decode()
        found += some


# --- the check, with planted violations

START = datetime(2026, 1, 1, tzinfo=UTC)
ONE, TWO = "worker-1/a", "worker-2/b"


def entry(seq: int, name: str, kind: str = "activity", *, ok: bool = True, worker: str = TWO) -> HistoryEntry:
    at = START + timedelta(seconds=seq)
    return HistoryEntry(
        seq=seq,
        kind=kind,
        activity_id=name,
        name=name,
        outcome="ok" if ok else "error",
        attempt=1,
        input=None,
        result=None,
        error=None,
        worker_id=worker,
        at=at,
        scheduled_at=at - timedelta(seconds=1),
        started_at=at - timedelta(seconds=1),
        ended_at=at,
    )


def record(
    order: str, status: Status, history: list[HistoryEntry], owners: list[str], kill: Kill | None = None
) -> InstanceRecord:
    end = history[-1].at
    error = None if status is Status.COMPLETED else Error("TerminalError", "declined")
    instance = Instance(order, "checkout", None, status, 1, None, {}, None, error, (), None, START, START, end, end)
    journal = tuple(
        JournalEntry(to_micros(START + timedelta(seconds=2 * n)), JournalNote("claimed"), owner, n)
        for n, owner in enumerate(owners)
    )
    return InstanceRecord(instance, tuple(history), (), journal, kill)


def line(order: str, name: str, worker: str = TWO, outcome: str = "applied") -> ServiceRequest:
    return ServiceRequest.model_validate(
        {
            "at": 0,
            "order": order,
            "activity_id": name,
            "worker": worker,
            "action": name,
            "what": "",
            "key": f"{order}:{name}",
            "outcome": outcome,
        }
    )


def survivor() -> InstanceRecord:
    begun = to_micros(START + timedelta(seconds=1))
    attempt = AttemptRow("charge:1", 1, "charge", True, ONE, 1, "", begun, begun)
    history = [entry(1, "reserve:1", worker=ONE), entry(4, "charge:1"), entry(5, "ship:1")]
    return record("a", Status.COMPLETED, history, [ONE, TWO], Kill(begun + 500_000, attempt))


def refused() -> InstanceRecord:
    done = [entry(1, "reserve:1"), entry(2, "charge:1"), entry(3, "charge:2", ok=False)]
    undone = [entry(4, "compensate:charge:1", "compensation"), entry(5, "compensate:reserve:1", "compensation")]
    return record("b", Status.FAILED, [*done, *undone], [TWO])


def requests() -> list[ServiceRequest]:
    return [
        line("a", "reserve:1", ONE),
        line("a", "charge:1", ONE),
        line("a", "charge:1", TWO, "repeated"),
        line("a", "ship:1"),
        line("b", "reserve:1"),
        line("b", "charge:1"),
        line("b", "charge:2", TWO, "declined"),
        line("b", "compensate:charge:1"),
        line("b", "compensate:reserve:1"),
    ]


def test_the_checks_pass_what_is_right() -> None:
    assert [check.fault for check in check_all(survivor(), refused(), requests())] == [""] * 7


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda lines: [*lines, line("a", "ship:1")], "took effect 2 times"),
        (lambda lines: lines[:3] + lines[4:], "a ship:1 is recorded and had no effect"),
        (lambda lines: [*lines, line("a", "notify:1")], "a notify:1 had an effect and is not recorded"),
        (lambda lines: [*lines, line("a", "reserve:1", TWO, "repeated")], "a reserve:1 has a request count of 2"),
        (lambda lines: lines[:2] + lines[3:], "a charge:1 has a request count of 1"),
        (
            lambda lines: [*lines[:2], lines[2].model_copy(update={"key": "other"}), *lines[3:]],
            "with different keys",
        ),
        (lambda lines: [*lines[:2], lines[2].model_copy(update={"worker": ONE}), *lines[3:]], "twice by one worker"),
    ],
)
def test_the_checks_find_wrong_requests(spoil: Callable[[list[ServiceRequest]], list[ServiceRequest]], words: str) -> None:
    assert words in " ".join(check.fault for check in check_all(survivor(), refused(), spoil(requests())))


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (replace(survivor(), instance=refused().instance), refused(), "it is failed"),
        (survivor(), replace(refused(), instance=survivor().instance), "it is completed"),
        (replace(survivor(), journal=survivor().journal[:1]), refused(), "it was claimed by worker-1/a"),
        (survivor(), replace(refused(), history=(*refused().history[:3], *refused().history[:2:-1])), ", not ["),
        (survivor(), replace(refused(), history=refused().history[:-1]), ", not ["),
    ],
)
def test_the_checks_find_wrong_histories(first: InstanceRecord, second: InstanceRecord, words: str) -> None:
    assert words in " ".join(check.fault for check in check_all(first, second, requests()))


# --- the diagram


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_timeline_is_aligned(width: int) -> None:
    lines = [plain(text) for text in draw(survivor(), width)]
    assert max(map(len, lines)) <= width
    verdicts = {text.rindex("✓") for text in lines[3:]}
    assert len(verdicts) == 1


def test_the_timeline_shows_a_takeover() -> None:
    assert [plain(text) for text in draw(survivor(), 60)] == [
        "   a  checkout  ✓ completed after 5.00 s",
        "                   0 s         2 s        4 s",
        "   owner           ├───────✗╌╌╌├ worker-2 ─────┤",
        "   reserve:1       ▆▆▆▆▆▆  ┊                      ✓ 1.00 s",
        "   charge:1     ×2       ▆▆✗        ▆▆▆▆▆▆        ✓ 3.00 s",
        "   ship:1                  ┊              ▆▆▆▆▆▆  ✓ 1.00 s",
    ]


def test_the_timeline_shows_a_rollback() -> None:
    assert [plain(text) for text in draw(refused(), 60)] == [
        "   b  checkout  ✗ failed after 5.00 s: declined",
        "                   0 s         2 s        4 s",
        "   owner           ├ worker-2 ─────────────────┤",
        "   reserve:1       ▆▆▆▆▆▆                         ✓ 1.00 s",
        "   charge:1              ▆▆▆▆▆▆                   ✓ 1.00 s",
        "   charge:2                    ▆▆▆▆▆              ✗ 1.00 s",
        "   rollback ───────────────────────────────────────",
        "   ↩ charge:1                       ▆▆▆▆▆▆        ✓ 1.00 s",
        "   ↩ reserve:1                            ▆▆▆▆▆▆  ✓ 1.00 s",
    ]

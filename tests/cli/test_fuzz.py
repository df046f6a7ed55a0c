"""Fuzz tests of arguments: every command exits with a documented code and prints no traceback and no control characters."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.sample_database import CommandTarget
from tests.property.hypothesis_settings import examples, unhurried

from romancy.cli.exit_codes import Exit
from romancy.cli.main import main

_PIECES = [
    "\n",
    "\x1b[31m",
    "\0",
    "*",
    '"',
    "\\",
    "'",
    "-",
    "--",
    "@",
    "=",
    "{",
    "[",
    ":",
    "%",
    "\u202e",
    "\u061c",
    "\x1b[2J",
    "ü",
    "\ud800",
    " ",
]
unusual_text = st.lists(st.sampled_from(_PIECES) | st.text(max_size=4), max_size=5).map("".join)
known = st.sampled_from(["done-1", "failed-1", "waits-1", "nap-1", "rounds-1", "order", "paid"])
word = (
    unusual_text
    | known
    | st.sampled_from(["9" * 30, "a" * 2000, "[" * 3000, '{"number": "\\ud800"}', '{"number": 1}', "number=1", "1"])
)
line = word | st.tuples(st.sampled_from(["status", "id", "waits", "error", "older", "input.number", "x"]), word).map(
    ":".join
)
EXIT_CODES = {int(code) for code in Exit}
CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u202e]")


@st.composite
def command(draw: Callable[[Any], Any]) -> list[str]:
    """A command with unusual arguments."""
    name, *fixed = draw(
        st.sampled_from(
            [
                ["list"],
                ["get"],
                ["history"],
                ["result", "--timeout", "0"],
                ["explain"],
                ["cancel", "--yes"],
                ["retry", "--yes"],
                ["pause", "--yes"],
                ["resume", "--yes"],
                ["cancel", "--yes", "--no-wait", "--filter"],
                ["start", "--dry-run"],
                ["start"],
                ["event"],
                ["publish"],
                ["send"],
                ["channels"],
                ["groups"],
                ["outbox", "list"],
                ["outbox", "requeue"],
                ["batch", "list"],
                ["batch", "get"],
                ["workers"],
                ["workflows"],
                ["doctor"],
                ["export"],
                ["nothing"],
            ]
        )
    )
    size = draw(st.sampled_from([1, 1, 1, 1, 2, 0]))
    given = draw(st.lists(line, min_size=size, max_size=size))
    options = draw(
        st.lists(
            st.tuples(
                st.sampled_from(["--limit", "--source", "--subject", "--to", "--id", "--reason", "--input", "-o"]), word
            ),
            max_size=2,
        )
    )
    more = draw(st.sampled_from([["--json"], ["-o", "ids"], []]))
    return [name, *fixed, *given, *[part for pair in options for part in pair], *more]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_unusual_arguments(shop: CommandTarget, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop.folder)
    monkeypatch.setattr(sys, "stdin", io.StringIO('done-1\n"\\u0000"\n'))
    for stream in (sys.stdout, sys.stderr):  # as in the console script
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(errors="backslashreplace")

    @unhurried(examples(300))
    @given(command())
    def check(arguments: list[str]) -> None:
        code: object
        try:
            code = main([*arguments, "--database", "shop.db"])
        except SystemExit as ended:  # raised by argparse
            code = ended.code
        printed = capsys.readouterr()
        assert code in EXIT_CODES, (arguments, code)
        assert "Traceback" not in printed.err
        assert not CONTROL_CHARACTERS.search(printed.out + printed.err), (arguments, printed)

    check()

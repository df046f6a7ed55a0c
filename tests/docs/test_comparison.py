"""Tests that every figure of the comparison page was measured."""

from __future__ import annotations

import re

from tests.docs.pages import DOCS

NUMBER = re.compile(r"\d(?:[\d,.]*\d)?")


def section(text: str, heading: str) -> str:
    _, found, rest = text.partition(f"## {heading}\n")
    assert found, heading
    return rest.partition("\n## ")[0]


def test_every_figure_was_measured() -> None:
    measured = section((DOCS / "internals" / "performance.md").read_text(encoding="utf-8"), "Measured")
    shown = section((DOCS / "comparison.md").read_text(encoding="utf-8"), "Figures")
    rows = [line for line in shown.splitlines() if line.startswith("|")]
    assert len(rows) > 5
    assert [row for row in rows if row not in measured.splitlines()] == []
    assert set(NUMBER.findall(shown)) <= set(NUMBER.findall(measured))


def test_what_others_do_better_comes_first() -> None:
    text = (DOCS / "comparison.md").read_text(encoding="utf-8")
    assert text.index("## What others do better") < text.index("## What romancy does better")

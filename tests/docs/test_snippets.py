"""The documentation is executed: every page runs and prints what it says, every link leads somewhere."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, anchors_of, blocks_of, links_of, name_of, pages

PATIENCE = 30
RUNNER = Path(__file__).with_name("pages.py")
WITH_CODE = [page for page in pages() if any(block.language == "python" for block in blocks_of(page))]
EXAMPLES = {
    "simple.py": ["Hello, Ada!", "completed"],
    "retry.py": ["attempt 1 fails", "attempt 3 succeeds", "gave up after 2 attempts"],
    "saga.py": ["booked hotel", "booked flight", "cancelled flight", "cancelled hotel", "failed: card refused"],
    "timer.py": ["waiting_for_timer", "reminded: True"],
    "concurrency.py": ["sum: 60", "fastest: mirror-b", "too slow"],
    "testing_example.py": ["a year passed", "charged once"],
}


def run(command: list[str], folder: Path) -> str:
    """What a program that ends well prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *command], cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def missing(expected: list[str], printed: str) -> str | None:
    """The first expected line that is not there behind the ones before it. `...` stands for anything."""
    lines = iter(printed.splitlines())
    for wanted in expected:
        if not any(fits(wanted, line) for line in lines):
            return wanted
    return None


def fits(wanted: str, line: str) -> bool:
    parts = wanted.strip().split("...")
    at = 0
    for part in parts:
        at = line.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_a_page_runs_and_prints_what_it_says(page: Path, tmp_path: Path) -> None:
    printed = run([str(RUNNER), str(page)], tmp_path)
    expected = [block.text.splitlines() for block in blocks_of(page) if block.language == "text"]
    wanted = missing([line for line in itertools.chain(*expected) if line.strip()], printed)
    assert wanted is None, f"{name_of(page)} says that it prints {wanted!r}. It printed:\n{printed}"


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links_of(page):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name_of(page)} links to {link}, which is not there"
        assert target.is_relative_to(ROOT), f"{name_of(page)} links to {link}, outside the repository"
        if anchor and target.suffix == ".md":
            assert anchor in anchors_of(target), f"{name_of(page)} links to {link}: that page has no such heading"


def test_every_page_can_be_reached_from_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    found, left = set[Path](), [index]
    while left:
        page = left.pop()
        if page not in found and page.suffix == ".md" and page.exists():
            found.add(page)
            left += [(page.parent / link.partition("#")[0]).resolve() for link in links_of(page) if "://" not in link]
    assert {page for page in pages() if page.is_relative_to(ROOT / "docs")} - found == set()


def test_blocks_have_a_language() -> None:
    known = {"python", "text", "console"}
    for page in pages():
        for block in blocks_of(page):
            assert page.name == "README.md" or block.language in known, f"{name_of(page)}:{block.line}"


def test_every_example_is_expected() -> None:
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_to_its_end(name: str, tmp_path: Path) -> None:
    printed = run([str(ROOT / "examples" / name)], tmp_path)
    wanted = missing(EXAMPLES[name], printed)
    assert wanted is None, f"{name} did not print {wanted!r}. It printed:\n{printed}"


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_short_and_says_what_it_shows(name: str) -> None:
    text = (ROOT / "examples" / name).read_text(encoding="utf-8")
    assert text.startswith('"""')
    assert len(text.splitlines()) < 60


def test_the_comparison_of_output_finds_what_is_missing() -> None:
    assert missing(["a", "c...e"], "a\nb\nc d e\n") is None
    assert missing(["b", "a"], "a\nb\n") == "a"
    assert missing(["a...z"], "a b\n") == "a...z"

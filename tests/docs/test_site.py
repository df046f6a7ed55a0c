"""Tests of the documentation site: navigation, pictures, a build without warnings, and the check of its links."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import DOCS, ROOT, headings_of, links_of, pages

SITE = ROOT / "scripts" / "site.py"
CONFIGURATION = ROOT / "mkdocs.yml"
PICTURES = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")


def navigation() -> dict[str, str]:
    """The titles of the navigation's pages. The file has one line for each page, so no YAML parser is needed."""
    text = CONFIGURATION.read_text(encoding="utf-8").partition("\nnav:\n")[2]
    return {page: title for title, page in re.findall(r"- ([^:\n]+): (\S+\.md)$", text, re.MULTILINE)}


def test_every_page_is_in_the_navigation() -> None:
    written = {str(page.relative_to(DOCS)) for page in pages() if page.is_relative_to(DOCS)}
    assert set(navigation()) == written, "add it to `nav` in mkdocs.yml"


def test_the_navigation_has_the_titles_of_the_pages() -> None:
    assert {page: headings_of(DOCS / page)[0] for page in navigation()} == navigation()


def test_the_index_lists_every_page() -> None:
    listed = set(links_of(DOCS / "index.md"))
    assert set(navigation()) - listed == {"index.md"}


def test_every_picture_is_shown_and_described() -> None:
    shown: set[Path] = set()
    for page in DOCS.rglob("*.md"):
        for words, picture in PICTURES.findall(page.read_text(encoding="utf-8")):
            assert words, f"{page.name}: {picture} needs an alternative text"
            shown.add((page.parent / picture).resolve())
    assert shown == set((DOCS / "pictures").iterdir())


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the documentation that a test may change and build."""
    shutil.copytree(DOCS, tmp_path / "docs")
    shutil.copy(CONFIGURATION, tmp_path)
    return tmp_path


def built(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SITE), str(folder)], capture_output=True, text=True, timeout=100, check=False)


def test_the_site_builds_without_a_warning_or_a_broken_link(copy: Path) -> None:
    done = built(copy)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (copy / "build" / "site" / "tutorial" / "first-workflow" / "index.html").exists()


@pytest.mark.parametrize(
    "planted",
    [
        "[nowhere](tutorial/nowhere.md)",
        "[no heading](glossary.md#nothing)",
        "[no heading here](#nothing)",
        '<img alt="elsewhere" src="https://example.org/picture.png">',
        '<a href="nowhere/">nowhere</a>',
    ],
)
def test_a_planted_fault_is_found(copy: Path, planted: str) -> None:
    index = copy / "docs" / "index.md"
    index.write_text(f"{index.read_text(encoding='utf-8')}\n{planted}\n", encoding="utf-8")
    done = built(copy)
    assert done.returncode == 1, done.stdout

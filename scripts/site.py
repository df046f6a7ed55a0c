"""Builds the documentation site, and checks what was built.

    python scripts/site.py [FOLDER]     FOLDER has mkdocs.yml and docs/; without it, this repository

Fails on any warning of the builder, on links and anchors that lead nowhere, and on anything that a page would load from
another host.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
BUILT = "build/site"
LOADED = {("img", "src"), ("link", "href"), ("script", "src"), ("source", "src"), ("iframe", "src")}
"""What a browser fetches by itself."""


@dataclass
class Page(HTMLParser):
    """What a page links to, what it loads, and what can be linked to in it."""

    links: set[str] = field(default_factory=set)
    loads: set[str] = field(default_factory=set)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element names."""
        for name, value in attrs:
            if value is None:
                continue
            if name in ("id", "name"):
                self.anchors.add(value)
            if (tag, name) in LOADED:
                self.loads.add(value)
            elif (tag, name) == ("a", "href"):
                self.links.add(value)


def build(folder: Path) -> list[str]:
    """Build the site; what the builder complains of."""
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    said = f"{done.stdout}\n{done.stderr}"
    complaints = [line for line in said.splitlines() if re.search(r"\b(warning|error)\b", line, re.IGNORECASE)]
    return complaints or ([said] if done.returncode else [])


def check(site: Path) -> Iterator[str]:
    """What is wrong in a site that was built."""
    pages = {path: parsed(path) for path in sorted(site.rglob("*.html"))}
    if not pages:
        yield "no page was built"
    for path, page in pages.items():
        where = path.relative_to(site)
        for link in sorted(page.links | page.loads):
            wrong = trouble(link, path, site, pages, loaded=link in page.loads)
            if wrong:
                yield f"{where}: {link}: {wrong}"
    for sheet in sorted(site.rglob("*.css")):
        for address in re.findall(r"url\([\"']?((?:https?:)?//[^)\"']+)", sheet.read_text("utf-8")):
            yield f"{sheet.relative_to(site)}: loads {address} from elsewhere"


def parsed(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text("utf-8"))
    return page


def trouble(link: str, path: Path, site: Path, pages: dict[Path, Page], *, loaded: bool) -> str | None:
    """Why a link leads nowhere, or None."""
    parts = urlsplit(link)
    if parts.scheme == "data":
        return None
    if parts.scheme or parts.netloc:
        return "is loaded from elsewhere" if loaded else None
    target = path
    if parts.path:
        start = site if parts.path.startswith("/") else path.parent
        target = (start / unquote(parts.path).lstrip("/")).resolve()
    if target.is_dir():
        target /= "index.html"
    if not target.exists():
        return "is not there"
    anchor = unquote(parts.fragment)
    return "has no such heading" if anchor and target in pages and anchor not in pages[target].anchors else None


def main() -> int:
    """Build and check, and say what is wrong."""
    folder = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT
    wrong = build(folder) or list(check(folder / BUILT))
    for line in wrong:
        print(line)
    if not wrong:
        print(f"{BUILT}: {len(list((folder / BUILT).rglob('*.html')))} pages, no warning, every link leads somewhere")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

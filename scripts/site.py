"""Builds the documentation site and checks the result.

    python scripts/site.py [FOLDER]     FOLDER contains mkdocs.yml and docs/; by default this repository

Fails on any warning of the builder, on broken links and anchors, and on any resource that a page would load from another
host.
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
"""The elements and attributes whose resources a browser loads with the page."""


@dataclass
class Page(HTMLParser):
    """The links, the loaded resources and the anchors of a page."""

    links: set[str] = field(default_factory=set)
    loads: set[str] = field(default_factory=set)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record the links, resources and anchors of an element."""
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
    """Build the site; return the warnings and errors of the builder."""
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    output = f"{done.stdout}\n{done.stderr}"
    warnings = [line for line in output.splitlines() if re.search(r"\b(warning|error)\b", line, re.IGNORECASE)]
    return warnings or ([output] if done.returncode else [])


def check(site: Path) -> Iterator[str]:
    """Yield the faults of a built site."""
    pages = {path: parsed(path) for path in sorted(site.rglob("*.html"))}
    if not pages:
        yield "no page was built"
    for path, page in pages.items():
        where = path.relative_to(site)
        for link in sorted(page.links | page.loads):
            wrong = fault_of(link, path, site, pages, loaded=link in page.loads)
            if wrong:
                yield f"{where}: {link}: {wrong}"
    for sheet in sorted(site.rglob("*.css")):
        for address in re.findall(r"url\([\"']?((?:https?:)?//[^)\"']+)", sheet.read_text("utf-8")):
            yield f"{sheet.relative_to(site)}: loads {address} from another host"


def parsed(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text("utf-8"))
    return page


def fault_of(link: str, path: Path, site: Path, pages: dict[Path, Page], *, loaded: bool) -> str | None:
    """Return the fault of a link, or None."""
    parts = urlsplit(link)
    if parts.scheme == "data":
        return None
    if parts.scheme or parts.netloc:
        return "is loaded from another host" if loaded else None
    target = path
    if parts.path:
        start = site if parts.path.startswith("/") else path.parent
        target = (start / unquote(parts.path).lstrip("/")).resolve()
    if target.is_dir():
        target /= "index.html"
    if not target.exists():
        return "does not exist"
    anchor = unquote(parts.fragment)
    return "the page has no such heading" if anchor and target in pages and anchor not in pages[target].anchors else None


def main() -> int:
    """Build and check the site, and print the faults."""
    folder = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT
    wrong = build(folder) or list(check(folder / BUILT))
    for line in wrong:
        print(line)
    if not wrong:
        print(f"{BUILT}: {len(list((folder / BUILT).rglob('*.html')))} pages, no warnings, no broken links")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""What every page must fulfil, asked of the browser."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

_CHECK = (Path(__file__).parent / "page_checks.js").read_text()


def complaints(page: Page) -> list[str]:
    """What is wrong with how a page is made: names, labels, headings, contrast, sizes, overflow, anything inline."""
    found: list[str] = page.evaluate(_CHECK)
    return found

"""Checks of every page, run in the browser."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

_CHECK = (Path(__file__).parent / "page_checks.js").read_text()


def find_faults(page: Page) -> list[str]:
    """Return the faults of a page: names, labels, headings, contrast, sizes, overflow, inline styles and scripts."""
    found: list[str] = page.evaluate(_CHECK)
    return found

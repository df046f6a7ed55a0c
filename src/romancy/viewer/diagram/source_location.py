"""Positions of sources that were stored without one: found by comparison with the call sites in the history."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace

from romancy.model.source import Section
from romancy.viewer.diagram.marks import parse_call_site
from romancy.viewer.diagram.parser import Function, parse


def locate_sections(sections: list[Section], sites: Iterable[str]) -> tuple[list[Section], bool]:
    """Return the sections with their modules and lines; False if the position of one had to be found by comparison."""
    if all(one.line for one in sections):
        return sections, True
    call_sites = [one for site in sites for one in site.split("|")]
    return [one if one.line else _locate_section(one, call_sites) for one in sections], False


def _locate_section(section: Section, sites: list[str]) -> Section:
    function = parse(section)
    if function is None:
        return section
    named = [site for site in sites if _function_name(site) == function.definition.name]
    found = [parsed for site in named if (parsed := parse_call_site(site)) is not None]
    if not found:
        return section
    shift = _shift(_calls(function), {(line, column) for _, line, column in found})
    return replace(section, module=found[0][0], line=1 + shift) if shift is not None else section


def _function_name(site: str) -> str:
    """Return the innermost named function of a call site: `checkout` of `shop:checkout.<locals>.<listcomp>:3:5`."""
    name = site.rsplit(":", 2)[0].partition(":")[2]
    parts = [part for part in name.split(".") if not part.startswith("<")]
    return parts[-1] if parts else ""


def _calls(function: Function) -> set[tuple[int, int]]:
    found: set[tuple[int, int]] = set()
    for one in ast.walk(function.definition):
        if isinstance(one, ast.Call | ast.Await | ast.AsyncWith):
            _, line, column = function.call_site(one.lineno, one.col_offset)
            found.add((line, column))
    return found


def _shift(calls: set[tuple[int, int]], call_sites: set[tuple[int, int]]) -> int | None:
    """Return the offset in lines with which most calls match a call site; the smallest one, if there are several."""
    shifts = {line - mine for line, column in call_sites for mine, mine_column in calls if column == mine_column}
    if not shifts:
        return None
    return max(
        sorted(shifts, reverse=True), key=lambda shift: sum((line - shift, column) in calls for line, column in call_sites)
    )

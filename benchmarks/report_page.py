"""Writes the documentation page with the benchmark results, and its chart, from `results/latest.json`."""

from __future__ import annotations

import json
import math
from html import escape
from typing import Any

from benchmarks.child import ROOT
from benchmarks.report import LATEST

PAGE = ROOT / "docs" / "explanation" / "measured.md"
CHART = ROOT / "docs" / "pictures" / "measured.svg"
SECTIONS = {
    "throughput": "Throughput on SQLite",
    "postgres": "PostgreSQL",
    "waking": "Waking on SQLite",
    "timers": "Timers",
    "history": "Long histories",
    "sleeping": "Many sleeping instances",
    "channel": "Channels",
    "recurring": "Recurring workflows",
    "plans": "Large tables",
    "scaling": "Many instances and several processes",
    "million": "Operators' queries with a million instances",
}
_HEAD = """# What was measured

`make bench` repeats these measurements of romancy, DBOS and Edda, with the engines interleaved in one run, and writes this
page. The ratios matter more than the absolute figures, which come from one small, shared machine.

![How many times as fast as DBOS](../pictures/measured.svg)
"""
_LEFT, _WIDTH, _LINE, _MOST = 330, 360, 26, 100


def write() -> None:
    """Write the page and its chart."""
    known: dict[str, Any] = json.loads(LATEST.read_text("utf-8"))
    sections = {name: known[name] for name in SECTIONS if known.get(name, {}).get("tables")}
    CHART.write_text(_chart(_ratios(sections)), "utf-8")
    PAGE.write_text("\n".join([_HEAD, *(_section(name, one) for name, one in sections.items())]), "utf-8")
    print(f"Written to {PAGE} and {CHART}")


def _section(name: str, section: dict[str, Any]) -> str:
    when = section["measured"]
    lines = [f"## {SECTIONS[name]}", ""]
    for table in section["tables"]:
        lines += [f"{table['title']}.", "", *_table(table["lines"]), ""]
        lines += [line for note in table["notes"] for line in (note, "")]
    lines += [f"- {_judged(target)}" for target in section["targets"]]
    machine = f"Python {when['python']}, SQLite {when['sqlite']}, {when['system']}, {when['cores']} cores"
    lines += ["", f"Measured on {when['at'][:10]}: {machine}; load average before: {when['load']:.1f}.", ""]
    return "\n".join(lines)


def _table(lines: list[list[str]]) -> list[str]:
    head, *rows = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return [_row(head), _row(["---", *["---:"] * (len(head) - 1)]), *map(_row, rows)]


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _judged(target: dict[str, Any]) -> str:
    value = f"{target['value']:.3g}{target['unit']}"
    reached = "reached" if target["reached"] else "not reached"
    return f"{target['what']}: {value} (target {target['sign']} {target['goal']:g}: {reached})"


def _ratios(sections: dict[str, Any]) -> list[tuple[str, float]]:
    """Return for each comparison how many times as fast as DBOS (with its default settings) romancy is."""
    found: list[tuple[str, float]] = []
    for name, place in (("throughput", "SQLite"), ("waking", "SQLite"), ("postgres", "PostgreSQL")):
        for target in sections.get(name, {"targets": []})["targets"]:
            what, peer, _ = target["what"].partition(", compared with DBOS")
            if peer and target["unit"] == "x" and target["sign"] == ">=":
                found.append((f"{place}: {what.removesuffix(', by calls')}", target["value"]))
    return found


def _chart(ratios: list[tuple[str, float]]) -> str:
    """Return a bar chart with a logarithmic scale, as SVG."""
    height = _LINE * len(ratios) + 50
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 70} {height}" font-family="sans-serif" '
        'font-size="13" role="img">',
        "<title>How many times as fast as DBOS, as it comes</title>",
        f'<rect width="100%" height="100%" fill="#fff"/><text x="{_LEFT}" y="20" fill="#333">times as fast as DBOS</text>',
    ]
    for mark in (1, 2, 5, 10, 20, 50, 100):
        x = _LEFT + _x(mark)
        parts.append(f'<line x1="{x:.0f}" x2="{x:.0f}" y1="28" y2="{height - 22}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.0f}" y="{height - 6}" text-anchor="middle" fill="#777">{mark}</text>')
    for number, (what, value) in enumerate(ratios):
        y = 32 + number * _LINE
        parts.append(f'<text x="{_LEFT - 10}" y="{y + 14}" text-anchor="end" fill="#333">{escape(what)}</text>')
        parts.append(f'<rect x="{_LEFT}" y="{y}" width="{_x(value):.0f}" height="18" rx="2" fill="#3b6fb6"/>')
        parts.append(f'<text x="{_LEFT + _x(value) + 6:.0f}" y="{y + 14}" fill="#333">{value:.3g}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _x(value: float) -> float:
    return _WIDTH * math.log(max(value, 1.0)) / math.log(_MOST)

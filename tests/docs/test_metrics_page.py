"""Tests that the page on metrics and the dashboard name exactly the existing metrics."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any

from tests.docs.pages import DOCS, headings_of, table_of
from tests.outbox.fake_broker import Desk

from romancy import App
from romancy.metrics.metrics import MOST_ACTIVITIES, MOST_WORKFLOWS, Metric

PAGE = DOCS / "reference" / "metrics.md"
SECTIONS = ["Instances", "Activities", "Events and messages", "The worker", "The database", "The outbox"]


async def all_metrics(file: str) -> dict[str, Metric]:
    async with App(file, workflows=[], broker=Desk()) as app:
        return {metric.name: metric for metric in app.metrics()}


async def test_every_metric_is_in_a_table_with_its_kind_and_labels(file: str) -> None:
    metrics = await all_metrics(file)
    rows = [row for section in SECTIONS for row in table_of(PAGE, section)]
    documented = {name: (kind, labels.replace("`", "")) for name, kind, labels, _ in rows}
    assert documented == {name: (one.kind, ", ".join(one.labels)) for name, one in metrics.items()}
    assert set(SECTIONS) <= set(headings_of(PAGE))


async def test_every_value_of_a_bounded_label_is_named(file: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    metrics = await all_metrics(file)
    for name in ("romancy_requests_total", "romancy_store_errors_total", "romancy_claim_lag_seconds"):
        for labels, _ in metrics[name].values:
            assert f"`{labels[0]}`" in text, labels
    assert f"up to {MOST_WORKFLOWS} workflows and {MOST_ACTIVITIES} activities" in text


def dashboard() -> dict[str, Any]:
    board: dict[str, Any] = json.loads((files("romancy.metrics") / "grafana.json").read_text("utf-8"))
    return board


def queries() -> list[str]:
    return [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", [])]


async def test_the_dashboard_shows_every_metric_and_no_other(file: str) -> None:
    metrics = await all_metrics(file)
    queried = {name for query in queries() for name in re.findall(r"romancy_\w+", query)}
    buckets = {f"{name}_bucket" for name, one in metrics.items() if one.kind == "histogram"}
    plain = {name for name, one in metrics.items() if one.kind != "histogram"}
    assert queried == buckets | plain


async def test_the_dashboard_and_the_alerts_use_existing_labels(file: str) -> None:
    metrics = await all_metrics(file)
    alerts = re.findall(r"expr: (.+?)[,}]\s*(?:for|$)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    for query in queries() + alerts:
        (name, *_) = re.findall(r"romancy_\w+", query)
        known = {"job", "le", *metrics[name.removesuffix("_bucket")].labels}
        grouped = [label for inner in re.findall(r"by \(([^)]+)\)", query) for label in inner.split(", ")]
        selected = re.findall(r"(\w+)=~?\"", query)
        assert set(grouped + selected) <= known, query


def test_panels_do_not_overlap() -> None:
    taken: dict[tuple[int, int], str] = {}
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"], panel["title"]

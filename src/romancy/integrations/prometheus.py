"""The metrics of an app in a registry of prometheus_client. Needs `romancy[prometheus]`.

    register(app)                              adds the metrics of `GET /metrics` to those of your own code

Nothing is counted twice: the metrics are read from the app whenever the registry is collected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from romancy import App, ConfigurationError

try:
    from prometheus_client import REGISTRY, CollectorRegistry
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
    from prometheus_client.registry import Collector
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "prometheus_client":
        raise
    raise ConfigurationError(
        "The Prometheus exporter needs prometheus_client, which is not installed: pip install 'romancy[prometheus]'"
    ) from error

__all__ = ["AppCollector", "register"]

_TRIES = 10


def register(app: App, registry: CollectorRegistry = REGISTRY) -> AppCollector:
    """Add the metrics of an app to a registry; `registry.unregister(...)` of the returned collector removes them.

    If this is called while the app's event loop runs, the metrics include the number of instances that wait to be claimed,
    as of the previous collection.
    """
    collector = AppCollector(app)
    registry.register(collector)
    return collector


class AppCollector(Collector):
    """The metrics of an app, for a registry."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._loop = _running_loop()

    def describe(self) -> list[Metric]:
        """Return no metrics, because their names are known only when they are collected."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics. Can be called from any thread."""
        self._refresh()
        for metric in self._read_metrics():
            yield _family(metric)

    def _refresh(self) -> None:
        """Start a refresh of the metrics that need a database query, for the next collection, without waiting for it."""
        self._loop = _running_loop() or self._loop
        if self._loop is not None and self._loop.is_running():
            asyncio.run_coroutine_threadsafe(self._app.refresh_metrics(), self._loop)

    def _read_metrics(self) -> list[Any]:
        for _ in range(_TRIES):
            try:
                return self._app.metrics()
            except RuntimeError:  # the event loop added a metric while this thread was reading
                continue
        return self._app.metrics()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _family(metric: Any) -> Metric:
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.name, metric.meaning, labels=metric.labels)
        for labels, value in metric.values:
            edges = [*map(str, value.edges), "+Inf"]
            buckets = list(zip(edges, accumulate(value.counts), strict=True))
            histogram.add_metric(labels, buckets, value.total / value.unit)
        return histogram
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.meaning, labels=metric.labels)
    for labels, value in metric.values:
        family.add_metric(labels, value)
    return family

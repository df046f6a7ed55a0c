"""The gauges of a worker: what it is doing at the moment. Counters and histograms are in `Metrics`."""

from __future__ import annotations

from romancy.clock import MICROS
from romancy.metrics.metrics import Metric, gauge
from romancy.worker.claimer import Claimer
from romancy.worker.maintenance import Maintenance
from romancy.worker.worker import Worker


def collect_gauges(worker: Worker, claimer: Claimer, maintenance: Maintenance) -> list[Metric]:
    """Return the gauges. The queue depth has a value only if it was counted lately."""
    now, options = worker.clock.now(), worker.options
    depth, first = (None, None) if claimer.queue_depth is None else claimer.queue_depth
    waiting = None if first is None or depth is None else (now - first if depth else 0)
    heartbeat_at = maintenance.heartbeat_at
    return [
        gauge("romancy_instances_running", "Instances that run in this process.", worker.running),
        gauge("romancy_instances_max", "Instances that may run in this process.", options.max_workflows),
        gauge("romancy_instances_warm", "Waiting instances that this process has in memory.", worker.warm),
        gauge("romancy_instances_warm_max", "Waiting instances that this process may keep in memory.", options.cache_size),
        gauge("romancy_instances_queued", "Instances in memory that are due and wait for room.", worker.queued),
        gauge("romancy_activities_running", "Attempts of activities that run in this process.", len(worker.attempts)),
        gauge("romancy_activities_max", "Attempts that may run in this process.", options.max_activities),
        gauge("romancy_activities_queued", "Attempts in this process that wait for a slot.", worker.limiter.queued),
        gauge("romancy_queue_depth", "Instances in the database that this process could claim.", depth),
        gauge("romancy_queue_oldest_seconds", "How long the first of them has been due.", _seconds(waiting)),
        gauge(
            "romancy_heartbeat_age_seconds",
            "Since the last heartbeat.",
            _seconds(None if heartbeat_at is None else now - heartbeat_at),
        ),
    ]


def _seconds(micros: int | None) -> float | None:
    return None if micros is None else max(micros, 0) / MICROS

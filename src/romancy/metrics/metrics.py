"""The counters and histograms of a process. The engine adds to them where things happen; `/metrics` reads them.

    an activity ends ──► metrics.activities["charge"] ──► ended["ok"] + 1, micros.add(1200)
    GET /metrics ──────► metrics.collect() ──► every metric with its values

Adding costs a fraction of a microsecond: it takes no lock (only the event loop adds, and the heartbeat thread to a counter
of its own) and makes no objects. Names of workflows and activities come from user code, so their number is limited: names
beyond the limit are counted under `other`.
"""

from __future__ import annotations

import platform
from bisect import bisect_left
from collections.abc import Callable, Mapping
from functools import cache
from importlib import metadata
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from romancy.model.history import Kind

MOST_WORKFLOWS = 100
MOST_ACTIVITIES = 500
OTHER = "other"
"""The label for all names beyond the limits above."""
_LONGEST = 200
"""Characters of a name that a label shows."""
_MICROS = 1_000_000

_WORKFLOWS = (0.01, 0.05, 0.25, 1, 5, 30, 120, 600, 3600, 21600, 86400, 604800, 2592000)
_ACTIVITIES = (0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300, 1800, 3600)
_LAGS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_COMMITS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_BATCHES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

T = TypeVar("T")


class Histogram:
    """Counts values by size, and sums them up. Times are added in microseconds and shown in seconds."""

    __slots__ = ("_bounds", "counts", "edges", "total", "unit")

    def __init__(self, edges: tuple[float, ...], unit: int = _MICROS) -> None:
        self.edges = edges
        self.unit = unit
        self.counts = [0] * (len(edges) + 1)
        """The number of values between two edges; the last item counts those above all edges."""
        self.total = 0
        self._bounds = [round(edge * unit) for edge in edges]

    def add(self, value: int) -> None:
        """Count a value. A negative one (the clock was set back) counts as zero: sums must not shrink."""
        if value < 0:
            value = 0
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)


Value: TypeAlias = int | float | Histogram
MetricKind: TypeAlias = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """One metric with its current values, one for each combination of labels."""

    name: str
    kind: MetricKind
    meaning: str
    labels: tuple[str, ...] = ()
    values: tuple[tuple[tuple[str, ...], Value], ...] = ()

    @property
    def value(self) -> float:
        """The sum of all values; for histograms, of their counts."""
        return sum(value.count if isinstance(value, Histogram) else value for _, value in self.values)


Values: TypeAlias = Value | Mapping[str, int] | Mapping[str, Value] | Mapping[tuple[str, ...], Value] | None
"""One value, or one for each label; None if it is not known now."""


def counter(name: str, meaning: str, values: Values, *labels: str) -> Metric:
    """A metric that only grows."""
    return Metric(name, "counter", meaning, labels, _labelled_values(values))


def gauge(name: str, meaning: str, values: Values, *labels: str) -> Metric:
    """A metric that goes up and down."""
    return Metric(name, "gauge", meaning, labels, _labelled_values(values))


def histogram(name: str, meaning: str, values: Values, *labels: str) -> Metric:
    """A metric that counts values by size."""
    return Metric(name, "histogram", meaning, labels, _labelled_values(values))


def _labelled_values(values: Values) -> tuple[tuple[tuple[str, ...], Value], ...]:
    if values is None:
        return ()
    if isinstance(values, Mapping):
        return tuple((label if isinstance(label, tuple) else (label,), value) for label, value in values.items())
    return (((), values),)


def build_info(database: str) -> Metric:
    """The versions of romancy and Python and the kind of database, as labels."""
    what: dict[tuple[str, ...], Value] = {(_version(), platform.python_version(), database): 1}
    return gauge("romancy_build_info", "Always 1: the versions that run here.", what, "version", "python", "database")


@cache
def _version() -> str:
    try:
        return metadata.version("romancy")
    except metadata.PackageNotFoundError:  # not installed, run from its sources
        return "unknown"


class BoundedDict(dict[str, T]):
    """The metrics of each name, up to a number of names; the rest share those of `other`."""

    def __init__(self, make: Callable[[], T], most: int) -> None:
        super().__init__()
        self._make = make
        self._most = most

    def __missing__(self, name: str) -> T:
        label = _as_label(name)
        if label not in self and (len(self) - (OTHER in self) >= self._most):
            label = OTHER
        return self.setdefault(label, self._make()) if label not in self else self[label]


def _as_label(name: str) -> str:
    """A name as a label: cut to a length, without control characters and lone surrogates."""
    cut = name[:_LONGEST].encode("utf-8", "replace").decode()
    return "".join(one if one.isprintable() or one == "\n" or ord(one) > 0x9F else "�" for one in cut)


class WorkflowMetrics:
    """The metrics of one workflow."""

    __slots__ = ("blocked", "ended", "micros", "recurred", "started")

    def __init__(self) -> None:
        self.started = 0
        self.recurred = 0
        self.blocked = 0
        self.ended = {"completed": 0, "failed": 0, "cancelled": 0}
        self.micros = Histogram(_WORKFLOWS)

    def end(self, status: str, micros: int) -> None:
        """Count the end of an instance, `micros` after its creation."""
        self.ended[status] += 1
        self.micros.add(micros)


class ActivityMetrics:
    """The metrics of one activity."""

    __slots__ = ("ended", "micros", "retries")

    def __init__(self) -> None:
        self.ended = {"ok": 0, "error": 0, "cancelled": 0}
        self.retries = 0
        self.micros = Histogram(_ACTIVITIES)


class BrokerMetrics:
    """The metrics of one broker."""

    __slots__ = ("dead", "delivered", "failed", "micros", "oldest_at", "waiting")

    def __init__(self) -> None:
        self.delivered = 0
        self.failed = 0
        self.waiting = 0
        """Outbox rows that are not delivered yet, as last counted."""
        self.dead = 0
        self.oldest_at: int | None = None
        """When the oldest of them was enqueued."""
        self.micros = Histogram(_LAGS)


class Metrics:
    """All metrics of an app, counted since the app was made."""

    def __init__(self) -> None:
        self.workflows = BoundedDict(WorkflowMetrics, MOST_WORKFLOWS)
        self.activities = BoundedDict(ActivityMetrics, MOST_ACTIVITIES)
        self.brokers: dict[str, BrokerMetrics] = {}
        self.requests: dict[str, int] = dict.fromkeys(("cancel", "pause", "resume", "terminate", "retry"), 0)
        self.errors: dict[str, int] = dict.fromkeys(
            ("commit", "poll", "load", "inbox", "heartbeat", "maintenance", "outbox"), 0
        )
        self.commit_retries = 0
        self.commits = Histogram(_COMMITS)
        self.batches = Histogram(_BATCHES, 1)
        self.lags = {"timer": Histogram(_LAGS), "poll": Histogram(_LAGS)}
        self.instances_lost = 0
        self.instances_set_aside = 0
        self.warm_hits = 0
        self.replays = Histogram(_COMMITS)
        self.loop_lag = Histogram(_LAGS)
        self.events_accepted = 0
        self.events_duplicate = 0
        self.events_sent = 0
        self.events_received = 0
        self.messages_sent = 0
        self.messages_received = 0

    def count_reply(self, kind: Kind) -> None:
        """Count a store call that was answered: a workflow has received something, or sent a message."""
        if kind is Kind.EVENT:
            self.events_received += 1
        elif kind is Kind.MESSAGE:
            self.messages_received += 1
        elif kind is Kind.SEND_TO:
            self.messages_sent += 1

    def collect(self, now: int) -> list[Metric]:
        """Return all metrics with their values; `now` is the engine's time, for ages."""
        return [
            *self._collect_workflows(),
            *self._collect_activities(),
            *self._collect_messaging(),
            *self._collect_engine(),
            *self._collect_brokers(now),
        ]

    def _collect_workflows(self) -> list[Metric]:
        of, by = self.workflows, "workflow"
        ended: dict[tuple[str, ...], Value] = {(name, how): n for name, one in of.items() for how, n in one.ended.items()}
        return [
            counter(
                "romancy_workflows_started_total", "Instances that began to run here.", _values_by_name(of, "started"), by
            ),
            counter("romancy_workflows_ended_total", "Instances that ended here.", ended, by, "status"),
            histogram("romancy_workflow_seconds", "From creation to an end here.", _values_by_name(of, "micros"), by),
            counter(
                "romancy_workflows_recurred_total", "Generations that recurred here.", _values_by_name(of, "recurred"), by
            ),
            counter(
                "romancy_workflows_blocked_total",
                "Instances that did not match the code.",
                _values_by_name(of, "blocked"),
                by,
            ),
        ]

    def _collect_activities(self) -> list[Metric]:
        of, by = self.activities, "activity"
        ended: dict[tuple[str, ...], Value] = {(name, how): n for name, one in of.items() for how, n in one.ended.items()}
        return [
            counter("romancy_activities_ended_total", "Activities that ended here.", ended, by, "outcome"),
            histogram("romancy_activity_seconds", "How long attempts took here.", _values_by_name(of, "micros"), by),
            counter("romancy_activity_retries_total", "Attempts that are retried.", _values_by_name(of, "retries"), by),
        ]

    def _collect_messaging(self) -> list[Metric]:
        return [
            counter("romancy_events_accepted_total", "New events that came in here.", self.events_accepted),
            counter("romancy_events_duplicate_total", "Known events that came in here again.", self.events_duplicate),
            counter("romancy_events_sent_total", "Events that workflows and activities sent here.", self.events_sent),
            counter("romancy_events_received_total", "Events that workflows received here.", self.events_received),
            counter("romancy_messages_sent_total", "Messages that were sent here.", self.messages_sent),
            counter("romancy_messages_received_total", "Messages that workflows received here.", self.messages_received),
            counter("romancy_requests_total", "Requests to instances through this process.", self.requests, "kind"),
        ]

    def _collect_engine(self) -> list[Metric]:
        return [
            histogram("romancy_claim_lag_seconds", "From the time instances were due to their claim.", self.lags, "by"),
            counter(
                "romancy_instances_lost_total", "Instances that were taken from dead workers here.", self.instances_lost
            ),
            counter(
                "romancy_instances_set_aside_total",
                "Instances that were paused here because they had lost too many workers.",
                self.instances_set_aside,
            ),
            counter("romancy_warm_hits_total", "Waiting instances that continued from memory.", self.warm_hits),
            counter("romancy_replays_total", "Instances that were replayed from their history.", self.replays.count),
            histogram("romancy_replay_seconds", "How long replays took.", self.replays),
            counter("romancy_commits_total", "Transactions that wrote transitions or calls.", self.commits.count),
            counter("romancy_writes_total", "Transitions and calls that were written.", self.batches.total),
            histogram("romancy_commit_seconds", "How long these transactions took.", self.commits),
            histogram("romancy_commit_writes", "Transitions and calls in one transaction.", self.batches),
            counter("romancy_commit_retries_total", "Transactions that failed and are retried.", self.commit_retries),
            counter("romancy_store_errors_total", "Failures of the database by operation.", self.errors, "during"),
            histogram("romancy_loop_lag_seconds", "How long the event loop took to respond.", self.loop_lag),
        ]

    def _collect_brokers(self, now: int) -> list[Metric]:
        of, by = self.brokers, "broker"
        if not of:
            return []
        ages = {name: _age(one.oldest_at, now) for name, one in of.items()}
        return [
            gauge(
                "romancy_outbox_pending",
                "Events that the broker has not received, counted lately.",
                _values_by_name(of, "waiting"),
                by,
            ),
            gauge("romancy_outbox_dead", "Dead-lettered events, counted lately.", _values_by_name(of, "dead"), by),
            gauge("romancy_outbox_oldest_seconds", "Age of the oldest event that the broker has not received.", ages, by),
            counter(
                "romancy_outbox_delivered_total",
                "Events that were delivered from here.",
                _values_by_name(of, "delivered"),
                by,
            ),
            counter(
                "romancy_outbox_failed_total", "Attempts to deliver that failed here.", _values_by_name(of, "failed"), by
            ),
            histogram(
                "romancy_outbox_lag_seconds", "From sending to delivery from here.", _values_by_name(of, "micros"), by
            ),
        ]


def _values_by_name(of: Mapping[str, object], attribute: str) -> dict[str, Value]:
    return {name: getattr(one, attribute) for name, one in of.items()}


def _age(since: int | None, now: int) -> float:
    return 0 if since is None else max(now - since, 0) / _MICROS

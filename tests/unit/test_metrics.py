"""Metrics: counts, sizes and the number of names, and the text that a scraper reads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest
from tests.exposition_parser import parse

from romancy.errors import StoreError
from romancy.metrics.exposition import exposition
from romancy.metrics.metrics import (
    OTHER,
    ActivityMetrics,
    BoundedDict,
    Histogram,
    Metric,
    Metrics,
    counter,
    gauge,
    histogram,
)
from romancy.model.messaging import AcceptedEvent, Event, Message, Publish, SendEvent
from romancy.model.status import Status
from romancy.model.transition import Accepted, AcceptEvents, Applied, PostMessage, Transition, Write, WriteResult
from romancy.store.committer import Committer
from romancy.store.port import Store


def test_a_histogram_counts_what_is_up_to_each_edge() -> None:
    sizes = Histogram((1, 5), 1)
    for size in (0, 1, 2, 5, 6, 100):
        sizes.add(size)
    read = parse(exposition([histogram("sizes", "How large.", sizes)]))
    assert [read("sizes", "_bucket", le=edge) for edge in ("1", "5", "+Inf")] == [2, 4, 6]
    assert (read("sizes", "_count"), read("sizes", "_sum")) == (6, 114)


def test_times_are_added_in_microseconds_and_told_in_seconds() -> None:
    times = Histogram((0.25, 1))
    times.add(250_000)
    times.add(250_001)
    read = parse(exposition([histogram("times_seconds", "How long.", times)]))
    assert read("times_seconds", "_bucket", le="0.25") == 1
    assert read("times_seconds", "_sum") == 0.500001


def test_a_clock_that_was_set_back_does_not_make_a_sum_smaller() -> None:
    times = Histogram((1,))
    times.add(-5)
    assert (times.counts, times.total) == ([1, 0], 0)


HOSTILE = [
    'say "hi"',
    "back\\slash",
    "two\nlines",
    "\\n",
    "\\",
    '"',
    '{a="b"} 1\n# EOF',
    "tab\there",
    "null\0",
    "é",
    "‮rtl",
    "",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_stays_a_label(name: str) -> None:
    metrics = Metrics()
    metrics.workflows[name].started += 1
    metrics.activities[name].ended["ok"] += 1
    read = parse(exposition(metrics.collect(0)))
    shown = name.replace("\t", "�").replace("\0", "�")
    assert read("romancy_workflows_started_total", workflow=shown) == 1
    assert read("romancy_activities_ended_total", activity=shown, outcome="ok") == 1


def test_names_that_look_alike_when_shown_are_counted_together() -> None:
    metrics = Metrics()
    for name in ("x" * 200 + "1", "x" * 200 + "2", "beep\a", "beep\b", "half\ud800", "half?"):
        metrics.workflows[name].started += 1
    text = exposition(metrics.collect(0))
    text.encode()
    read = parse(text)
    assert [read("romancy_workflows_started_total", workflow=name) for name in ("x" * 200, "beep�", "half?")] == [2, 2, 2]


def test_help_is_one_line() -> None:
    (line, _, _) = exposition([gauge("g", "A \\ and\na line.", 1)]).splitlines()
    assert line == r"# HELP g A \\ and\na line."


def test_names_beyond_the_bound_are_counted_together() -> None:
    by_name = BoundedDict(ActivityMetrics, 3)
    for n in range(10):
        by_name[f"a-{n}"].retries += 1
        by_name["a-0"].retries += 1
    assert {name: one.retries for name, one in by_name.items()} == {"a-0": 11, "a-1": 1, "a-2": 1, OTHER: 7}


def test_a_workflow_may_have_the_name_other() -> None:
    by_name = BoundedDict(ActivityMetrics, 2)
    for name in (OTHER, "a", "b", "c"):
        by_name[name].retries += 1
    assert {name: one.retries for name, one in by_name.items()} == {OTHER: 2, "a": 1, "b": 1}


def test_there_is_a_bound_to_workflows_and_activities() -> None:
    metrics = Metrics()
    for n in range(1000):
        metrics.workflows[f"w-{n}"].started += 1
        metrics.activities[f"a-{n}"].ended["ok"] += 1
    read = parse(exposition(metrics.collect(0)))
    assert len(read["romancy_workflows_started_total"].samples) == 101
    assert len(read["romancy_activities_ended_total"].labels("activity")) == 501
    assert read("romancy_workflows_started_total", workflow="other") == 900


def test_the_values_of_a_metric_together() -> None:
    several = counter("several_total", "Some.", {"a": 1, "b": 2}, "name")
    times = Histogram((1,))
    times.add(1)
    assert several.value == 3
    assert Metric("h", "histogram", "Some.", (), (((), times),)).value == 1
    assert gauge("unknown", "Unknown.", None).values == ()


# --- the metrics of the committer


class ScriptedStore:
    """A store with planned answers."""

    concurrent_batches = 1
    call_timeout = 30.0

    def __init__(self, *answers: list[WriteResult] | StoreError) -> None:
        self._answers = list(answers)

    async def commit(self, batch: Sequence[Write]) -> list[WriteResult]:
        answer = self._answers.pop(0)
        if isinstance(answer, StoreError):
            raise answer
        return answer


class TransitionSource:
    """A source with one transition."""

    instance_id = "said"

    def __init__(self, *effects: Any) -> None:
        self._effects = effects
        self.answered = asyncio.Event()

    def take_transition(self) -> Transition:
        return Transition("i", 1, "w", 1, 1, Status.RUNNING, 0, True, 0, effects=self._effects)

    def on_answer(self, answer: object) -> None:
        self.answered.set()


def event() -> Event:
    return Event("e", "/test", "paid")


async def test_a_batch_is_counted_with_what_was_said() -> None:
    metrics = Metrics()
    new, known = (AcceptedEvent("e", "/test", duplicate, ()) for duplicate in (False, True))
    committer = Committer(cast(Store, ScriptedStore([Accepted((new, known)), Applied(), Applied()])), metrics)
    committer.start()
    message = Publish(Message("m", "news", b"1"))
    source = TransitionSource(SendEvent(event()), message, message)
    committer.enqueue(source)
    await asyncio.gather(committer.submit(AcceptEvents((event(), event()), 0)), committer.submit(PostMessage(message, 0)))
    await source.answered.wait()
    await committer.stop()
    assert (metrics.events_accepted, metrics.events_duplicate, metrics.events_sent, metrics.messages_sent) == (1, 1, 1, 3)
    assert (metrics.batches.total, metrics.batches.count, metrics.commits.count) == (3, 1, 1)


async def test_a_batch_that_fails_is_an_error_and_is_tried_again() -> None:
    metrics = Metrics()
    committer = Committer(cast(Store, ScriptedStore(StoreError("away"), [Applied()])), metrics)
    committer.start()
    source = TransitionSource(SendEvent(event()))
    committer.enqueue(source)
    await source.answered.wait()
    await committer.stop()
    assert (metrics.errors["commit"], metrics.commit_retries, metrics.commits.count, metrics.events_sent) == (1, 1, 1, 1)

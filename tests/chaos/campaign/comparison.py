"""Comparison of what clients know with what is in the database, as functions of plain data.

lost        it was acknowledged, but is not stored or had no effect
refused     it was refused, but is stored
doubled     it had its effect twice
disorder    it was received before something that had been acknowledged earlier
unasked     no client asked for it
wrong       it did not end as it must
broken      the database violates an invariant
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tests.chaos.campaign import campaign_workflows
from tests.chaos.campaign.client_log import CallKind, CallRecord, Line, call_records
from tests.chaos.campaign.clients import SOURCE
from tests.chaos.campaign.database_state import DatabaseState, Instance, Receipt

_ENDED = ("completed", "failed", "cancelled")


class Sort(StrEnum):
    """The sorts of faults."""

    LOST = "lost"
    REFUSED = "refused"
    DOUBLED = "doubled"
    DISORDER = "disorder"
    UNASKED = "unasked"
    WRONG = "wrong"
    BROKEN = "broken"


class Fault(NamedTuple):
    """A fault found by the comparison."""

    sort: Sort
    what: str

    def __str__(self) -> str:
        return f"{self.sort}: {self.what}"


@dataclass(frozen=True)
class CallRecords:
    """The calls of all clients."""

    all: dict[tuple[CallKind, str], CallRecord]

    def of(self, kind: CallKind, *about: str) -> Iterator[CallRecord]:
        """The calls of a kind, optionally about certain subjects."""
        return (one for one in self.all.values() if one.kind is kind and (not about or one.about in about))

    def get(self, kind: CallKind, id: str) -> CallRecord | None:
        """One call, if a client made it."""
        return self.all.get((kind, id))


def compare(lines: Iterable[Line], found: DatabaseState) -> list[Fault]:
    """All faults."""
    records = CallRecords(call_records(lines))
    return [
        *wrong_answers(records),
        *wrong_instances(records, found),
        *wrong_events(records, found),
        *wrong_payments(records, found),
        *wrong_parcels(records, found),
        *wrong_words(records, found),
        *wrong_publications(records, found),
        *wrong_letters(found),
        *wrong_reports(found),
        *wrong_rows(found),
        *wrong_compensations(found),
        *wrong_ticks(found),
        *wrong_order(records, found),
        *(Fault(Sort.BROKEN, what) for what in found.broken),
    ]


# --- answers to clients


def wrong_answers(records: CallRecords) -> Iterator[Fault]:
    """Valid requests are not refused for good, and invalid ones are not accepted."""
    for one in records.all.values():
        if one.about == "wrong":
            if one.done:
                yield Fault(Sort.WRONG, f"the invalid event {one.id} was accepted")
        elif one.refused is not None and not one.refused.startswith("503") and not _may_be_refused(one):
            yield Fault(Sort.WRONG, f"the {one.kind} {one.id} was refused: {one.refused}")


def _may_be_refused(one: CallRecord) -> bool:
    """An order may have ended before it is cancelled, or before its last word is repeated."""
    return one.kind is CallKind.CANCEL or (
        one.about == campaign_workflows.DESK and campaign_workflows.tag_of(one.id) == campaign_workflows.BYE
    )


# --- instances


def wrong_instances(records: CallRecords, found: DatabaseState) -> Iterator[Fault]:
    """Every acknowledged start has led to an instance with the right end, and every instance was started by a client."""
    for one in records.of(CallKind.START):
        instance = found.instances.get(one.id)
        if instance is None:
            if one.done:
                yield Fault(Sort.LOST, f"the start of {one.id} was acknowledged, but it is missing")
        elif one.cannot_be:
            yield Fault(Sort.REFUSED, f"the start of {one.id} was refused, but it exists")
        elif instance.status not in _ENDED:
            yield Fault(Sort.LOST, f"{one.id} has not ended: {instance.status}")
        elif instance.workflow == campaign_workflows.order.name:
            yield from _wrong_order(records, one, instance)
        elif instance.status != "completed":
            yield Fault(Sort.WRONG, f"{one.id} is {instance.status}")
    for id, instance in found.instances.items():
        if instance.workflow != campaign_workflows.PARCEL and records.get(CallKind.START, id) is None:
            yield Fault(Sort.UNASKED, f"no client has started {id}")


def _wrong_order(records: CallRecords, start: CallRecord, instance: Instance) -> Iterator[Fault]:
    by_itself = "failed" if start.about == campaign_workflows.FAILS else "completed"
    cancel = records.get(CallKind.CANCEL, start.id)
    if cancel is not None and cancel.done:
        if instance.status != "cancelled":
            yield Fault(Sort.LOST, f"the cancellation of {start.id} was acknowledged, but it is {instance.status}")
    elif cancel is not None and cancel.unknown:
        if instance.status not in ("cancelled", by_itself):
            yield Fault(Sort.WRONG, f"{start.id} is {instance.status}")
    elif cancel is not None and cancel.cannot_be and instance.status == "cancelled":
        yield Fault(Sort.REFUSED, f"the cancellation of {start.id} was refused, but it is cancelled")
    elif instance.status != by_itself:
        yield Fault(Sort.WRONG, f"{start.id} is {instance.status}, not {by_itself}")
    if instance.status == "completed":
        number = int(start.id.rpartition("-")[2])
        got = {name: value for name, value in instance.output.items() if name != "words"}
        if got != campaign_workflows.expected(number):
            yield Fault(Sort.WRONG, f"{start.id} has returned {instance.output}")


# --- events


def wrong_events(records: CallRecords, found: DatabaseState) -> Iterator[Fault]:
    """Acknowledged events are stored once, and refused events are not stored."""
    there = Counter(id for source, id in found.events if source == SOURCE)
    for one in records.of(CallKind.EVENT):
        times = there.pop(one.id, 0)
        if times > 1:
            yield Fault(Sort.DOUBLED, f"the event {one.id} is stored {times} times")
        elif one.done and not times:
            yield Fault(Sort.LOST, f"the event {one.id} was acknowledged, but it is missing")
        elif one.cannot_be and times:
            yield Fault(Sort.REFUSED, f"the event {one.id} was refused, but it exists")
    known = {SOURCE, campaign_workflows.SOURCE}
    for id in [*there, *(id for source, id in found.events if source not in known)]:
        yield Fault(Sort.UNASKED, f"no client has sent the event {id}")
    for (instance, id), times in Counter((one.instance, one.id) for one in found.consumed).items():
        if times > 1:
            yield Fault(Sort.DOUBLED, f"{instance} has consumed the event {id} {times} times")


def wrong_payments(records: CallRecords, found: DatabaseState) -> Iterator[Fault]:
    """Every order that was not cancelled was paid by its own event."""
    consumed = Counter(one.instance for one in found.consumed if one.about == campaign_workflows.PAID)
    paid = {(one.instance, one.id) for one in found.consumed if one.about == campaign_workflows.PAID}
    for instance, id in paid:
        if id.partition("#")[0] != f"paid-{instance}":
            yield Fault(Sort.WRONG, f"{instance} was paid by {id}")
    for one in records.of(CallKind.EVENT, campaign_workflows.PAID):
        target = one.id.partition("#")[0].removeprefix("paid-")
        if one.done and _has_run(found, target) and not consumed[target]:
            yield Fault(Sort.LOST, f"the event {one.id} was acknowledged, but {target} has not received it")
    for instance, times in consumed.items():
        if times > 1:
            yield Fault(Sort.DOUBLED, f"{instance} was paid {times} times")


def _has_run(found: DatabaseState, instance: str) -> bool:
    """Whether the instance ran to its end, so that it has received everything it waits for."""
    row = found.instances.get(instance)
    return row is not None and row.status in ("completed", "failed")


def wrong_parcels(records: CallRecords, found: DatabaseState) -> Iterator[Fault]:
    """Every acknowledged parcel event has started one instance."""
    made = Counter(one.output for one in found.instances.values() if one.workflow == campaign_workflows.PARCEL)
    sent: dict[str, bool] = defaultdict(bool)
    for one in records.of(CallKind.EVENT, campaign_workflows.PARCEL):
        sent[one.id.partition("#")[0]] |= one.done
    for number, times in made.items():
        if number is None:
            yield Fault(Sort.LOST, "a parcel has no output")
        elif times > 1:
            yield Fault(Sort.DOUBLED, f"{number} has started {times} instances")
        elif number not in sent:
            yield Fault(Sort.UNASKED, f"no client has sent {number}")
    for number, done in sent.items():
        if done and not made[number]:
            yield Fault(Sort.LOST, f"{number} was acknowledged, but has started no instance")


# --- messages


def wrong_words(records: CallRecords, found: DatabaseState) -> Iterator[Fault]:
    """Every word was received once by its order; after the last word, repetitions of it are not received."""
    received = Counter((one.instance, one.id) for one in found.messages if one.about == campaign_workflows.DESK)
    for one in records.of(CallKind.MESSAGE, campaign_workflows.DESK):
        target = one.id.partition(".")[0]
        times = received.pop((target, one.id), 0)
        must = _has_run(found, target) and campaign_workflows.tag_of(one.id) != campaign_workflows.BYE
        yield from _wrong_times(one, times, f"by {target}", must)
    for instance, id in received:
        yield Fault(Sort.UNASKED, f"{instance} has received {id}, which no client has sent to it")


def _wrong_times(one: CallRecord, times: int, by: str, must: bool) -> Iterator[Fault]:
    if times > 1:
        yield Fault(Sort.DOUBLED, f"the message {one.id} was received {times} times {by}")
    elif one.done and must and not times:
        yield Fault(Sort.LOST, f"the message {one.id} was acknowledged, but was not received {by}")
    elif one.cannot_be and times:
        yield Fault(Sort.REFUSED, f"the message {one.id} was refused, but was received {by}")


def wrong_publications(records: CallRecords, found: DatabaseState) -> Iterator[Fault]:
    """News were received once by every reader, letters once by one clerk."""
    readers = [id for id, one in found.instances.items() if one.workflow == campaign_workflows.reader.name]
    for reader in readers:
        received = Counter(one.id for one in found.messages if one.instance == reader)
        for one in records.of(CallKind.MESSAGE, campaign_workflows.NEWS):
            yield from _wrong_times(
                one, received.pop(one.id, 0), f"by {reader}", campaign_workflows.tag_of(one.id) != campaign_workflows.STOP
            )
        yield from (Fault(Sort.UNASKED, f"{reader} has received {id}, which no client has published") for id in received)
    received_by_clerks = Counter(one.id for one in found.messages if one.about == campaign_workflows.LETTERS)
    for one in records.of(CallKind.MESSAGE, campaign_workflows.LETTERS):
        yield from _wrong_times(
            one,
            received_by_clerks.pop(one.id, 0),
            "by a clerk",
            campaign_workflows.tag_of(one.id) != campaign_workflows.STOP,
        )
    for id in received_by_clerks:
        if not id.startswith("letter "):
            yield Fault(Sort.UNASKED, f"a clerk has received {id}, which no client has published")


def wrong_letters(found: DatabaseState) -> Iterator[Fault]:
    """Every completed order has published one letter, which one clerk has received."""
    received_by_clerks = Counter(
        one.id for one in found.messages if one.about == campaign_workflows.LETTERS and one.id.startswith("letter ")
    )
    for id, one in _orders(found):
        times = received_by_clerks.pop(f"letter {id}", 0)
        if times > 1:
            yield Fault(Sort.DOUBLED, f"the letter of {id} was received {times} times")
        elif one.status == "completed" and not times:
            yield Fault(Sort.LOST, f"no clerk has received the letter of {id}")
        elif one.status == "failed" and times:
            yield Fault(Sort.UNASKED, f"{id} has failed, but has published a letter")
    for letter in received_by_clerks:
        yield Fault(Sort.UNASKED, f"no order has published the {letter}")


def wrong_reports(found: DatabaseState) -> Iterator[Fault]:
    """Every completed order has sent one event, which each event counter has received."""
    sent = Counter(id for source, id in found.events if source == campaign_workflows.SOURCE)
    event_counters = [id for id, one in found.instances.items() if one.workflow == campaign_workflows.event_counter.name]
    counted = Counter((one.instance, one.id) for one in found.consumed if one.about == campaign_workflows.FINISHED)
    for id, one in _orders(found):
        report = f"finished-{id}"
        if one.status == "completed" and sent[report] != 1:
            yield Fault(Sort.LOST if not sent[report] else Sort.DOUBLED, f"{report} was sent {sent[report]} times")
        for event_counter in event_counters:
            if sent[report] and counted[event_counter, report] != 1:
                times = counted[event_counter, report]
                yield Fault(Sort.DOUBLED if times else Sort.LOST, f"{report} was counted {times} times by {event_counter}")


def _orders(found: DatabaseState) -> Iterator[tuple[str, Instance]]:
    return ((id, one) for id, one in found.instances.items() if one.workflow == campaign_workflows.order.name)


# --- rows written by activities


def wrong_rows(found: DatabaseState) -> Iterator[Fault]:
    """Every recorded activity has one row, and every row one record."""
    for key, times in Counter((row.name, row.key) for row in found.rows).items():
        if times > 1:
            yield Fault(Sort.DOUBLED, f"{key[0]} has written {times} rows under the key {key[1]}")
    for (name, tag), times in Counter((row.name, row.tag) for row in found.rows if row.name == "file").items():
        if times > 1:
            yield Fault(Sort.DOUBLED, f"{name} has written {times} rows for {tag}")
    written = Counter((row.instance, row.name) for row in found.rows)
    for key in sorted(written.keys() | found.recorded.keys()):
        if written[key] < found.recorded[key]:
            what = f"{key[0]} has recorded {found.recorded[key]} times {key[1]}"
            yield Fault(Sort.LOST, f"{what}, but has written {written[key]} rows for it")
        elif written[key] > found.recorded[key]:
            what = f"{key[0]} has recorded {found.recorded[key]} times {key[1]}"
            yield Fault(Sort.DOUBLED, f"{what}, but has written {written[key]} rows for it")


def wrong_compensations(found: DatabaseState) -> Iterator[Fault]:
    """Orders that failed or were cancelled have compensated their row, and completed orders have not."""
    rows = Counter((row.instance, row.name) for row in found.rows)
    for id, one in _orders(found):
        booked, compensated = rows[id, "book"], rows[id, "unbook"]
        if one.status == "completed" and (booked, compensated) != (1, 0):
            yield Fault(Sort.WRONG, f"{id} is completed, was booked {booked} times and compensated {compensated} times")
        elif one.status in ("failed", "cancelled") and compensated != booked:
            yield Fault(Sort.LOST, f"{id} is {one.status}, was booked {booked} times and compensated {compensated} times")


def wrong_ticks(found: DatabaseState) -> Iterator[Fault]:
    """A ticker has ticked once in each of its generations."""
    for id, one in found.instances.items():
        if one.workflow == campaign_workflows.ticker.name and one.status == "completed":
            ticks = Counter(row.tag for row in found.rows if row.instance == id)
            for number in range(1, one.output + 1):
                if (times := ticks.pop(f"tick {number}", 0)) != 1:
                    yield Fault(
                        Sort.DOUBLED if times else Sort.LOST, f"{id} has ticked {times} times in generation {number}"
                    )
            yield from (Fault(Sort.UNASKED, f"{id} has written {tag}") for tag in ticks)


# --- order of messages


def wrong_order(records: CallRecords, found: DatabaseState) -> Iterator[Fault]:
    """A message that was acknowledged before another was sent is received before it."""
    by_consumer: dict[tuple[str, str], list[Receipt]] = defaultdict(list)
    for one in found.messages:
        by_consumer[one.instance, one.about].append(one)
    for (instance, _), received in by_consumer.items():
        latest: CallRecord | None = None
        for one in received:
            record = records.get(CallKind.MESSAGE, one.id)
            if record is None:
                continue  # sent by a workflow
            if latest is not None and record.done_at is not None and record.done_at < latest.asked_at:
                yield Fault(Sort.DISORDER, f"{instance} has received {latest.id} before {one.id}")
            if latest is None or record.asked_at > latest.asked_at:
                latest = record

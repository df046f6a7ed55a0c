"""What clients were told, against what is in the database. Functions of plain data: nothing is read here.

lost        it was acknowledged, and is not there, or had no effect
refused     it was refused, and is there
doubled     it has had its effect twice
disorder    it came before something that had been acknowledged before it was sent
unasked     nobody had asked for it
wrong       it ended otherwise than it must
broken      no database may ever show this
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tests.chaos.campaign import campaign_workflows
from tests.chaos.campaign.client_log import Account, CallKind, Line, accounts
from tests.chaos.campaign.clients import SOURCE
from tests.chaos.campaign.database_state import Found, Heard, Instance

_ENDED = ("completed", "failed", "cancelled")


class Sort(StrEnum):
    """What sort of fault."""

    LOST = "lost"
    REFUSED = "refused"
    DOUBLED = "doubled"
    DISORDER = "disorder"
    UNASKED = "unasked"
    WRONG = "wrong"
    BROKEN = "broken"


class Fault(NamedTuple):
    """What is wrong."""

    sort: Sort
    what: str

    def __str__(self) -> str:
        return f"{self.sort}: {self.what}"


@dataclass(frozen=True)
class Books:
    """The clients' accounts, by what they are about."""

    all: dict[tuple[CallKind, str], Account]

    def of(self, kind: CallKind, *about: str) -> Iterator[Account]:
        """Those of one sort."""
        return (one for one in self.all.values() if one.kind is kind and (not about or one.about in about))

    def get(self, kind: CallKind, id: str) -> Account | None:
        """One of them, if it was asked for."""
        return self.all.get((kind, id))


def compare(lines: Iterable[Line], found: Found) -> list[Fault]:
    """Everything that is wrong."""
    books = Books(accounts(lines))
    return [
        *wrong_answers(books),
        *wrong_instances(books, found),
        *wrong_events(books, found),
        *wrong_payments(books, found),
        *wrong_parcels(books, found),
        *wrong_words(books, found),
        *wrong_publications(books, found),
        *wrong_letters(found),
        *wrong_reports(found),
        *wrong_rows(found),
        *wrong_undoing(found),
        *wrong_ticks(found),
        *wrong_order(books, found),
        *(Fault(Sort.BROKEN, what) for what in found.broken),
    ]


# --- what clients were answered


def wrong_answers(books: Books) -> Iterator[Fault]:
    """What is right and possible is not refused for good, and what is wrong is not taken."""
    for one in books.all.values():
        if one.about == "wrong":
            if one.done:
                yield Fault(Sort.WRONG, f"the event {one.id} was taken")
        elif one.refused is not None and not one.refused.startswith("503") and not _may_be_refused(one):
            yield Fault(Sort.WRONG, f"the {one.kind} {one.id} was refused: {one.refused}")


def _may_be_refused(one: Account) -> bool:
    """An order may have ended before it is cancelled, or before its last word is said again."""
    return one.kind is CallKind.CANCEL or (
        one.about == campaign_workflows.DESK and campaign_workflows.tag_of(one.id) == campaign_workflows.BYE
    )


# --- instances


def wrong_instances(books: Books, found: Found) -> Iterator[Fault]:
    """Every start that was acknowledged has come to the end that it must have; none was made by nobody."""
    for one in books.of(CallKind.START):
        instance = found.instances.get(one.id)
        if instance is None:
            if one.done:
                yield Fault(Sort.LOST, f"the start of {one.id} was acknowledged, and it is not there")
        elif one.cannot_be:
            yield Fault(Sort.REFUSED, f"the start of {one.id} was refused, and it is there")
        elif instance.status not in _ENDED:
            yield Fault(Sort.LOST, f"{one.id} has not ended: {instance.status}")
        elif instance.workflow == campaign_workflows.order.name:
            yield from _wrong_order(books, one, instance)
        elif instance.status != "completed":
            yield Fault(Sort.WRONG, f"{one.id} is {instance.status}")
    for id, instance in found.instances.items():
        if instance.workflow != campaign_workflows.PARCEL and books.get(CallKind.START, id) is None:
            yield Fault(Sort.UNASKED, f"nobody has started {id}")


def _wrong_order(books: Books, start: Account, instance: Instance) -> Iterator[Fault]:
    by_itself = "failed" if start.about == campaign_workflows.FAILS else "completed"
    cancel = books.get(CallKind.CANCEL, start.id)
    if cancel is not None and cancel.done:
        if instance.status != "cancelled":
            yield Fault(Sort.LOST, f"the cancellation of {start.id} was acknowledged, and it is {instance.status}")
    elif cancel is not None and cancel.unknown:
        if instance.status not in ("cancelled", by_itself):
            yield Fault(Sort.WRONG, f"{start.id} is {instance.status}")
    elif cancel is not None and cancel.cannot_be and instance.status == "cancelled":
        yield Fault(Sort.REFUSED, f"the cancellation of {start.id} was refused, and it is cancelled")
    elif instance.status != by_itself:
        yield Fault(Sort.WRONG, f"{start.id} is {instance.status}, not {by_itself}")
    if instance.status == "completed":
        number = int(start.id.rpartition("-")[2])
        got = {name: value for name, value in instance.output.items() if name != "words"}
        if got != campaign_workflows.expected(number):
            yield Fault(Sort.WRONG, f"{start.id} has returned {instance.output}")


# --- events


def wrong_events(books: Books, found: Found) -> Iterator[Fault]:
    """What was acknowledged is in the log once; what was refused is not."""
    there = Counter(id for source, id in found.events if source == SOURCE)
    for one in books.of(CallKind.EVENT):
        times = there.pop(one.id, 0)
        if times > 1:
            yield Fault(Sort.DOUBLED, f"the event {one.id} is there {times} times")
        elif one.done and not times:
            yield Fault(Sort.LOST, f"the event {one.id} was acknowledged, and it is not there")
        elif one.cannot_be and times:
            yield Fault(Sort.REFUSED, f"the event {one.id} was refused, and it is there")
    known = {SOURCE, campaign_workflows.SOURCE}
    for id in [*there, *(id for source, id in found.events if source not in known)]:
        yield Fault(Sort.UNASKED, f"nobody has sent the event {id}")
    for (instance, id), times in Counter((one.instance, one.id) for one in found.consumed).items():
        if times > 1:
            yield Fault(Sort.DOUBLED, f"{instance} has consumed the event {id} {times} times")


def wrong_payments(books: Books, found: Found) -> Iterator[Fault]:
    """Every order that has ended by itself was paid by its own event."""
    consumed = Counter(one.instance for one in found.consumed if one.about == campaign_workflows.PAID)
    paid = {(one.instance, one.id) for one in found.consumed if one.about == campaign_workflows.PAID}
    for instance, id in paid:
        if id.partition("#")[0] != f"paid-{instance}":
            yield Fault(Sort.WRONG, f"{instance} was paid by {id}")
    for one in books.of(CallKind.EVENT, campaign_workflows.PAID):
        target = one.id.partition("#")[0].removeprefix("paid-")
        if one.done and _has_run(found, target) and not consumed[target]:
            yield Fault(Sort.LOST, f"the event {one.id} was acknowledged, and {target} has not got it")
    for instance, times in consumed.items():
        if times > 1:
            yield Fault(Sort.DOUBLED, f"{instance} was paid {times} times")


def _has_run(found: Found, instance: str) -> bool:
    """To its end: it has waited for everything that it waits for."""
    row = found.instances.get(instance)
    return row is not None and row.status in ("completed", "failed")


def wrong_parcels(books: Books, found: Found) -> Iterator[Fault]:
    """An event that was acknowledged has started one instance."""
    made = Counter(one.output for one in found.instances.values() if one.workflow == campaign_workflows.PARCEL)
    sent: dict[str, bool] = defaultdict(bool)
    for one in books.of(CallKind.EVENT, campaign_workflows.PARCEL):
        sent[one.id.partition("#")[0]] |= one.done
    for number, times in made.items():
        if number is None:
            yield Fault(Sort.LOST, "a parcel has not been unpacked")
        elif times > 1:
            yield Fault(Sort.DOUBLED, f"{number} has started {times} instances")
        elif number not in sent:
            yield Fault(Sort.UNASKED, f"nobody has sent {number}")
    for number, done in sent.items():
        if done and not made[number]:
            yield Fault(Sort.LOST, f"{number} was acknowledged, and has started nothing")


# --- messages


def wrong_words(books: Books, found: Found) -> Iterator[Fault]:
    """Every word to an order was heard by it, once; the last one ends the hearing, so its other tries are not."""
    heard = Counter((one.instance, one.id) for one in found.messages if one.about == campaign_workflows.DESK)
    for one in books.of(CallKind.MESSAGE, campaign_workflows.DESK):
        target = one.id.partition(".")[0]
        times = heard.pop((target, one.id), 0)
        must = _has_run(found, target) and campaign_workflows.tag_of(one.id) != campaign_workflows.BYE
        yield from _wrong_times(one, times, f"by {target}", must)
    for instance, id in heard:
        yield Fault(Sort.UNASKED, f"{instance} has heard {id}, which nobody has said to it")


def _wrong_times(one: Account, times: int, by: str, must: bool) -> Iterator[Fault]:
    if times > 1:
        yield Fault(Sort.DOUBLED, f"the message {one.id} was received {times} times {by}")
    elif one.done and must and not times:
        yield Fault(Sort.LOST, f"the message {one.id} was acknowledged, and was not received {by}")
    elif one.cannot_be and times:
        yield Fault(Sort.REFUSED, f"the message {one.id} was refused, and was received {by}")


def wrong_publications(books: Books, found: Found) -> Iterator[Fault]:
    """What clients publish: news are received by every reader once, letters by one clerk."""
    readers = [id for id, one in found.instances.items() if one.workflow == campaign_workflows.reader.name]
    for reader in readers:
        heard = Counter(one.id for one in found.messages if one.instance == reader)
        for one in books.of(CallKind.MESSAGE, campaign_workflows.NEWS):
            yield from _wrong_times(
                one, heard.pop(one.id, 0), f"by {reader}", campaign_workflows.tag_of(one.id) != campaign_workflows.STOP
            )
        yield from (Fault(Sort.UNASKED, f"{reader} has heard {id}, which nobody has told") for id in heard)
    taken = Counter(one.id for one in found.messages if one.about == campaign_workflows.LETTERS)
    for one in books.of(CallKind.MESSAGE, campaign_workflows.LETTERS):
        yield from _wrong_times(
            one, taken.pop(one.id, 0), "by a clerk", campaign_workflows.tag_of(one.id) != campaign_workflows.STOP
        )
    for id in taken:
        if not id.startswith("letter "):
            yield Fault(Sort.UNASKED, f"a clerk has taken {id}, which nobody has published")


def wrong_letters(found: Found) -> Iterator[Fault]:
    """What orders publish: each has written one letter, if it has come so far, and one clerk has taken it."""
    taken = Counter(
        one.id for one in found.messages if one.about == campaign_workflows.LETTERS and one.id.startswith("letter ")
    )
    for id, one in _orders(found):
        times = taken.pop(f"letter {id}", 0)
        if times > 1:
            yield Fault(Sort.DOUBLED, f"the letter of {id} was taken {times} times")
        elif one.status == "completed" and not times:
            yield Fault(Sort.LOST, f"the letter of {id} was taken by nobody")
        elif one.status == "failed" and times:
            yield Fault(Sort.UNASKED, f"{id} has failed, and has written a letter")
    for letter in taken:
        yield Fault(Sort.UNASKED, f"nobody has written the {letter}")


def wrong_reports(found: Found) -> Iterator[Fault]:
    """The events that orders send: one of each that has come so far, and each teller has counted it."""
    sent = Counter(id for source, id in found.events if source == campaign_workflows.SOURCE)
    tellers = [id for id, one in found.instances.items() if one.workflow == campaign_workflows.teller.name]
    counted = Counter((one.instance, one.id) for one in found.consumed if one.about == campaign_workflows.FINISHED)
    for id, one in _orders(found):
        report = f"finished-{id}"
        if one.status == "completed" and sent[report] != 1:
            yield Fault(Sort.LOST if not sent[report] else Sort.DOUBLED, f"{report} was sent {sent[report]} times")
        for teller in tellers:
            if sent[report] and counted[teller, report] != 1:
                times = counted[teller, report]
                yield Fault(Sort.DOUBLED if times else Sort.LOST, f"{report} was counted {times} times by {teller}")


def _orders(found: Found) -> Iterator[tuple[str, Instance]]:
    return ((id, one) for id, one in found.instances.items() if one.workflow == campaign_workflows.order.name)


# --- what activities wrote


def wrong_rows(found: Found) -> Iterator[Fault]:
    """A row for each record, a record for each row, and none twice."""
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
            yield Fault(Sort.LOST, f"{what}, and there are {written[key]} rows of it")
        elif written[key] > found.recorded[key]:
            what = f"{key[0]} has recorded {found.recorded[key]} times {key[1]}"
            yield Fault(Sort.DOUBLED, f"{what}, and there are {written[key]} rows of it")


def wrong_undoing(found: Found) -> Iterator[Fault]:
    """What has failed or was cancelled has taken back its booking; what is complete has not."""
    rows = Counter((row.instance, row.name) for row in found.rows)
    for id, one in _orders(found):
        booked, undone = rows[id, "book"], rows[id, "unbook"]
        if one.status == "completed" and (booked, undone) != (1, 0):
            yield Fault(Sort.WRONG, f"{id} is complete, was booked {booked} times and taken back {undone} times")
        elif one.status in ("failed", "cancelled") and undone != booked:
            yield Fault(Sort.LOST, f"{id} is {one.status}, was booked {booked} times and taken back {undone} times")


def wrong_ticks(found: Found) -> Iterator[Fault]:
    """A ticker has ticked once in each generation, and in none that is not its own."""
    for id, one in found.instances.items():
        if one.workflow == campaign_workflows.ticker.name and one.status == "completed":
            ticks = Counter(row.tag for row in found.rows if row.instance == id)
            for number in range(1, one.output + 1):
                if (times := ticks.pop(f"tick {number}", 0)) != 1:
                    yield Fault(Sort.DOUBLED if times else Sort.LOST, f"{id} has ticked {times} times in round {number}")
            yield from (Fault(Sort.UNASKED, f"{id} has written {tag}") for tag in ticks)


# --- in which order


def wrong_order(books: Books, found: Found) -> Iterator[Fault]:
    """What was acknowledged before another was sent is received before it, by whoever receives both."""
    by_consumer: dict[tuple[str, str], list[Heard]] = defaultdict(list)
    for one in found.messages:
        by_consumer[one.instance, one.about].append(one)
    for (instance, _), heard in by_consumer.items():
        latest: Account | None = None
        for one in heard:
            account = books.get(CallKind.MESSAGE, one.id)
            if account is None:
                continue  # of a workflow
            if latest is not None and account.done_at is not None and account.done_at < latest.asked_at:
                yield Fault(Sort.DISORDER, f"{instance} has received {latest.id} before {one.id}")
            if latest is None or account.asked_at > latest.asked_at:
                latest = account

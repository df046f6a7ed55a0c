"""Applies a batch of writes within one transaction: groups them, and decides each on the state before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from romancy.errors import RefusedDataError
from romancy.model.transition import (
    AcceptEvents,
    Applied,
    AttemptUpdate,
    ControlRequest,
    CreateInstance,
    InstanceWrite,
    PostMessage,
    Transition,
    Write,
    WriteResult,
)
from romancy.store.sql.bulk import accept_bulk, is_plain_accept, is_plain_wait, resolve_waits
from romancy.store.sql.cursor import Cursor
from romancy.store.sql.requests import apply_request
from romancy.store.sql.transitions import accept, apply_transition, create, has_messaging, is_plain_end, post, update_attempt
from romancy.store.sql.unit_of_work import UnitOfWork


def apply_serialized(cursor: Cursor, batch: Sequence[Write]) -> list[WriteResult]:
    """Apply a batch in a serialized transaction: first the writes that concern one instance each, then the others.

    Of the others, plain events, waits for events and ends are applied in bulk, the rest one by one, in order. Writes of
    different instances may be reordered: no caller has the result of any of them yet. Waits for events come after the
    events, so that they find those of the same batch at once. Ends come last, when every wait of the batch is registered:
    they wake other instances for the messages that the ended ones were woken for.
    """
    together = _independent_writes(batch)
    answers = dict(zip(together, _apply_layers(cursor, list(together.values())), strict=True))
    rest = {index: write for index, write in enumerate(batch) if index not in answers}
    groups = _group_writes(cursor, rest)
    answers |= accept_bulk(cursor, groups.accepts)
    singles = groups.singles | {index: write for index, write in groups.accepts.items() if index not in answers}
    for index in sorted(singles):
        answers[index] = _apply_one(cursor, singles[index])
    answers |= resolve_waits(cursor, groups.event_waits)
    answers |= zip(groups.ends, _apply_layers(cursor, list(groups.ends.values())), strict=True)
    return [answers[index] for index in range(len(batch))]


@dataclass(slots=True)
class _Groups:
    accepts: dict[int, AcceptEvents] = field(default_factory=dict[int, AcceptEvents])
    event_waits: dict[int, Transition] = field(default_factory=dict[int, Transition])
    ends: dict[int, Transition] = field(default_factory=dict[int, Transition])
    singles: dict[int, Write] = field(default_factory=dict[int, Write])


def _group_writes(cursor: Cursor, writes: Mapping[int, Write]) -> _Groups:
    groups = _Groups()
    times = Counter(write.instance_id for write in writes.values() if not isinstance(write, AcceptEvents | PostMessage))
    for index, write in writes.items():
        if isinstance(write, AcceptEvents) and cursor.has_bulk_statements and is_plain_accept(write):
            groups.accepts[index] = write
        elif type(write) is not Transition or times[write.instance_id] > 1:
            groups.singles[index] = write
        elif is_plain_end(write):
            groups.ends[index] = write
        elif cursor.has_bulk_statements and is_plain_wait(write):
            groups.event_waits[index] = write
        else:
            groups.singles[index] = write
    return groups


def _independent_writes(batch: Sequence[Write]) -> dict[int, InstanceWrite]:
    """Return the writes that concern only their own instance and do not follow a write of it that concerns others.

    Such a later write must stay behind the earlier one, which is applied after all independent writes.
    """
    found: dict[int, InstanceWrite] = {}
    later: set[str] = set()
    for index, write in enumerate(batch):
        if isinstance(write, AcceptEvents | PostMessage):
            continue
        if write.instance_id in later or concerns_others(write):
            later.add(write.instance_id)
        else:
            found[index] = write
    return found


def concerns_others(write: Write) -> bool:
    """Whether the write may change other instances than its own."""
    return isinstance(write, ControlRequest | AcceptEvents | PostMessage) or (
        type(write) is Transition and has_messaging(write)
    )


def apply_row_locked(cursor: Cursor, batch: Sequence[Write]) -> dict[int, WriteResult]:
    """Apply the writes that concern one instance each, without waiting for a lock.

    A write whose instance does not exist or is locked by another transaction gets no result: the caller must apply it in a
    serialized transaction.
    """
    own = _independent_writes(batch)
    unit = UnitOfWork(cursor, {write.instance_id: None for write in own.values()}, read_statement="load_states_row_locked")
    free = {index: write for index, write in own.items() if write.instance_id in unit.states}
    indices = list(free)
    return dict(zip(indices, _decide_layers(unit, list(free.values())), strict=True))


def _apply_layers(cursor: Cursor, batch: Sequence[InstanceWrite]) -> list[WriteResult]:
    """Read the instances, decide the writes, and write the changes with few statements."""
    if not batch:
        return []
    return _decide_layers(UnitOfWork(cursor, {write.instance_id: None for write in batch}), batch)


def _decide_layers(unit: UnitOfWork, batch: Sequence[InstanceWrite]) -> list[WriteResult]:
    answers: dict[int, WriteResult] = {}
    for layer in layers(batch):
        for index in layer:
            answers[index] = _decide(unit, batch[index])
        if woken := unit.flush():
            _report_woken(answers, layer, woken)
    return [answers[index] for index in range(len(batch))]


def _report_woken(answers: dict[int, WriteResult], layer: Sequence[int], woken: Sequence[str]) -> None:
    """Add instances that were woken in place of ended ones to one of the results, so that the caller hears of them."""
    for index in layer:
        answer = answers[index]
        if isinstance(answer, Applied):
            answers[index] = answer._replace(woken=(*answer.woken, *woken))
            return


def _apply_one(cursor: Cursor, write: Write) -> WriteResult:
    match write:
        case AcceptEvents():
            return accept(cursor, write)
        case PostMessage():
            return post(cursor, write)
        case _:
            return _apply_layers(cursor, [write])[0]


def layers(batch: Sequence[InstanceWrite]) -> Iterator[list[int]]:
    """Split a batch into layers of indices: no layer has two writes of one instance, and their order is kept.

    Writes of different instances do not depend on each other, so a whole layer is decided before any of it is written.
    """
    rest = list(range(len(batch)))
    while rest:
        seen: set[str] = set()
        layer: list[int] = []
        later: list[int] = []
        for index in rest:
            instance_id = batch[index].instance_id
            (later if instance_id in seen else layer).append(index)
            seen.add(instance_id)
        yield layer
        rest = later


def _decide(unit: UnitOfWork, write: InstanceWrite) -> WriteResult:
    match write:
        case Transition():
            return apply_transition(unit, write)
        case CreateInstance():
            return create(unit, write)
        case ControlRequest():
            return apply_request(unit, write)
        case AttemptUpdate():
            return update_attempt(unit, write)


def refused_data_error(label: str, write: Write, why: str, cause: BaseException | None) -> RefusedDataError:
    """Return the error for a write whose data the database refuses."""
    error = RefusedDataError(f"The database {label} cannot store {_describe(write)}: {why}. Nothing of it was written.")
    error.__cause__ = cause
    return error


def _describe(write: Write) -> str:
    match write:
        case AcceptEvents():
            return "the events " + ", ".join(repr(event.id) for event in write.events)
        case PostMessage():
            return f"the message for channel {write.effect.message.channel!r}"
        case _:
            return f"the {type(write).__name__.lower()} of instance {write.instance_id!r}"

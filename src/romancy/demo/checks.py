"""Compares the requests to external services with the records of the database: nothing lost, nothing done twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from romancy.demo.external_services import ServiceRequest
from romancy.demo.records import InstanceRecord


@dataclass(frozen=True, slots=True)
class Check:
    """One guarantee. `fault` describes a violation; it is empty if there is none."""

    guarantee: str
    fault: str = ""


def check_all(survivor: InstanceRecord, refused: InstanceRecord, requests: Sequence[ServiceRequest]) -> list[Check]:
    """Return all checks of the demonstration."""
    return [
        *_endings(survivor, refused),
        _once(requests),
        _recorded([survivor, refused], requests),
        _check_repeated_requests(survivor, requests),
        _taken_over(survivor),
        _check_compensated(refused),
    ]


def _endings(survivor: InstanceRecord, refused: InstanceRecord) -> Iterator[Check]:
    for record, expected in ((survivor, "completed"), (refused, "failed")):
        status = record.instance.status
        yield Check(
            f"{record.instance.instance_id} has {expected}",
            "" if status == expected else f"it is {status}: {record.instance.error}",
        )


def _once(requests: Iterable[ServiceRequest]) -> Check:
    counts = Counter(line.key for line in requests if line.outcome == "applied")
    twice = [f"{key} took effect {count} times" for key, count in counts.items() if count > 1]
    return Check("every effect on external services happened once", "; ".join(twice))


def _recorded(records: Iterable[InstanceRecord], requests: Iterable[ServiceRequest]) -> Check:
    """Check that every recorded activity has had its effect, and that every effect is recorded."""
    done = {
        (record.instance.instance_id, entry.activity_id)
        for record in records
        for entry in record.history
        if entry.kind in ("activity", "compensation") and entry.outcome == "ok"
    }
    effects = {(line.order, line.activity_id) for line in requests if line.outcome == "applied"}
    faults = [f"{order} {name} is recorded and had no effect" for order, name in sorted(done - effects)]
    faults += [f"{order} {name} had an effect and is not recorded" for order, name in sorted(effects - done)]
    return Check("the database and the external services agree on what was done", "; ".join(faults))


def _check_repeated_requests(survivor: InstanceRecord, log: Iterable[ServiceRequest]) -> Check:
    """Check that only the request that ran at the kill was sent twice, with one key, by two workers."""
    requests: dict[tuple[str, str], list[ServiceRequest]] = {}
    for line in log:
        requests.setdefault((line.order, line.activity_id), []).append(line)
    killed = (survivor.instance.instance_id, survivor.kill.attempt.op if survivor.kill is not None else "")
    faults = [
        f"{order} {name} has a request count of {len(lines)}, which is unexpected"
        for (order, name), lines in requests.items()
        if len(lines) != (2 if (order, name) == killed else 1)
    ]
    again = requests.get(killed, [])
    if len({line.key for line in again}) > 1:
        faults.append(f"{killed[1]} was requested with different keys")
    if len(again) == 2 and len({line.worker for line in again}) == 1:
        faults.append(f"{killed[1]} was requested twice by one worker")
    return Check("only the interrupted request was sent again, with the same key", "; ".join(faults))


def _taken_over(survivor: InstanceRecord) -> Check:
    claims = [line.worker for line in survivor.journal if line.note.kind == "claimed"]
    good = survivor.kill is not None and len(claims) == 2 and claims[0] == survivor.kill.attempt.worker != claims[1]
    return Check("the order changed its owner once, at the kill", "" if good else f"it was claimed by {', '.join(claims)}")


def _check_compensated(refused: InstanceRecord) -> Check:
    done = [entry.activity_id for entry in refused.history if entry.kind == "activity" and entry.outcome == "ok"]
    compensated = [entry.activity_id for entry in refused.history if entry.kind == "compensation" and entry.outcome == "ok"]
    expected = [f"compensate:{name}" for name in reversed(done)]
    good = compensated == expected and len(compensated) > 1
    return Check("the refused order was compensated, the last step first", "" if good else f"{compensated}, not {expected}")

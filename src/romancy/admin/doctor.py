"""What can be checked about a database and its workers, and what to do about what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from romancy.admin.explain import format_span
from romancy.admin.records import Count, Finding
from romancy.auth import OpenAccess, Visitors
from romancy.clock import MICROS
from romancy.model.admin import ConcurrencyStall, InstanceCounts, Vitals
from romancy.model.instance import WorkerRow
from romancy.model.status import Status

_SLOW = 50_000
"""Microseconds of a look at the database that are notable."""
_SKEW = MICROS // 2
_OUTBOX_LAG = 60 * MICROS


@dataclass(frozen=True, slots=True)
class DoctorFacts:
    """What was looked at."""

    now: int
    lease: int
    vitals: Vitals
    migrations: Sequence[tuple[str, bool]]
    workers: Sequence[WorkerRow]
    counts: InstanceCounts
    unclaimed_kinds: Sequence[tuple[str, str]]
    """Workflows and versions that unowned instances wait for."""
    outbox_since: int | None
    options: Mapping[str, Any]
    visitors: Visitors | None
    """What is known of callers on other machines, in a process that serves HTTP."""
    count_limit: int
    """How far was counted."""
    concurrency_stall: ConcurrencyStall | None = None
    """Of the worker in this process, if every slot for activities is held."""


def run_checks(seen: DoctorFacts) -> list[Finding]:
    """Every check, and what it says."""
    return [
        *_check_database(seen),
        *_check_schema(seen),
        *_check_clock(seen),
        *_check_notifications(seen),
        *_check_workers(seen),
        *_check_slots(seen),
        *_check_claims(seen),
        *_check_overdue(seen),
        *_check_outbox(seen),
        *_check_retention(seen),
        *_check_access(seen),
    ]


def _check_database(seen: DoctorFacts) -> Iterator[Finding]:
    took = f"{seen.vitals.latency / 1000:.1f} ms"
    if seen.vitals.latency > _SLOW:
        yield Finding(
            "database",
            "warning",
            f"{seen.vitals.product} responds in {took}.",
            "Every commit takes at least that long: run the apps closer to the database, or reduce the load on it.",
        )
    else:
        yield Finding("database", "ok", f"{seen.vitals.product} responds in {took}.")


def _check_schema(seen: DoctorFacts) -> Iterator[Finding]:
    missing = [name for name, done in seen.migrations if not done]
    if missing:
        yield Finding("schema", "error", f"The schema lacks migrations: {', '.join(missing)}.", "Run `romancy migrate up`.")
    else:
        yield Finding("schema", "ok", f"The schema is up to date ({seen.migrations[-1][0]}).")


def _check_clock(seen: DoctorFacts) -> Iterator[Finding]:
    skew = seen.vitals.skew
    if skew is None:
        yield Finding("clock", "ok", "The database uses the clock of this machine.")
    elif abs(skew) > _SKEW + seen.vitals.latency:
        yield Finding(
            "clock",
            "warning",
            f"This machine's clock is {abs(skew) / MICROS:.2f} s {'behind' if skew > 0 else 'ahead of'} the database's.",
            "The database's clock is used, so nothing breaks. Synchronize this machine by NTP to keep logs consistent.",
        )
    else:
        yield Finding("clock", "ok", "The clocks of this machine and the database agree.")


def _check_notifications(seen: DoctorFacts) -> Iterator[Finding]:
    notes = seen.vitals.notes
    if "journal_mode" in notes:
        if notes["journal_mode"] == "wal":
            yield Finding("journal", "ok", "The file is in WAL mode: readers and the writer do not block each other.")
        elif notes["journal_mode"] != "memory":
            yield Finding(
                "journal",
                "warning",
                f"The journal mode of the file is {notes['journal_mode']}, not WAL.",
                "Move the file to a local disk that supports WAL (network file systems do not), and start an app on it.",
            )
    if notes.get("listen") == "on":
        yield Finding("listen", "ok", "LISTEN works: processes are notified of each other's work at once.")
    elif notes.get("listen") == "off":
        yield Finding("listen", "ok", "LISTEN is turned off: processes poll for each other's work every poll_interval.")
    elif "listen" in notes:
        pooler = " The connection goes through a pooler." if notes.get("pooler") == "yes" else ""
        yield Finding(
            "listen",
            "warning",
            f"LISTEN does not work: the work of other processes is found only after up to poll_interval.{pooler}",
            "Set listen_dsn to the address of the server itself, or listen_notify to false.",
        )


def _check_workers(seen: DoctorFacts) -> Iterator[Finding]:
    silent = [worker for worker in seen.workers if not _is_alive(worker, seen)]
    living = [worker for worker in seen.workers if _is_alive(worker, seen)]
    if not living:
        yield Finding(
            "workers", "error", "No worker is running.", "Start an app on this database: `romancy serve MODULE:APP`."
        )
    else:
        pythons = sorted({worker.python for worker in living})
        workers = "1 worker is" if len(living) == 1 else f"{len(living)} workers are"
        yield Finding("workers", "ok", f"{workers} running, on Python {', '.join(pythons)}.")
    for worker in silent:
        yield Finding(
            "silent worker",
            "warning",
            f"Worker {worker.id} on {worker.hostname} has been silent for "
            f"{format_span((seen.now - worker.heartbeat_at) / MICROS)}.",
            "If another worker is running, it takes over the instances. Check whether the process hangs.",
        )
    names = {name: [w for w in living if name in {kind[0] for kind in json.loads(w.workflows)}] for name in _known(living)}
    for name, knowing in sorted(names.items()):
        versions = {tuple(sorted(v for n, v in json.loads(w.workflows) if n == name)) for w in knowing}
        if len(versions) > 1:
            yield Finding(
                "versions",
                "warning",
                f"Running workers have different versions of workflow {name}.",
                "This is normal during a deployment; otherwise deploy the same code everywhere.",
            )


def _check_slots(seen: DoctorFacts) -> Iterator[Finding]:
    if seen.concurrency_stall is not None:
        yield Finding(
            "slots",
            "warning",
            f"{seen.concurrency_stall}, for {format_span((seen.now - seen.concurrency_stall.since) / MICROS)}.",
            "An activity must not wait for other work of its app: let a workflow wait for an event instead, or raise "
            "max_concurrent_activities.",
        )


def _known(workers: Sequence[WorkerRow]) -> set[str]:
    return {name for worker in workers for name, _ in json.loads(worker.workflows)}


def _check_claims(seen: DoctorFacts) -> Iterator[Finding]:
    known = {(n, v) for worker in seen.workers if _is_alive(worker, seen) for n, v in json.loads(worker.workflows)}
    unknown = [kind for kind in seen.unclaimed_kinds if tuple(kind) not in known]
    if unknown:
        names = ", ".join(f"{name} version {version}" if version else name for name, version in unknown[:5])
        yield Finding(
            "unclaimable",
            "error",
            f"Instances are waiting for workflows that no running worker has: {names}.",
            "Start an app with these workflows. Old versions must stay deployed until their instances have ended.",
        )
    blocked = seen.counts.statuses.get(Status.BLOCKED, 0)
    if blocked:
        yield Finding(
            "blocked",
            "error",
            f"{_instances(blocked, seen)} blocked: the deployed code does not match, or is missing.",
            "Run `romancy explain ID` for one of them. Once matching code is deployed, they continue automatically.",
        )
    if not unknown and not blocked:
        yield Finding("claims", "ok", "No instance is blocked or waiting for a missing workflow.")


def _check_overdue(seen: DoctorFacts) -> Iterator[Finding]:
    if seen.counts.overdue:
        yield Finding(
            "overdue",
            "warning",
            f"{_instances(seen.counts.overdue, seen)} overdue: ready to run for more than a second, but not claimed.",
            "Workers are missing, at capacity or blocked: see `romancy workers`. Raise max_concurrent_workflows, or add "
            "workers.",
        )
    else:
        yield Finding("overdue", "ok", "No instance is overdue.")
    if seen.counts.retrying:
        yield Finding(
            "retrying",
            "warning",
            f"{_instances(seen.counts.retrying, seen)} retrying an activity.",
            "To see the errors, run `romancy list retrying`.",
        )


def _check_outbox(seen: DoctorFacts) -> Iterator[Finding]:
    dead, since = seen.counts.dead_letters, seen.outbox_since
    if dead:
        yield Finding(
            "dead letters",
            "error",
            f"{_count(dead, seen)} {'event is a dead letter' if dead == 1 else 'events are dead letters'}: not delivered.",
            "To see why, run `romancy outbox list --dead`; to send them again, run `romancy outbox requeue`.",
        )
    if since is not None and seen.now - since > _OUTBOX_LAG:
        yield Finding(
            "outbox",
            "warning",
            f"The oldest event in the outbox has been waiting for {format_span((seen.now - since) / MICROS)}.",
            "Check that the broker can be reached and that an app with this broker is running: see `romancy outbox list`.",
        )
    elif not dead:
        yield Finding("outbox", "ok", "No event is delayed in the outbox.")


def _check_retention(seen: DoctorFacts) -> Iterator[Finding]:
    if seen.options.get("instance_retention") is None:
        yield Finding(
            "retention",
            "warning",
            "This process is configured to keep ended instances forever.",
            "Set instance_retention, or delete them regularly with `romancy prune`.",
        )
    else:
        kept = format_span(seen.options["instance_retention"])
        yield Finding("retention", "ok", f"Ended instances are deleted after {kept}.")


def _check_access(seen: DoctorFacts) -> Iterator[Finding]:
    """Who may call this process over HTTP. A process without a server has no such option."""
    remedy = "Give the app auth=[Token(...)], and give each caller its own token."
    auth = seen.options.get("auth")
    if seen.visitors is None:
        return
    refused = seen.visitors.refused
    if isinstance(auth, OpenAccess):
        yield Finding("access", "warning", "auth='open': every caller that can reach this app may send events.", remedy)
    elif auth is not None:
        yield Finding("access", "ok", "Callers over HTTP must authenticate.")
    elif refused or seen.visitors.exposed:
        events = "1 event" if refused == 1 else f"{refused} events"
        why = f"; it has refused {events} from other machines" if refused else ", although others can reach its address"
        yield Finding("access", "warning", f"Without auth this app serves only its own machine{why}.", remedy)
    else:
        yield Finding("access", "ok", "Without auth this app serves only its own machine over HTTP.")


def _is_alive(worker: WorkerRow, seen: DoctorFacts) -> bool:
    return seen.now - worker.heartbeat_at <= seen.lease // 2


def _instances(value: int, seen: DoctorFacts) -> str:
    return f"{_count(value, seen)} {'instance is' if value == 1 else 'instances are'}"


def _count(value: int, seen: DoctorFacts) -> Count:
    return Count(min(value, seen.count_limit), value > seen.count_limit)

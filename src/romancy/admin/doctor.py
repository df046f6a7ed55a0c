"""The checks of `romancy doctor`: functions from facts about a database and its workers to findings with remedies."""

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
"""The latency of a query, in microseconds, above which the check of the database warns."""
_SKEW = MICROS // 2
_OUTBOX_LAG = 60 * MICROS


@dataclass(frozen=True, slots=True)
class DoctorFacts:
    """The facts that the checks need."""

    now: int
    lease: int
    vitals: Vitals
    migrations: Sequence[tuple[str, bool]]
    workers: Sequence[WorkerRow]
    counts: InstanceCounts
    unclaimed_kinds: Sequence[tuple[str, str]]
    """The workflows and versions of unowned instances."""
    outbox_since: int | None
    options: Mapping[str, Any]
    visitors: Visitors | None
    """The access from other machines; None in a process that does not serve HTTP."""
    count_limit: int
    """The limit of the counts."""
    concurrency_stall: ConcurrencyStall | None = None
    """The stall of the worker in this process, if there is one."""


def run_checks(facts: DoctorFacts) -> list[Finding]:
    """Run every check, and return the findings."""
    return [
        *_check_database(facts),
        *_check_schema(facts),
        *_check_clock(facts),
        *_check_notifications(facts),
        *_check_workers(facts),
        *_check_slots(facts),
        *_check_claims(facts),
        *_check_overdue(facts),
        *_check_outbox(facts),
        *_check_retention(facts),
        *_check_access(facts),
    ]


def _check_database(facts: DoctorFacts) -> Iterator[Finding]:
    took = f"{facts.vitals.latency / 1000:.1f} ms"
    if facts.vitals.latency > _SLOW:
        yield Finding(
            "database",
            "warning",
            f"{facts.vitals.product} responds in {took}.",
            "Every commit takes at least that long: run the apps closer to the database, or reduce the load on it.",
        )
    else:
        yield Finding("database", "ok", f"{facts.vitals.product} responds in {took}.")


def _check_schema(facts: DoctorFacts) -> Iterator[Finding]:
    missing = [name for name, done in facts.migrations if not done]
    if missing:
        yield Finding("schema", "error", f"The schema lacks migrations: {', '.join(missing)}.", "Run `romancy migrate up`.")
    else:
        yield Finding("schema", "ok", f"The schema is up to date ({facts.migrations[-1][0]}).")


def _check_clock(facts: DoctorFacts) -> Iterator[Finding]:
    skew = facts.vitals.skew
    if skew is None:
        yield Finding("clock", "ok", "The database uses the clock of this machine.")
    elif abs(skew) > _SKEW + facts.vitals.latency:
        yield Finding(
            "clock",
            "warning",
            f"This machine's clock is {abs(skew) / MICROS:.2f} s {'behind' if skew > 0 else 'ahead of'} the database's.",
            "The database's clock is used, so nothing breaks. Synchronize this machine by NTP to keep logs consistent.",
        )
    else:
        yield Finding("clock", "ok", "The clocks of this machine and the database agree.")


def _check_notifications(facts: DoctorFacts) -> Iterator[Finding]:
    notes = facts.vitals.notes
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


def _check_workers(facts: DoctorFacts) -> Iterator[Finding]:
    silent = [worker for worker in facts.workers if not _is_alive(worker, facts)]
    living = [worker for worker in facts.workers if _is_alive(worker, facts)]
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
            f"{format_span((facts.now - worker.heartbeat_at) / MICROS)}.",
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


def _check_slots(facts: DoctorFacts) -> Iterator[Finding]:
    if facts.concurrency_stall is not None:
        yield Finding(
            "slots",
            "warning",
            f"{facts.concurrency_stall}, for {format_span((facts.now - facts.concurrency_stall.since) / MICROS)}.",
            "An activity must not wait for other work of its app: let a workflow wait for an event instead, or raise "
            "max_concurrent_activities.",
        )


def _known(workers: Sequence[WorkerRow]) -> set[str]:
    return {name for worker in workers for name, _ in json.loads(worker.workflows)}


def _check_claims(facts: DoctorFacts) -> Iterator[Finding]:
    known = {(n, v) for worker in facts.workers if _is_alive(worker, facts) for n, v in json.loads(worker.workflows)}
    unknown = [kind for kind in facts.unclaimed_kinds if tuple(kind) not in known]
    if unknown:
        names = ", ".join(f"{name} version {version}" if version else name for name, version in unknown[:5])
        yield Finding(
            "unclaimable",
            "error",
            f"Instances are waiting for workflows that no running worker has: {names}.",
            "Start an app with these workflows. Old versions must stay deployed until their instances have ended.",
        )
    blocked = facts.counts.statuses.get(Status.BLOCKED, 0)
    if blocked:
        yield Finding(
            "blocked",
            "error",
            f"{_instances(blocked, facts)} blocked: the deployed code does not match, or is missing.",
            "Run `romancy explain ID` for one of them. Once matching code is deployed, they continue automatically.",
        )
    if not unknown and not blocked:
        yield Finding("claims", "ok", "No instance is blocked or waiting for a missing workflow.")


def _check_overdue(facts: DoctorFacts) -> Iterator[Finding]:
    if facts.counts.overdue:
        yield Finding(
            "overdue",
            "warning",
            f"{_instances(facts.counts.overdue, facts)} overdue: ready to run for more than a second, but not claimed.",
            "Workers are missing, at capacity or blocked: see `romancy workers`. Raise max_concurrent_workflows, or add "
            "workers.",
        )
    else:
        yield Finding("overdue", "ok", "No instance is overdue.")
    if facts.counts.retrying:
        yield Finding(
            "retrying",
            "warning",
            f"{_instances(facts.counts.retrying, facts)} retrying an activity.",
            "To see the errors, run `romancy list retrying`.",
        )


def _check_outbox(facts: DoctorFacts) -> Iterator[Finding]:
    dead, since = facts.counts.dead_letters, facts.outbox_since
    if dead:
        yield Finding(
            "dead letters",
            "error",
            f"{_count(dead, facts)} {'event is a dead letter' if dead == 1 else 'events are dead letters'}: not delivered.",
            "To see why, run `romancy outbox list --dead`; to send them again, run `romancy outbox requeue`.",
        )
    if since is not None and facts.now - since > _OUTBOX_LAG:
        yield Finding(
            "outbox",
            "warning",
            f"The oldest event in the outbox has been waiting for {format_span((facts.now - since) / MICROS)}.",
            "Check that the broker can be reached and that an app with this broker is running: see `romancy outbox list`.",
        )
    elif not dead:
        yield Finding("outbox", "ok", "No event is delayed in the outbox.")


def _check_retention(facts: DoctorFacts) -> Iterator[Finding]:
    if facts.options.get("instance_retention") is None:
        yield Finding(
            "retention",
            "warning",
            "This process is configured to keep ended instances forever.",
            "Set instance_retention, or delete them regularly with `romancy prune`.",
        )
    else:
        kept = format_span(facts.options["instance_retention"])
        yield Finding("retention", "ok", f"Ended instances are deleted after {kept}.")


def _check_access(facts: DoctorFacts) -> Iterator[Finding]:
    """Check which callers this process serves over HTTP. In a process without a server there is nothing to check."""
    remedy = "Give the app auth=[Token(...)], and give each caller its own token."
    auth = facts.options.get("auth")
    if facts.visitors is None:
        return
    refused = facts.visitors.refused
    if isinstance(auth, OpenAccess):
        yield Finding("access", "warning", "auth='open': every caller that can reach this app may send events.", remedy)
    elif auth is not None:
        yield Finding("access", "ok", "Callers over HTTP must authenticate.")
    elif refused or facts.visitors.exposed:
        events = "1 event" if refused == 1 else f"{refused} events"
        why = f"; it has refused {events} from other machines" if refused else ", although others can reach its address"
        yield Finding("access", "warning", f"Without auth this app serves only its own machine{why}.", remedy)
    else:
        yield Finding("access", "ok", "Without auth this app serves only its own machine over HTTP.")


def _is_alive(worker: WorkerRow, facts: DoctorFacts) -> bool:
    return facts.now - worker.heartbeat_at <= facts.lease // 2


def _instances(value: int, facts: DoctorFacts) -> str:
    return f"{_count(value, facts)} {'instance is' if value == 1 else 'instances are'}"


def _count(value: int, facts: DoctorFacts) -> Count:
    return Count(min(value, facts.count_limit), value > facts.count_limit)

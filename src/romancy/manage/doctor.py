"""What can be checked about a database and its workers, and what to do about what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from romancy.auth import Open, Visitors
from romancy.clock import MICROS
from romancy.manage.explain import span
from romancy.manage.records import Count, Finding
from romancy.model.instance import WorkerRow
from romancy.model.operators import Census, Jam, Vitals
from romancy.model.status import Status

_SLOW = 50_000
"""Microseconds of a look at the database that are notable."""
_SKEW = MICROS // 2
_OUTBOX_LAG = 60 * MICROS


@dataclass(frozen=True, slots=True)
class Examined:
    """What was looked at."""

    now: int
    lease: int
    vitals: Vitals
    migrations: Sequence[tuple[str, bool]]
    workers: Sequence[WorkerRow]
    census: Census
    unclaimed_kinds: Sequence[tuple[str, str]]
    """Workflows and versions that unowned instances wait for."""
    outbox_since: int | None
    options: Mapping[str, Any]
    visitors: Visitors | None
    """What is known of callers on other machines, in a process that serves HTTP."""
    most: int
    """How far was counted."""
    jam: Jam | None = None
    """Of the worker in this process, if every slot for activities is held."""


def findings(seen: Examined) -> list[Finding]:
    """Every check, and what it says."""
    return [
        *_database(seen),
        *_schema(seen),
        *_clock(seen),
        *_hints(seen),
        *_workers(seen),
        *_jam(seen),
        *_claims(seen),
        *_stuck(seen),
        *_outbox(seen),
        *_retention(seen),
        *_access(seen),
    ]


def _database(seen: Examined) -> Iterator[Finding]:
    took = f"{seen.vitals.latency / 1000:.1f} ms"
    if seen.vitals.latency > _SLOW:
        yield Finding(
            "database",
            "warning",
            f"{seen.vitals.product} answers in {took}.",
            "Every commit takes at least that long: run the apps nearer to the database, or see what keeps it busy.",
        )
    else:
        yield Finding("database", "ok", f"{seen.vitals.product} answers in {took}.")


def _schema(seen: Examined) -> Iterator[Finding]:
    missing = [name for name, done in seen.migrations if not done]
    if missing:
        yield Finding("schema", "error", f"The schema lacks {', '.join(missing)}.", "Run `romancy migrate up`.")
    else:
        yield Finding("schema", "ok", f"The schema is up to date ({seen.migrations[-1][0]}).")


def _clock(seen: Examined) -> Iterator[Finding]:
    skew = seen.vitals.skew
    if skew is None:
        yield Finding("clock", "ok", "The database has this machine's clock.")
    elif abs(skew) > _SKEW + seen.vitals.latency:
        yield Finding(
            "clock",
            "warning",
            f"This machine's clock is {abs(skew) / MICROS:.2f} s {'behind' if skew > 0 else 'ahead of'} the database's.",
            "The database's counts, so nothing breaks; set the machine's clock by NTP for logs that fit together.",
        )
    else:
        yield Finding("clock", "ok", "This machine's clock and the database's agree.")


def _hints(seen: Examined) -> Iterator[Finding]:
    notes = seen.vitals.notes
    if "journal_mode" in notes:
        if notes["journal_mode"] == "wal":
            yield Finding("journal", "ok", "The file is in WAL mode: readers and the writer do not wait for each other.")
        elif notes["journal_mode"] != "memory":
            yield Finding(
                "journal",
                "warning",
                f"The file's journal mode is {notes['journal_mode']}, not WAL.",
                "Put it on a local disk that supports WAL (network file systems do not), and start an app on it.",
            )
    if notes.get("listen") == "on":
        yield Finding("listen", "ok", "LISTEN works: processes hear of each other's work at once.")
    elif notes.get("listen") == "off":
        yield Finding("listen", "ok", "LISTEN is turned off: processes look for each other's work every poll_interval.")
    elif "listen" in notes:
        pooler = " There is a pooler in between." if notes.get("pooler") == "yes" else ""
        yield Finding(
            "listen",
            "warning",
            f"LISTEN does not work: other processes' work is found after up to poll_interval.{pooler}",
            "Give the address of the server itself as listen_dsn, or set listen_notify to false.",
        )


def _workers(seen: Examined) -> Iterator[Finding]:
    silent = [worker for worker in seen.workers if not _is_alive(worker, seen)]
    living = [worker for worker in seen.workers if _is_alive(worker, seen)]
    if not living:
        yield Finding(
            "workers", "error", "No worker is alive.", "Start an app on this database: `romancy serve MODULE:APP`."
        )
    else:
        pythons = sorted({worker.python for worker in living})
        yield Finding("workers", "ok", f"{len(living)} alive, on Python {', '.join(pythons)}.")
    for worker in silent:
        yield Finding(
            "silent worker",
            "warning",
            f"{worker.id} on {worker.host} has been silent for {span((seen.now - worker.beat_at) / MICROS)}.",
            "If another worker is alive it takes over its instances; see whether that process hangs.",
        )
    names = {name: [w for w in living if name in {kind[0] for kind in json.loads(w.kinds)}] for name in _known(living)}
    for name, knowing in sorted(names.items()):
        versions = {tuple(sorted(v for n, v in json.loads(w.kinds) if n == name)) for w in knowing}
        if len(versions) > 1:
            yield Finding(
                "versions",
                "warning",
                f"Live workers know different versions of {name}.",
                "That is right while a deployment is under way; otherwise deploy the same code everywhere.",
            )


def _jam(seen: Examined) -> Iterator[Finding]:
    if seen.jam is not None:
        yield Finding(
            "slots",
            "warning",
            f"{seen.jam}, for {span((seen.now - seen.jam.since) / MICROS)}.",
            "An activity must not wait for other work of its app: let a workflow wait for an event instead. Or raise "
            "max_concurrent_activities.",
        )


def _known(workers: Sequence[WorkerRow]) -> set[str]:
    return {name for worker in workers for name, _ in json.loads(worker.kinds)}


def _claims(seen: Examined) -> Iterator[Finding]:
    known = {(n, v) for worker in seen.workers if _is_alive(worker, seen) for n, v in json.loads(worker.kinds)}
    unknown = [kind for kind in seen.unclaimed_kinds if tuple(kind) not in known]
    if unknown:
        names = ", ".join(f"{name} version {version}" if version else name for name, version in unknown[:5])
        yield Finding(
            "unclaimable",
            "error",
            f"Instances wait for workflows that no live worker knows: {names}.",
            "Start an app that has them; old versions must stay deployed until their instances have ended.",
        )
    blocked = seen.census.statuses.get(Status.BLOCKED, 0)
    if blocked:
        yield Finding(
            "blocked",
            "error",
            f"{_count(blocked, seen)} instances are blocked: their code does not fit, or is nowhere.",
            "Look at one with `romancy explain ID`; deploy code that fits, they go on by themselves.",
        )
    if not unknown and not blocked:
        yield Finding("claims", "ok", "Every instance has a worker that can run it.")


def _stuck(seen: Examined) -> Iterator[Finding]:
    if seen.census.overdue:
        yield Finding(
            "overdue",
            "warning",
            f"{_count(seen.census.overdue, seen)} instances have been due for more than a second, and nobody runs them.",
            "Workers are missing, full or blocked: look at `romancy workers`, raise max_concurrent_workflows, or add some.",
        )
    else:
        yield Finding("overdue", "ok", "Nothing is overdue.")
    if seen.census.retrying:
        yield Finding(
            "retrying",
            "warning",
            f"{_count(seen.census.retrying, seen)} instances are retrying an activity.",
            "See with what it fails: `romancy list retrying`.",
        )


def _outbox(seen: Examined) -> Iterator[Finding]:
    dead, since = seen.census.dead_letters, seen.outbox_since
    if dead:
        yield Finding(
            "dead letters",
            "error",
            f"{_count(dead, seen)} events were given up by their brokers.",
            "See why with `romancy outbox list --dead`; send them again with `romancy outbox requeue`.",
        )
    if since is not None and seen.now - since > _OUTBOX_LAG:
        yield Finding(
            "outbox",
            "warning",
            f"The oldest event has been waiting for its broker for {span((seen.now - since) / MICROS)}.",
            "See whether the broker can be reached and an app with it runs: `romancy outbox list`.",
        )
    elif not dead:
        yield Finding("outbox", "ok", "No event waits long for its broker.")


def _retention(seen: Examined) -> Iterator[Finding]:
    if seen.options.get("instance_retention") is None:
        yield Finding(
            "retention",
            "warning",
            "Ended instances are kept for ever, as far as this process is set.",
            "Set instance_retention, or delete them now and then with `romancy prune`.",
        )
    else:
        kept = span(seen.options["instance_retention"])
        yield Finding("retention", "ok", f"Ended instances are deleted after {kept}.")


def _access(seen: Examined) -> Iterator[Finding]:
    """Who may call this process over HTTP. A process without a server has no such option."""
    remedy = "Give the app auth=[Token(...)], and each caller a token of its own."
    auth = seen.options.get("auth")
    if seen.visitors is None:
        return
    refused = seen.visitors.refused
    if isinstance(auth, Open):
        yield Finding("access", "warning", "auth='open': whoever can reach this app may send events.", remedy)
    elif auth is not None:
        yield Finding("access", "ok", "Callers over HTTP have to say who they are.")
    elif refused or seen.visitors.exposed:
        why = f"{refused} events from elsewhere were refused" if refused else "it listens to others, too"
        yield Finding("access", "warning", f"Without auth this app answers only its own machine; {why}.", remedy)
    else:
        yield Finding("access", "ok", "Without auth only this machine is answered over HTTP.")


def _is_alive(worker: WorkerRow, seen: Examined) -> bool:
    return seen.now - worker.beat_at <= seen.lease // 2


def _count(value: int, seen: Examined) -> Count:
    return Count(min(value, seen.most), value > seen.most)

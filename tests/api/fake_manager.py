"""A fake manager that records its calls, and helpers that send requests to an API on top of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from tests.http.asgi_client import Answer, Recorder, call

from romancy.admin import records
from romancy.admin.records import ActionKind, Count
from romancy.api.mount import mount
from romancy.api.watcher import Watcher, WatchSettings
from romancy.auth import read_auth
from romancy.clock import SystemClock
from romancy.errors import RomancyError, WorkflowNotFoundError
from romancy.http.lazy_gateway import open_http
from romancy.http.types import ASGIApp, HTTPSettings
from romancy.model.instance import AttemptEntry, Error, HistoryEntry, InstanceProgress, JournalLine, WaitingFor
from romancy.model.messaging import ReceivedEvent
from romancy.model.outbox import OutboxEntry
from romancy.model.status import Status

AT = datetime(2026, 1, 31, 12, 0, 0, 123456, UTC)
HUGE = 2**53 + 1
HOST = "localhost:8000"

WAITING = WaitingFor("event", "payment.completed", AT, None, "payment.completed:1", "42", {"number": HUGE})
SUMMARY = records.InstanceSummary(
    "order/1\n", "checkout", None, Status.WAITING_FOR_EVENT, 1, "w1", AT, AT, AT, None, None, (WAITING,), "waits", None
)
ERROR = Error("ValueError", "no <script>", "Traceback")
POINT = records.ChartPoint(AT, 3, 1)
WORKER = records.WorkerSummary("w1", "shop", "host", 7, "3.11", AT, AT, True, Count(3), ("checkout",))
DETAIL = records.InstanceDetail(
    SUMMARY,
    {"number": HUGE, "rate": float("nan")},
    None,
    ERROR,
    1,
    "abc",
    "3.11",
    None,
    [AttemptEntry("charge:1", "charge", 1, False, ERROR, "w1", 1, AT, AT, AT, None, None, "shop.py:3")],
    [JournalLine(AT, "claimed", "", "w1", 1)],
    [ActionKind.CANCEL],
)
ENTRY = HistoryEntry(1, "activity", "charge:1", "charge", "ok", 1, {}, b"\xff", None, "w1", AT)
BATCH = records.BulkAction(
    "b1",
    ActionKind.CANCEL,
    "status:failed",
    None,
    "local",
    "running",
    AT,
    None,
    1,
    1,
    2,
    [records.ActionResult("x", False, "no")],
)
EVENT: ReceivedEvent[Any] = ReceivedEvent("1", "paid", "shop", "1.0", None, AT, None, None, b"\xff\x00", {})
OUTBOX = OutboxEntry(HUGE, "default", EVENT, AT, 1, None, None, "refused", AT)


@dataclass
class FakeManager:
    """A manager that records every call and returns a fixed value. The id `missing` does not exist."""

    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list[Any])
    error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in ANSWERS:
            raise AttributeError(name)

        async def answer(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args, kwargs))
            if self.error is not None:
                raise self.error
            if "missing" in args:
                raise WorkflowNotFoundError("There is no 'missing' in this database.")
            return ANSWERS[name]

        return answer

    @property
    def last(self) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        """The last recorded call."""
        return self.calls[-1]


ANSWERS: Mapping[str, Any] = {
    "overview": records.Overview(
        [records.AttentionItem("failed", Count(10_000, True), "status:failed")],
        {"running": Count(2)},
        [POINT],
        [WORKER],
        ["a"],
    ),
    "list_instances": records.InstancePage([SUMMARY], "token", AT),
    "get_instance": DETAIL,
    "get_history": records.HistoryPage([ENTRY], 1),
    "get_timeline": records.Timeline(
        1,
        None,
        9,
        [records.TimelineSpan("charge:1", "charge", "activity", "ok", 1, 2)],
        [JournalLine(AT, "claimed", "", "w1", 1)],
    ),
    "get_source": "async def checkout(): ...",
    "explain": records.Explanation(
        "order/1\n",
        Status.RUNNING,
        records.Health.HEALTHY,
        "it runs",
        (records.WakeCondition("event", "paid", AT, None, ("none ever came",)),),
        (records.Remedy("send_event", "Send it", {"type": "paid"}),),
    ),
    "list_workflows": [records.WorkflowSummary("checkout", ("1",), Count(1), 5, 1, 0.5, None, [POINT], False, True)],
    "get_schema": {"type": "object"},
    "get_event_schema": None,
    "list_workers": [WORKER],
    "list_channels": records.ChannelPage([records.ChannelSummary("c", "broadcast", Count(1), Count(0), None)], "c"),
    "list_subscribers": records.SubscriberPage([records.Subscriber("a", "broadcast", AT, Count(1), True)]),
    "list_groups": records.GroupPage([records.GroupSummary("g", Count(1))]),
    "list_members": records.MemberPage(["a", "b"], "b"),
    "list_outbox": records.OutboxPage([OUTBOX], HUGE),
    "list_bulk_actions": [BATCH],
    "get_bulk_action": BATCH,
    "list_audit": records.AuditPage([records.AuditEntry(HUGE, AT, "local", "cancel", "a", "")], HUGE),
    "doctor": [records.Finding("clock", "ok", "it is right")],
    "start": records.StartResult("order/1\n"),
    "send_event": records.SendResult(("a",), False),
    "publish": records.SendResult(("a",), False),
    "preview": records.Preview(ActionKind.CANCEL, "a", ("compensates reserve (op 2)",)),
    "apply": [
        records.ActionResult("a", True),
        records.ActionResult("b", False, "it has ended", "WorkflowNotCancellableError"),
    ],
    "start_bulk_action": BATCH,
    "abort_bulk_action": BATCH,
    "requeue_outbox": 3,
    "prune": 4,
}

QUICK = WatchSettings(
    min_interval=0.0, poll_interval=0.01, max_watches=3, ping_interval=0.01, max_duration=0.1, reconnect_ms=1
)


@dataclass
class ProgressSource:
    """A source of progress for a watcher; it records every query."""

    states: dict[str, InstanceProgress] = field(default_factory=dict[str, InstanceProgress])
    queries: list[list[str]] = field(default_factory=list[list[str]])
    error: RomancyError | None = None

    async def query(self, ids: Sequence[str]) -> Mapping[str, InstanceProgress]:
        self.queries.append(list(ids))
        if self.error is not None:
            raise self.error
        return {one: self.states[one] for one in ids if one in self.states}


def serve(manager: Any, auth: Any = None, *, watcher: Watcher | None = None, **settings: Any) -> ASGIApp:
    """The whole HTTP interface on top of a manager."""
    chosen = HTTPSettings(auth=read_auth(auth), **settings)
    watcher = watcher or Watcher(ProgressSource().query, QUICK)
    return open_http(Recorder(), chosen, SystemClock(), lambda: mount(manager, [], chosen, SystemClock(), watcher))


async def get(app: ASGIApp, path: str, headers: Mapping[str, str] | None = None, /, **parameters: Any) -> Answer:
    """Send a GET request."""
    query = urlencode(parameters).encode()
    return await call(app, path, method="GET", headers={"host": HOST, **(headers or {})}, query_string=query)


async def post(app: ASGIApp, path: str, body: Any, headers: Mapping[str, str] | None = None, /, **more: Any) -> Answer:
    """Send a POST request."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"host": HOST, "content-type": "application/json", **(headers or {})}
    return await call(app, path, raw, headers=sent, **more)

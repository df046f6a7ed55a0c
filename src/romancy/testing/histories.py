"""Recorded histories: exported from a database, stored beside the tests, replayed with new code."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass
from typing import Any

from romancy.app import App
from romancy.authoring.workflow import Workflow
from romancy.client import Client
from romancy.codec import not_decoded
from romancy.core import asyncio_patches
from romancy.core.commands import BodyOutcome, Issue
from romancy.errors import CodecError, DeterminismViolationError, WorkflowNotFoundError
from romancy.model.history import Entry, Kind, Outcome, Role
from romancy.registry.instantiation import execution_of
from romancy.worker.worker import find_encoded


@dataclass(frozen=True, slots=True)
class RecordedHistory:
    """The data of an instance that a replay needs."""

    workflow: str
    version: str
    instance_id: str
    generation: int
    created_at: int
    """When its generation began: the initial time of the replay."""
    input: bytes
    entries: tuple[Entry, ...]

    def to_json(self) -> str:
        """Return the history as text, for a file."""
        entries = [entry._asdict() for entry in self.entries]
        return json.dumps({**asdict(self), "entries": entries, "format": 1}, default=_plain, indent=1)

    @classmethod
    def from_json(cls, text: str) -> RecordedHistory:
        """Read a history from the text that `to_json` returned."""
        data: dict[str, Any] = json.loads(text)
        data.pop("format", None)
        entries = tuple(_entry(one) for one in data.pop("entries"))
        data["input"] = _bytes(data["input"]) or b"{}"
        return cls(**data, entries=entries)


@dataclass(frozen=True, slots=True)
class Replayed:
    """The state of the code at the end of a history."""

    pending: tuple[str, ...]
    """The ids of the operations for which it waits."""
    verdict: BodyOutcome | None
    """How it ended; None if it has not."""


async def record_history(client: Client, instance_id: str) -> RecordedHistory:
    """Return the history of an instance, for `replay_history`. Raises `WorkflowNotFoundError`."""
    loaded = await client._store.load(instance_id)
    if loaded is None:
        raise WorkflowNotFoundError(f"There is no instance {instance_id!r} in this database.")
    if (encoded := find_encoded(loaded)) is not None:
        raise CodecError(not_decoded(f"What is stored of {instance_id}", encoded))
    row = loaded.row
    return RecordedHistory(
        row.workflow, row.version, row.instance_id, row.generation, loaded.begun_at, loaded.input, loaded.history
    )


def replay_history(workflow: Workflow[..., Any], history: RecordedHistory, *, app: App | None = None) -> Replayed:
    """Replay a history with this code. Raises `DeterminismViolationError` if the code does not match it.

    Calls that are not deterministic (clocks, randomness, files, ...) are refused. `app` is the value of `ctx.app` in the
    replay; it need not be running.
    """
    return replay_in_full(workflow, history, app=app)[0]


def replay_in_full(
    workflow: Workflow[..., Any], history: RecordedHistory, *, app: App | None = None, guard: str = "raise"
) -> tuple[Replayed, list[Issue]]:
    """Replay like `replay_history`; also return the full operations for which the code waits."""
    asyncio_patches.install()
    if workflow.name != history.workflow:
        raise DeterminismViolationError(f"recorded: a history of {history.workflow!r}; attempted: {workflow!r}")
    execution = execution_of(
        workflow,
        instance_id=history.instance_id,
        generation=history.generation,
        input=history.input,
        history=history.entries,
        length=max((entry.seq for entry in history.entries), default=0),
        app=app,
        guard=guard,
    )
    try:
        execution.replay(history.created_at, history.entries)
        pending = execution.run.pending
        return Replayed(tuple(pending), execution.body_outcome), [waiting.issue for waiting in pending.values()]
    finally:
        execution.run.evict()


def _plain(value: object) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    raise TypeError(f"{type(value).__name__} in a history")


def _bytes(value: Any) -> bytes | None:
    return None if value is None else base64.b64decode(value["base64"])


def _entry(data: dict[str, Any]) -> Entry:
    return Entry(**data)._replace(
        kind=Kind(data["kind"]),
        outcome=Outcome(data["outcome"]),
        role=Role(data["role"]),
        digest=_bytes(data["digest"]) or b"",
        input=_bytes(data["input"]),
        value=_bytes(data["value"]),
    )

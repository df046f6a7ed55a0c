"""Recorded histories: taken from a database, kept beside the tests, replayed by new code."""

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
    """What replay needs of one instance."""

    workflow: str
    version: str
    instance_id: str
    generation: int
    created_at: int
    """When its generation began: that is the time at which the body begins."""
    input: bytes
    entries: tuple[Entry, ...]

    def to_json(self) -> str:
        """As text, to be kept in a file."""
        entries = [entry._asdict() for entry in self.entries]
        return json.dumps({**asdict(self), "entries": entries, "format": 1}, default=_plain, indent=1)

    @classmethod
    def from_json(cls, text: str) -> RecordedHistory:
        """From the text `to_json` gave."""
        data: dict[str, Any] = json.loads(text)
        data.pop("format", None)
        entries = tuple(_entry(one) for one in data.pop("entries"))
        data["input"] = _bytes(data["input"]) or b"{}"
        return cls(**data, entries=entries)


@dataclass(frozen=True, slots=True)
class Replayed:
    """Where code stands at the end of a history."""

    pending: tuple[str, ...]
    """What it waits for."""
    verdict: BodyOutcome | None
    """How it ended, if it has."""


async def record_history(client: Client, instance_id: str) -> RecordedHistory:
    """The history of an instance, for `replay_history`. Raises `WorkflowNotFoundError`."""
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
    """Replay a history with this code. Raises `DeterminismViolationError` when the code does not fit it.

    What would not be the same in every replay (clocks, chance, files, ...) is refused where the code calls it. `app` is what
    `ctx.app` is meanwhile; it need not run.
    """
    return replay_in_full(workflow, history, app=app)[0]


def replay_in_full(
    workflow: Workflow[..., Any], history: RecordedHistory, *, app: App | None = None, guard: str = "raise"
) -> tuple[Replayed, list[Issue]]:
    """As `replay_history`, with what the code waits for in full."""
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

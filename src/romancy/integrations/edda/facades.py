"""The methods of `app.storage` and `app.replay_engine` that Edda programs use. Their other methods are not offered."""

from __future__ import annotations

import contextlib
import inspect
from datetime import timedelta
from typing import Any, NoReturn

from romancy import (
    App,
    AttemptEntry,
    Error,
    HistoryEntry,
    Instance,
    Status,
    WorkflowCancelledError,
    WorkflowNotCancellableError,
    WorkflowNotFoundError,
)
from romancy.integrations.edda.result_types import strip_compensations
from romancy.integrations.edda.unsupported import REPLAY_ENGINE, STORAGE, no_attribute

_KINDS = {"event": "EventReceived", "message": "ChannelMessageReceived", "timer": "TimerExpired"}

_WAITS = frozenset({Status.WAITING_FOR_EVENT, Status.WAITING_FOR_MESSAGE, Status.WAITING_FOR_TIMER})


class Storage:
    """Queries about instances. Pass it to `publish` to publish outside of a workflow."""

    def __init__(self, app: App) -> None:
        self.romancy = app

    async def get_instance(self, instance_id: str) -> dict[str, Any] | None:
        """Return one instance, or None."""
        found = await self.romancy.get_instance(instance_id)
        if found is None:
            return None
        return {
            **instance_dict(found),
            "current_activity_id": await self._current(found),
            "source_code": _source(self.romancy, found.workflow_name),
        }

    async def get_history(self, instance_id: str) -> list[dict[str, Any]]:
        """Return the history of an instance."""
        try:
            attempts = await self.romancy.get_attempts(instance_id)
        except WorkflowNotFoundError:
            return []
        return [
            _entry_dict(entry, instance_id, [one for one in attempts if one.activity_id == entry.activity_id])
            async for entry in self.romancy.history(instance_id)
        ]

    async def get_pending_outbox_events(self, limit: int = 10) -> list[dict[str, Any]]:
        """Return the events that have not been sent to the broker yet."""
        page = await self.romancy.list_outbox(limit=limit)
        return [
            {
                "event_id": one.event.id,
                "event_type": one.event.type,
                "event_source": one.event.source,
                "event_data": one.event.data,
                "content_type": one.event.datacontenttype,
                "created_at": one.created_at.isoformat(),
                "retry_count": one.attempts,
                "last_error": one.last_error,
            }
            for one in page.items
        ]

    async def _current(self, instance: Instance) -> str | None:
        """Return the id of the operation for which the instance waits, or else of its last one."""
        if instance.waiting_for:
            return instance.waiting_for[0].activity_id
        last = None
        async for entry in self.romancy.history(instance.instance_id):
            last = entry.activity_id
        return last

    def __getattr__(self, name: str) -> NoReturn:
        raise no_attribute("app.storage", name, STORAGE)


class ReplayEngine:
    """Cancels instances."""

    def __init__(self, app: App) -> None:
        self.romancy = app

    async def cancel_workflow(self, instance_id: str, cancelled_by: str = "user") -> bool:
        """Cancel an instance. Return False if it does not exist or has ended.

        If the instance is waiting, its activities are compensated when this returns. If it is running, it is cancelled at
        its next await, after this returns.
        """
        handle = self.romancy.get_handle(instance_id)
        try:
            waits = await handle.status() in _WAITS
            await handle.cancel(f"cancelled by {cancelled_by}")
        except (WorkflowNotFoundError, WorkflowNotCancellableError):
            return False
        if waits:
            with contextlib.suppress(WorkflowCancelledError):
                await handle.result()
        return True

    def __getattr__(self, name: str) -> NoReturn:
        raise no_attribute("app.replay_engine", name, REPLAY_ENGINE)


def instance_dict(one: Instance) -> dict[str, Any]:
    """Return an instance in Edda's form."""
    error = None if one.error is None else _error_fields(one.error)
    return {
        "instance_id": one.instance_id,
        "workflow_name": one.workflow_name,
        "status": one.status.value,
        "input_data": one.input,
        "output_data": {"result": one.output} if error is None and one.status.ended else error,
        "started_at": one.created_at.isoformat(),
        "updated_at": one.updated_at.isoformat(),
        "continued_from": one.instance_id if one.continued_from is not None else None,
    }


def _entry_dict(entry: HistoryEntry, instance_id: str, attempts: list[AttemptEntry]) -> dict[str, Any]:
    failed = "Failed" if entry.error is not None else "Completed"
    data: dict[str, Any] = {
        "activity_name": entry.name,
        "input": entry.input,
        "result": strip_compensations(entry.name, entry.result),
    }
    if entry.error is not None:
        data |= _error_fields(entry.error)
    if attempts:
        data["retry_metadata"] = _retries(entry, attempts)
    return {
        "id": entry.seq,
        "instance_id": instance_id,
        "activity_id": entry.activity_id,
        "event_type": _KINDS.get(entry.kind, f"{entry.kind.capitalize()}{failed}"),
        "event_data": data,
        "created_at": entry.at.isoformat(),
    }


def _retries(entry: HistoryEntry, attempts: list[AttemptEntry]) -> dict[str, Any]:
    """Return the number of attempts of an activity, and their errors."""
    errors = [
        {
            "attempt": one.attempt,
            "error_type": _bare_type(one.error),
            "message": one.error.message,
            "timestamp_ms": round((one.ended_at or one.started_at).timestamp() * 1000),
        }
        for one in attempts
        if one.error is not None
    ]
    last = entry.error or next((one.error for one in reversed(attempts) if one.error is not None), None)
    begun = attempts[0].started_at
    return {
        "total_attempts": entry.attempt,
        "total_duration_ms": round((entry.at - begun) / timedelta(milliseconds=1)),
        "exhausted": entry.error is not None,
        "errors": errors,
        "last_error": None if last is None else {"error_type": _bare_type(last), "message": last.message},
    }


def _error_fields(error: Error) -> dict[str, Any]:
    return {"error_type": _bare_type(error), "error_message": error.message, "stack_trace": error.trace}


def _bare_type(error: Error) -> str:
    return error.type.rpartition(".")[2]


def _source(app: App, name: str) -> str | None:
    """Return the source of a workflow in this process."""
    try:
        return inspect.getsource(app.get_workflow(name).fn)
    except (WorkflowNotFoundError, OSError, TypeError):
        return None

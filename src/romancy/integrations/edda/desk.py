"""What Edda programs ask of `app.storage` and `app.replay_engine`, in Edda's shapes. The rest of them is not offered."""

from __future__ import annotations

import contextlib
from typing import Any, NoReturn

from romancy import (
    App,
    HistoryEntry,
    Instance,
    Status,
    WorkflowCancelledError,
    WorkflowNotCancellableError,
    WorkflowNotFoundError,
)
from romancy.integrations.edda.results import bare
from romancy.integrations.edda.unmapped import REPLAY_ENGINE, STORAGE, no_attribute

_KINDS = {"event": "EventReceived", "message": "ChannelMessageReceived", "timer": "TimerExpired"}

_WAITS = frozenset({Status.WAITING_FOR_EVENT, Status.WAITING_FOR_MESSAGE, Status.WAITING_FOR_TIMER})


class Storage:
    """Questions about instances. Pass it to `publish` to publish from outside."""

    def __init__(self, app: App) -> None:
        self.romancy = app

    async def get_instance(self, instance_id: str) -> dict[str, Any] | None:
        """One instance, or None."""
        found = await self.romancy.get_instance(instance_id)
        return None if found is None else instance_dict(found)

    async def get_history(self, instance_id: str) -> list[dict[str, Any]]:
        """What happened in an instance, in order."""
        return [_entry_dict(entry) async for entry in self.romancy.history(instance_id)]

    async def get_pending_outbox_events(self, limit: int = 10) -> list[dict[str, Any]]:
        """Events that the broker has not got yet."""
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

    def __getattr__(self, name: str) -> NoReturn:
        raise no_attribute("app.storage", name, STORAGE)


class ReplayEngine:
    """Cancels instances."""

    def __init__(self, app: App) -> None:
        self.romancy = app

    async def cancel_workflow(self, instance_id: str, cancelled_by: str = "user") -> bool:
        """Cancel. False: there is no such instance, or it has ended.

        Of an instance that waits, what it did is undone when this returns; one that runs goes on to what it awaits.
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
    """An instance as Edda shows it."""
    error = None
    if one.error is not None:
        error = {
            "error_type": one.error.type.rpartition(".")[2],
            "error_message": one.error.message,
            "stack_trace": one.error.trace,
        }
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


def _entry_dict(entry: HistoryEntry) -> dict[str, Any]:
    failed = "Failed" if entry.error is not None else "Completed"
    data: dict[str, Any] = {"activity_name": entry.name, "input": entry.input, "result": bare(entry.name, entry.result)}
    if entry.error is not None:
        data |= {"error_type": entry.error.type.rpartition(".")[2], "error_message": entry.error.message}
    return {
        "activity_id": entry.activity_id,
        "event_type": _KINDS.get(entry.kind, f"{entry.kind.capitalize()}{failed}"),
        "event_data": data,
        "created_at": entry.at.isoformat(),
    }

"""Hooks under Edda's names."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["HooksBase", "WorkflowHooks"]


class WorkflowHooks(Protocol):
    """What Edda tells about workflows; any of these methods."""

    async def on_workflow_start(self, instance_id: str, workflow_name: str, input_data: dict[str, Any]) -> None:
        """An instance begins."""
        ...

    async def on_workflow_complete(self, instance_id: str, workflow_name: str, result: Any) -> None:
        """An instance has returned."""
        ...

    async def on_workflow_failed(self, instance_id: str, workflow_name: str, error: Exception) -> None:
        """An instance has failed."""
        ...

    async def on_workflow_cancelled(self, instance_id: str, workflow_name: str) -> None:
        """An instance was cancelled."""
        ...

    async def on_activity_start(self, instance_id: str, activity_id: str, activity_name: str, is_replaying: bool) -> None:
        """An activity begins."""
        ...

    async def on_activity_complete(
        self, instance_id: str, activity_id: str, activity_name: str, result: Any, cache_hit: bool
    ) -> None:
        """An activity has its result."""
        ...

    async def on_activity_failed(self, instance_id: str, activity_id: str, activity_name: str, error: Exception) -> None:
        """An activity has failed for good."""
        ...

    async def on_activity_retry(
        self, instance_id: str, activity_id: str, activity_name: str, error: Exception, attempt: int, delay: float
    ) -> None:
        """An attempt has failed and another follows."""
        ...

    async def on_event_sent(self, event_type: str, event_source: str, event_data: dict[str, Any]) -> None:
        """An event was sent."""
        ...

    async def on_event_received(self, instance_id: str, event_type: str, event_data: dict[str, Any]) -> None:
        """An instance has got an event that it waited for."""
        ...


class HooksBase:
    """A base for hooks that write only some of the methods."""

    async def on_workflow_start(self, instance_id: str, workflow_name: str, input_data: dict[str, Any]) -> None:
        """An instance begins."""

    async def on_workflow_complete(self, instance_id: str, workflow_name: str, result: Any) -> None:
        """An instance has returned."""

    async def on_workflow_failed(self, instance_id: str, workflow_name: str, error: Exception) -> None:
        """An instance has failed."""

    async def on_workflow_cancelled(self, instance_id: str, workflow_name: str) -> None:
        """An instance was cancelled."""

    async def on_activity_start(self, instance_id: str, activity_id: str, activity_name: str, is_replaying: bool) -> None:
        """An activity begins."""

    async def on_activity_complete(
        self, instance_id: str, activity_id: str, activity_name: str, result: Any, cache_hit: bool
    ) -> None:
        """An activity has its result."""

    async def on_activity_failed(self, instance_id: str, activity_id: str, activity_name: str, error: Exception) -> None:
        """An activity has failed for good."""

    async def on_activity_retry(
        self, instance_id: str, activity_id: str, activity_name: str, error: Exception, attempt: int, delay: float
    ) -> None:
        """An attempt has failed and another follows."""

    async def on_event_sent(self, event_type: str, event_source: str, event_data: dict[str, Any]) -> None:
        """An event was sent."""

    async def on_event_received(self, instance_id: str, event_type: str, event_data: dict[str, Any]) -> None:
        """An instance has got an event that it waited for."""

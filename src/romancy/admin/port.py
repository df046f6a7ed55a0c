"""The `Manager` protocol. One implementation works on a database, another one calls the HTTP API of an app."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from romancy.admin.records import (
    ActionKind,
    ActionResult,
    AuditPage,
    BulkAction,
    ChannelPage,
    Explanation,
    Finding,
    GroupPage,
    HistoryPage,
    InstanceDetail,
    InstancePage,
    MemberPage,
    OutboxPage,
    Overview,
    Preview,
    SendResult,
    StartResult,
    SubscriberPage,
    Timeline,
    WorkerSummary,
    WorkflowSummary,
)


class Manager(Protocol):
    """The queries and actions of an operator.

    The methods raise errors of `romancy.errors`: `WorkflowNotFoundError`, `PayloadError`, `InvalidWorkflowStateError`,
    `WorkflowNotCancellableError`, `ConfigurationError` for a filter or page token that is not valid, and `StoreError`.
    """

    # --- queries

    async def overview(self) -> Overview:
        """Return what needs attention, the current rates, and the workers and workflows."""
        ...

    async def list_instances(self, filter: str = "", *, limit: int = 50, page_token: str | None = None) -> InstancePage:
        """Return the instances that match a filter, newest first. A search by content has a time limit."""
        ...

    async def get_instance(self, instance_id: str, *, generation: int | None = None) -> InstanceDetail:
        """Return an instance, in its latest generation or an earlier one."""
        ...

    async def get_history(
        self, instance_id: str, *, generation: int | None = None, after: int = 0, limit: int = 200
    ) -> HistoryPage:
        """Return a page of the history of an instance, in order."""
        ...

    async def get_timeline(self, instance_id: str, *, generation: int | None = None) -> Timeline:
        """Return the timeline of an instance."""
        ...

    async def get_source(self, instance_id: str) -> str | None:
        """Return the source code that the instance runs; None if it is not stored."""
        ...

    async def explain(self, instance_id: str) -> Explanation:
        """Explain the status of an instance, and what will change it."""
        ...

    async def list_workflows(self) -> list[WorkflowSummary]:
        """Return the workflows that live workers have, or that have instances in flight."""
        ...

    async def get_schema(self, workflow: str) -> dict[str, Any] | None:
        """Return the JSON Schema of a workflow's input; None if it is not known."""
        ...

    async def get_event_schema(self, instance_id: str, op: str) -> dict[str, Any] | None:
        """Return the JSON Schema of the data that a wait expects; None if the wait has no model, or if it is not known."""
        ...

    async def list_workers(self) -> list[WorkerSummary]:
        """Return the worker processes."""
        ...

    async def list_channels(self, *, after: str = "", limit: int = 50) -> ChannelPage:
        """Return the channels by name."""
        ...

    async def list_subscribers(self, channel: str, *, after: str = "", limit: int = 50) -> SubscriberPage:
        """Return the subscribers of a channel by instance id."""
        ...

    async def list_groups(self, *, after: str = "", limit: int = 50) -> GroupPage:
        """Return the groups by name."""
        ...

    async def list_members(self, group: str, *, after: str = "", limit: int = 50) -> MemberPage:
        """Return the members of a group by instance id."""
        ...

    async def list_outbox(self, *, dead: bool | None = None, after: int = 0, limit: int = 50) -> OutboxPage:
        """Return the undelivered events and the dead letters, oldest first; with `dead`, only one of the two."""
        ...

    async def list_bulk_actions(self) -> list[BulkAction]:
        """Return the latest bulk actions, newest first."""
        ...

    async def get_bulk_action(self, batch_id: str) -> BulkAction:
        """Return a bulk action."""
        ...

    async def list_audit(self, *, instance_id: str | None = None, before: int | None = None, limit: int = 50) -> AuditPage:
        """Return the audit, newest first."""
        ...

    async def doctor(self) -> list[Finding]:
        """Run every check, and return the findings with their remedies."""
        ...

    # --- actions; `actor` is recorded in the audit

    async def start(
        self, workflow: str, input: dict[str, Any], *, instance_id: str | None = None, actor: str = ""
    ) -> StartResult:
        """Start a workflow. Raises `PayloadError`, which names the fields that are not valid."""
        ...

    async def send_event(
        self,
        type: str,
        data: Any = None,
        *,
        source: str = "romancy",
        subject: str | None = None,
        to: str | None = None,
        actor: str = "",
    ) -> SendResult:
        """Send an event, only to the instance `to` if it is given."""
        ...

    async def publish(self, channel: str, data: Any, *, to: str | None = None, actor: str = "") -> SendResult:
        """Publish a message to a channel, or send it only to the instance `to`."""
        ...

    async def preview(self, action: ActionKind, instance_id: str) -> Preview:
        """Return the effects that an action would have on an instance."""
        ...

    async def apply(
        self, action: ActionKind, ids: Sequence[str], *, reason: str | None = None, actor: str = ""
    ) -> list[ActionResult]:
        """Apply an action to each of the instances; return one result for each."""
        ...

    async def start_bulk_action(
        self, action: ActionKind, filter: str, *, reason: str | None = None, actor: str = ""
    ) -> BulkAction:
        """Begin to apply an action to every instance that matches a filter."""
        ...

    async def abort_bulk_action(self, batch_id: str, *, actor: str = "") -> BulkAction:
        """Abort a bulk action. What it has already done is not reverted."""
        ...

    async def requeue_outbox(self, ids: Sequence[int] | None = None, *, actor: str = "") -> int:
        """Requeue dead letters, all of them without `ids`; return how many."""
        ...

    async def prune(self, *, older_than: float, actor: str = "") -> int:
        """Delete the instances that ended more than `older_than` seconds ago; return how many."""
        ...

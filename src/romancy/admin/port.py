"""What an operator can ask and do. The database and an app's HTTP interface answer alike."""

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
    """Raises the errors of `romancy.errors`: `WorkflowNotFoundError`, `PayloadError`, `InvalidWorkflowStateError`,
    `WorkflowNotCancellableError`, `ConfigurationError` for a filter or token that cannot be read, `StoreError`.
    """

    # --- looking

    async def overview(self) -> Overview:
        """What needs attention, and how things go."""
        ...

    async def list_instances(self, filter: str = "", *, limit: int = 50, page_token: str | None = None) -> InstancePage:
        """Instances that fit a filter line, newest first; a search by content has a bound in time."""
        ...

    async def get_instance(self, instance_id: str, *, generation: int | None = None) -> InstanceDetail:
        """One instance."""
        ...

    async def get_history(
        self, instance_id: str, *, generation: int | None = None, after: int = 0, limit: int = 200
    ) -> HistoryPage:
        """What happened in it."""
        ...

    async def get_timeline(self, instance_id: str, *, generation: int | None = None) -> Timeline:
        """The same as stretches of time."""
        ...

    async def get_source(self, instance_id: str) -> str | None:
        """The source of the workflow as this instance ran it."""
        ...

    async def explain(self, instance_id: str) -> Explanation:
        """Why it stands where it stands."""
        ...

    async def list_workflows(self) -> list[WorkflowSummary]:
        """Workflows that live workers know, or that have instances in flight."""
        ...

    async def get_schema(self, workflow: str) -> dict[str, Any] | None:
        """The JSON Schema of a workflow's input; None if it is not known here."""
        ...

    async def get_event_schema(self, instance_id: str, op: str) -> dict[str, Any] | None:
        """The JSON Schema of the data that a wait expects; None if it has no model or is not known here."""
        ...

    async def list_workers(self) -> list[WorkerSummary]:
        """Worker processes."""
        ...

    async def list_channels(self, *, after: str = "", limit: int = 50) -> ChannelPage:
        """Channels by name."""
        ...

    async def list_subscribers(self, channel: str, *, after: str = "", limit: int = 50) -> SubscriberPage:
        """Who has subscribed to a channel."""
        ...

    async def list_groups(self, *, after: str = "", limit: int = 50) -> GroupPage:
        """Groups by name."""
        ...

    async def list_members(self, group: str, *, after: str = "", limit: int = 50) -> MemberPage:
        """Who is in a group."""
        ...

    async def list_outbox(self, *, dead: bool | None = None, after: int = 0, limit: int = 50) -> OutboxPage:
        """What waits to be sent, and what could not be."""
        ...

    async def list_bulk_actions(self) -> list[BulkAction]:
        """The last batches, newest first."""
        ...

    async def get_bulk_action(self, batch_id: str) -> BulkAction:
        """One batch."""
        ...

    async def list_audit(self, *, instance_id: str | None = None, before: int | None = None, limit: int = 50) -> AuditPage:
        """Who did what."""
        ...

    async def doctor(self) -> list[Finding]:
        """Everything that can be checked, and what to do about it."""
        ...

    # --- doing; `actor` is written down

    async def start(
        self, workflow: str, input: dict[str, Any], *, instance_id: str | None = None, actor: str = ""
    ) -> StartResult:
        """Start a workflow. Raises `PayloadError` naming the field."""
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
        """Send an event, to one instance or to everybody."""
        ...

    async def publish(self, channel: str, data: Any, *, to: str | None = None, actor: str = "") -> SendResult:
        """Publish a message, or send it to one instance."""
        ...

    async def preview(self, action: ActionKind, instance_id: str) -> Preview:
        """What an action would do."""
        ...

    async def apply(
        self, action: ActionKind, ids: Sequence[str], *, reason: str | None = None, actor: str = ""
    ) -> list[ActionResult]:
        """Do something to instances, each by itself."""
        ...

    async def start_bulk_action(
        self, action: ActionKind, filter: str, *, reason: str | None = None, actor: str = ""
    ) -> BulkAction:
        """Do something to all instances that fit a filter."""
        ...

    async def abort_bulk_action(self, batch_id: str, *, actor: str = "") -> BulkAction:
        """Stop a batch; what is done is done."""
        ...

    async def requeue_outbox(self, ids: Sequence[int] | None = None, *, actor: str = "") -> int:
        """Let dead letters be sent again: these, or all; how many."""
        ...

    async def prune(self, *, older_than: float, actor: str = "") -> int:
        """Delete instances that ended longer ago than these seconds; how many."""
        ...

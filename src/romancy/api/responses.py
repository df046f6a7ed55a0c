"""The responses that are not records of `admin.records`: lists and single values, wrapped in JSON objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from romancy.admin.records import ActionResult, BulkAction, Finding, WorkerSummary, WorkflowSummary


@dataclass(frozen=True, slots=True)
class WorkflowsResponse:
    """A list of workflows."""

    items: list[WorkflowSummary]


@dataclass(frozen=True, slots=True)
class WorkersResponse:
    """A list of workers."""

    items: list[WorkerSummary]


@dataclass(frozen=True, slots=True)
class BulkActionsResponse:
    """A list of batches, newest first."""

    items: list[BulkAction]


@dataclass(frozen=True, slots=True)
class FindingsResponse:
    """The results of all checks."""

    items: list[Finding]


@dataclass(frozen=True, slots=True)
class ActionsResponse:
    """The outcome of an action for each instance, in the order of the request."""

    items: list[ActionResult]


@dataclass(frozen=True, slots=True)
class SourceResponse:
    """The source code of a workflow, or null if it is not known."""

    source: str | None


@dataclass(frozen=True, slots=True)
class SchemaResponse:
    """A JSON Schema, or null if it is not known."""

    schema: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class CountResponse:
    """The number of events or instances that were changed."""

    count: int


@dataclass(frozen=True, slots=True)
class Problem:
    """The reason why a request failed."""

    error: str
    error_type: str
    retryable: bool
    fields: dict[str, str] | None = None
    """The errors of the invalid parts of the request, by part; null if they are not known."""

"""Answers for which `manage.records` has no shape: lists, and single values, as JSON objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from romancy.admin.records import ActionResult, BulkAction, Finding, WorkerSummary, WorkflowSummary


@dataclass(frozen=True, slots=True)
class WorkflowsResponse:
    """Workflows."""

    items: list[WorkflowSummary]


@dataclass(frozen=True, slots=True)
class WorkersResponse:
    """Worker processes."""

    items: list[WorkerSummary]


@dataclass(frozen=True, slots=True)
class BulkActionsResponse:
    """Batches, newest first."""

    items: list[BulkAction]


@dataclass(frozen=True, slots=True)
class FindingsResponse:
    """What the doctor found."""

    items: list[Finding]


@dataclass(frozen=True, slots=True)
class ActionsResponse:
    """What became of an action, for each instance in the order of the question."""

    items: list[ActionResult]


@dataclass(frozen=True, slots=True)
class SourceResponse:
    """The source of a workflow, if it is known."""

    source: str | None


@dataclass(frozen=True, slots=True)
class SchemaResponse:
    """A JSON Schema, if it is known."""

    schema: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class CountResponse:
    """How many were changed."""

    count: int


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a request was refused."""

    error: str
    error_type: str
    retryable: bool
    fields: dict[str, str] | None = None
    """What is wrong with which part of the question; only where that is known."""

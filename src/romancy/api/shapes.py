"""Answers for which `manage.records` has no shape: lists, and single values, as JSON objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from romancy.manage.records import Batch, Done, Finding, WorkerSummary, WorkflowSummary


@dataclass(frozen=True, slots=True)
class Workflows:
    """Workflows."""

    items: list[WorkflowSummary]


@dataclass(frozen=True, slots=True)
class Workers:
    """Worker processes."""

    items: list[WorkerSummary]


@dataclass(frozen=True, slots=True)
class Batches:
    """Batches, newest first."""

    items: list[Batch]


@dataclass(frozen=True, slots=True)
class Findings:
    """What the doctor found."""

    items: list[Finding]


@dataclass(frozen=True, slots=True)
class Deeds:
    """What became of a deed, for each instance in the order of the question."""

    items: list[Done]


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a workflow, if it is known."""

    source: str | None


@dataclass(frozen=True, slots=True)
class Schema:
    """A JSON Schema, if it is known."""

    schema: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Counted:
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

"""Errors under Edda's names."""

from __future__ import annotations

import asyncio

from romancy import RetryExhaustedError, TerminalError

WorkflowCancelledException = asyncio.CancelledError
"""Raised in a cancelled workflow, at its current await."""

__all__ = ["RetryExhaustedError", "TerminalError", "WorkflowCancelledException"]

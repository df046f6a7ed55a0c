"""Errors under Edda's names."""

from __future__ import annotations

import asyncio

from romancy import RetryExhaustedError, TerminalError

WorkflowCancelledException = asyncio.CancelledError
"""What a workflow that is cancelled gets, at whatever it awaits."""

__all__ = ["RetryExhaustedError", "TerminalError", "WorkflowCancelledException"]

"""A handle to one instance."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from romancy.authoring.durations import Duration
from romancy.model.instance import HistoryEntry
from romancy.model.status import Status

if TYPE_CHECKING:
    from romancy.client import Client

R_co = TypeVar("R_co", covariant=True)


class WorkflowHandle(Generic[R_co]):
    """A handle to one instance: it returns the result, the status and the history, and cancels the instance."""

    def __init__(self, client: Client, instance_id: str, decode: Callable[[bytes], R_co] | None) -> None:
        self._client = client
        self._decode = decode
        self.instance_id = instance_id

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the end of the instance and return its result.

        Raises `WorkflowFailedError` (its cause is the error the workflow failed with), `WorkflowTimeoutError`,
        `WorkflowCancelledError`, `WorkflowTerminatedError`; `TimeoutError` if the instance has not ended within `timeout`.
        """
        raw = await self._client._await_result(self.instance_id, timeout)
        if self._decode is not None:
            return self._decode(raw)
        result: R_co = await self._client._decode_result(self.instance_id, raw)
        return result

    async def status(self) -> Status:
        """Return the current status of the instance."""
        return (await self._client.get_result(self.instance_id)).status

    async def cancel(self, reason: str | None = None) -> None:
        """Request the cancellation of the instance; returns when the request is durable."""
        await self._client.cancel_workflow(self.instance_id, reason)

    def history(self) -> AsyncIterator[HistoryEntry]:
        """Iterate over the history of the instance so far, in order."""
        return self._client.history(self.instance_id)

    def __repr__(self) -> str:
        return f"<WorkflowHandle {self.instance_id}>"

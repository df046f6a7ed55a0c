"""Every error romancy raises on purpose.

    Exception
    └── RomancyError
        ├── ConfigurationError            an option, decorator or database address is wrong
        │   └── UnknownChannelModeError   subscribe() was given a mode that there is not
        ├── StoreError                    the database refused, is away, full, corrupt or newer than this code
        │   └── CodecError                stored data is encoded, and this process lacks the key or the layer
        ├── PayloadError                  a value cannot be stored, or stored data does not fit its type
        ├── InstanceConflictError         the instance id is taken by another workflow or other arguments
        ├── InvalidWorkflowStateError     the call does not fit the state the instance or the run is in
        │   └── WorkflowNotCancellableError
        ├── WorkflowNotFoundError         no such instance, or no such workflow
        ├── WorkflowFailedError           handle.result(): the instance failed (cause: the error)
        │   ├── WorkflowTimeoutError      ... because it took longer than its timeout
        │   └── WorkflowTerminatedError   ... because an operator ended it
        ├── WorkflowCancelledError        handle.result(): the instance was cancelled
        ├── DeterminismViolationError     the code no longer fits the recorded history: the instance is blocked
        ├── ActivityIDConflictError       one activity id was used twice in one generation
        ├── WorkflowIOError               a workflow asked its loop for a socket, thread or process
        ├── WorkflowStuckError            a workflow body can never go on, or spins
        ├── ActivityError                 stands for an activity's exception that cannot be rebuilt
        ├── TerminalError                 raised by an activity: never retried
        ├── RetryExhaustedError           an activity used up its attempts (cause: the last error)
        ├── ActivityTimeoutError          an attempt took longer than its timeout
        ├── LeaseLostError                this worker no longer owns the instance it works for
        ├── EventTimeoutError, ChannelMessageTimeoutError
        ├── ChannelModeConflictError, ChannelNotSubscribedError
        ├── GroupNotJoinedError
        └── BrokerError                   a broker did not take an event: it is tried again
            └── EventRejectedError        ... and never will

Errors advise: what happened, to which id, what was expected, what to do. All timeouts are `TimeoutError` too;
`PayloadError` and `UnknownChannelModeError` are `ValueError` too.
"""

from __future__ import annotations


class RomancyError(Exception):
    """The base of every error that romancy raises on purpose."""


class ConfigurationError(RomancyError):
    """An option, a decorator or a database address is wrong."""


class UnknownChannelModeError(ConfigurationError, ValueError):
    """There is no such mode of channels."""


class StoreError(RomancyError):
    """The database refused, is away, full, corrupt, or newer than this code."""

    retryable: bool = False


class CodecError(StoreError):
    """Stored data is encoded, and this process lacks the key, the layer or the blob to decode it."""


class PayloadError(RomancyError, ValueError):
    """A value cannot be stored, or stored data does not fit the type it is read as."""


class RefusedDataError(StoreError, PayloadError):
    """The database cannot store this data: a name that is too long, a character that it does not have."""


class InstanceConflictError(RomancyError):
    """The instance id is taken by another workflow or by the same one with other arguments."""


class InvalidWorkflowStateError(RomancyError):
    """The call does not fit the state the instance, or the run, is in."""


class WorkflowNotCancellableError(InvalidWorkflowStateError):
    """The instance has ended: there is nothing left to cancel."""


class WorkflowNotFoundError(RomancyError):
    """There is no instance, or no workflow, of that name."""


class WorkflowFailedError(RomancyError):
    """The instance failed; the error it failed with is the cause."""


class WorkflowTimeoutError(WorkflowFailedError, TimeoutError):
    """The instance took longer than its workflow's timeout."""


class WorkflowTerminatedError(WorkflowFailedError):
    """An operator ended the instance without compensation."""


class WorkflowCancelledError(RomancyError):
    """The instance was cancelled."""


class DeterminismViolationError(RomancyError):
    """The workflow's code no longer fits its recorded history."""


class ActivityIDConflictError(RomancyError):
    """One activity id was used twice in one generation of an instance."""


class WorkflowIOError(RomancyError):
    """Workflow code asked its loop for I/O, a thread, a process or an executor, or used what the guard refuses."""


class WorkflowStuckError(RomancyError):
    """A workflow body can never go on, or never stops running."""


class ActivityError(RomancyError):
    """Stands for an activity's exception that cannot be rebuilt in this process.

    `type` names the original class, `message` is its text, `data` what could be kept of it, `trace` its traceback.
    """

    def __init__(self, type: str, message: str, data: object = None, trace: str = "") -> None:
        super().__init__(f"{type}: {message}")
        self.type = type
        self.message = message
        self.data = data
        self.trace = trace


class TerminalError(RomancyError):
    """Raise it in an activity to say that trying again is useless."""


class RetryExhaustedError(RomancyError):
    """An activity failed as often as its policy allows; the last error is the cause."""

    def __init__(self, message: str, attempts: int = 0) -> None:
        super().__init__(message)
        self.attempts = attempts


class ActivityTimeoutError(RomancyError, TimeoutError):
    """An attempt of an activity took longer than its timeout or was silent longer than its heartbeat timeout."""


class LeaseLostError(RomancyError):
    """This worker no longer owns the instance: another has taken it over."""


class EventTimeoutError(RomancyError, TimeoutError):
    """No fitting event came in time."""


class ChannelMessageTimeoutError(RomancyError, TimeoutError):
    """No message came in time."""


class ChannelModeConflictError(RomancyError):
    """The channel has live subscribers in another mode."""


class ChannelNotSubscribedError(RomancyError):
    """The instance is not subscribed to the channel."""


class GroupNotJoinedError(RomancyError):
    """The instance is not a member of the group."""


class BrokerError(RomancyError):
    """A broker did not take an event; it may do so later, not before `retry_after` seconds if that is given."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class EventRejectedError(BrokerError):
    """A broker will never take the event: trying again is useless."""


def no_recipient(instance_id: str, status: str | None) -> RomancyError:
    """Why nothing can be sent to an instance: it does not exist (`status` is None), or it has ended."""
    if status is None:
        return WorkflowNotFoundError(f"There is no instance {instance_id!r} to send to in this database.")
    return InvalidWorkflowStateError(f"{instance_id} is {status}: it can receive nothing any more.")

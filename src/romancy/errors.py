"""The exceptions that romancy raises on purpose.

    Exception
    └── RomancyError
        ├── ConfigurationError            an option, decorator or database address is wrong
        │   └── UnknownChannelModeError   subscribe() was given a mode that does not exist
        ├── StoreError                    the database refused, is unreachable, full, corrupt or newer than this code
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
        ├── WorkflowIOError               workflow code asked its loop for a socket, thread or process
        ├── WorkflowStuckError            a workflow body can never continue, or never stops running
        ├── ActivityError                 replaces an activity's exception that cannot be rebuilt
        ├── TerminalError                 raised by an activity: never retried
        ├── RetryExhaustedError           an activity used up its attempts (cause: the last error)
        ├── ActivityTimeoutError          an attempt took longer than its timeout
        ├── LeaseLostError                this worker no longer owns the instance it works for
        ├── EventTimeoutError, ChannelMessageTimeoutError
        ├── ChannelModeConflictError, ChannelNotSubscribedError
        ├── GroupNotJoinedError
        └── BrokerError                   a broker did not accept an event: the delivery is retried
            └── EventRejectedError        ... and never will accept it: the delivery is given up

A message says what happened, to which id, what was expected, and what to do. All timeouts are `TimeoutError` too;
`PayloadError` and `UnknownChannelModeError` are `ValueError` too.
"""

from __future__ import annotations


class RomancyError(Exception):
    """The base of all exceptions that romancy raises on purpose."""


class ConfigurationError(RomancyError):
    """An option, a decorator or a database address is wrong."""


class UnknownChannelModeError(ConfigurationError, ValueError):
    """The mode given for a channel does not exist."""


class StoreError(RomancyError):
    """The database refused, or is unreachable, full, corrupt, or newer than this code."""

    retryable: bool = False


class CodecError(StoreError):
    """Stored data is encoded, and this process lacks the key, the layer or the blob to decode it."""


class PayloadError(RomancyError, ValueError):
    """A value cannot be stored, or stored data does not fit the type it is read as."""


class RefusedDataError(StoreError, PayloadError):
    """The database cannot store this data, such as a name that is too long, or a character that it does not support."""


class InstanceConflictError(RomancyError):
    """The instance id is taken by another workflow or by the same one with other arguments."""


class InvalidWorkflowStateError(RomancyError):
    """The call does not fit the state of the instance or of the run."""


class WorkflowNotCancellableError(InvalidWorkflowStateError):
    """The instance has ended: there is nothing left to cancel."""


class WorkflowNotFoundError(RomancyError):
    """There is no instance with this id, or no workflow with this name."""


class WorkflowFailedError(RomancyError):
    """The instance failed; the error it failed with is the cause."""


class WorkflowTimeoutError(WorkflowFailedError, TimeoutError):
    """The instance took longer than its workflow's timeout."""


class WorkflowTerminatedError(WorkflowFailedError):
    """An operator terminated the instance, without compensation."""


class WorkflowCancelledError(RomancyError):
    """The instance was cancelled."""


class DeterminismViolationError(RomancyError):
    """The workflow's code no longer fits its recorded history."""


class ActivityIDConflictError(RomancyError):
    """One activity id was used twice in one generation of an instance."""


class WorkflowIOError(RomancyError):
    """Workflow code asked its loop for I/O, a thread, a process or an executor, or made a call that the guard refuses."""


class WorkflowStuckError(RomancyError):
    """A workflow body can never continue, or never stops running."""


class ActivityError(RomancyError):
    """The substitute for an activity's exception that cannot be rebuilt in this process.

    `type` is the name of the original class, `message` its text, `data` the attributes that could be stored, and `trace` its
    traceback.
    """

    def __init__(self, type: str, message: str, data: object = None, trace: str = "") -> None:
        super().__init__(f"{type}: {message}")
        self.type = type
        self.message = message
        self.data = data
        self.trace = trace


class TerminalError(RomancyError):
    """Raised by an activity that must not be retried."""


class RetryExhaustedError(RomancyError):
    """An activity failed as often as its retry policy allows; the last error is the cause."""

    def __init__(self, message: str, attempts: int = 0) -> None:
        super().__init__(message)
        self.attempts = attempts


class ActivityTimeoutError(RomancyError, TimeoutError):
    """An attempt of an activity took longer than its timeout, or sent no heartbeat within its heartbeat timeout."""


class LeaseLostError(RomancyError):
    """This worker no longer owns the instance: another has taken it over."""


class EventTimeoutError(RomancyError, TimeoutError):
    """No matching event arrived in time."""


class ChannelMessageTimeoutError(RomancyError, TimeoutError):
    """No message arrived in time."""


class ChannelModeConflictError(RomancyError):
    """The channel has live subscribers in another mode."""


class ChannelNotSubscribedError(RomancyError):
    """The instance is not subscribed to the channel."""


class GroupNotJoinedError(RomancyError):
    """The instance is not a member of the group."""


class BrokerError(RomancyError):
    """A broker did not accept an event, but may later: not before `retry_after` seconds, if that is given."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class EventRejectedError(BrokerError):
    """A broker will never accept the event, so its delivery is not retried."""


def no_recipient(instance_id: str, status: str | None) -> RomancyError:
    """Return the error for a message to an instance that does not exist (`status` is None) or has ended."""
    if status is None:
        return WorkflowNotFoundError(f"The message was not sent: there is no instance {instance_id!r} in this database.")
    return InvalidWorkflowStateError(f"The message was not sent: instance {instance_id!r} is {status}.")

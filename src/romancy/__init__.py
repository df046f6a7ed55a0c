"""Durable execution for Python, without a server.

A workflow orchestrates activities. Every result is recorded; after a crash the workflow continues where it stopped.
"""

from romancy.app import App
from romancy.auth import Token
from romancy.authoring.activity import Activity, activity
from romancy.authoring.channels import publish, receive, send_to, subscribe, unsubscribe
from romancy.authoring.compensation import register_compensation
from romancy.authoring.context import ActivityContext, WorkflowContext
from romancy.authoring.control import recur
from romancy.authoring.durations import Duration
from romancy.authoring.events import send_event, wait_event
from romancy.authoring.groups import get_group_members, join_group, leave_group, send_to_group
from romancy.authoring.timers import sleep, sleep_until
from romancy.authoring.workflow import Workflow, WorkflowRef, workflow
from romancy.brokers.http import HTTPBroker
from romancy.client import Client
from romancy.codec import Compress, Encrypt, FileBlobs, Offload
from romancy.core.futures import Operation
from romancy.errors import (
    ActivityError,
    ActivityIDConflictError,
    ActivityTimeoutError,
    BrokerError,
    ChannelMessageTimeoutError,
    ChannelModeConflictError,
    ChannelNotSubscribedError,
    CodecError,
    ConfigurationError,
    DeterminismViolationError,
    EventRejectedError,
    EventTimeoutError,
    GroupNotJoinedError,
    InstanceConflictError,
    InvalidWorkflowStateError,
    LeaseLostError,
    PayloadError,
    RefusedDataError,
    RetryExhaustedError,
    RomancyError,
    StoreError,
    TerminalError,
    UnknownChannelModeError,
    WorkflowCancelledError,
    WorkflowFailedError,
    WorkflowIOError,
    WorkflowNotCancellableError,
    WorkflowNotFoundError,
    WorkflowStuckError,
    WorkflowTerminatedError,
    WorkflowTimeoutError,
)
from romancy.handle import WorkflowHandle
from romancy.hooks import Hooks
from romancy.http.wsgi import to_wsgi
from romancy.model.instance import (
    AttemptEntry,
    Error,
    HistoryEntry,
    Instance,
    JournalLine,
    Page,
    WaitingFor,
    WorkflowResult,
)
from romancy.model.messaging import AcceptedEvent, ChannelMode, ReceivedEvent, ReceivedMessage, UndeliverableEvent
from romancy.model.outbox import OutboxEntry
from romancy.model.retry import RetryPolicy
from romancy.model.status import Status

__version__ = "0.1.0"
__all__ = [
    "AcceptedEvent",
    "Activity",
    "ActivityContext",
    "ActivityError",
    "ActivityIDConflictError",
    "ActivityTimeoutError",
    "App",
    "AttemptEntry",
    "BrokerError",
    "ChannelMessageTimeoutError",
    "ChannelMode",
    "ChannelModeConflictError",
    "ChannelNotSubscribedError",
    "Client",
    "CodecError",
    "Compress",
    "ConfigurationError",
    "DeterminismViolationError",
    "Duration",
    "Encrypt",
    "Error",
    "EventRejectedError",
    "EventTimeoutError",
    "FileBlobs",
    "GroupNotJoinedError",
    "HTTPBroker",
    "HistoryEntry",
    "Hooks",
    "Instance",
    "InstanceConflictError",
    "InvalidWorkflowStateError",
    "JournalLine",
    "LeaseLostError",
    "Offload",
    "Operation",
    "OutboxEntry",
    "Page",
    "PayloadError",
    "ReceivedEvent",
    "ReceivedMessage",
    "RefusedDataError",
    "RetryExhaustedError",
    "RetryPolicy",
    "RomancyError",
    "Status",
    "StoreError",
    "TerminalError",
    "Token",
    "UndeliverableEvent",
    "UnknownChannelModeError",
    "WaitingFor",
    "Workflow",
    "WorkflowCancelledError",
    "WorkflowContext",
    "WorkflowFailedError",
    "WorkflowHandle",
    "WorkflowIOError",
    "WorkflowNotCancellableError",
    "WorkflowNotFoundError",
    "WorkflowRef",
    "WorkflowResult",
    "WorkflowStuckError",
    "WorkflowTerminatedError",
    "WorkflowTimeoutError",
    "__version__",
    "activity",
    "get_group_members",
    "join_group",
    "leave_group",
    "publish",
    "receive",
    "recur",
    "register_compensation",
    "send_event",
    "send_to",
    "send_to_group",
    "sleep",
    "sleep_until",
    "subscribe",
    "to_wsgi",
    "unsubscribe",
    "wait_event",
    "workflow",
]

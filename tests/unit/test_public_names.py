"""The public names; a new one is added here on purpose."""

from __future__ import annotations

import romancy

PUBLIC = [
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


def test_the_public_names_are_these() -> None:
    assert sorted(romancy.__all__) == PUBLIC


def test_they_are_listed_in_order_and_once() -> None:
    assert romancy.__all__ == sorted(set(romancy.__all__))


def test_every_one_can_be_imported() -> None:
    found: dict[str, object] = {}
    exec("from romancy import *", found)
    assert not set(PUBLIC) - set(found)


def test_every_one_says_what_it_is() -> None:
    silent = [name for name in PUBLIC if callable(getattr(romancy, name)) and not getattr(romancy, name).__doc__]
    assert silent == []

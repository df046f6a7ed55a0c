"""The earlier name of `channels`."""

from romancy.integrations.edda.channels import (
    EventTimeoutError,
    ReceivedEvent,
    send_event,
    sleep,
    sleep_until,
    wait_event,
    wait_timer,
    wait_until,
)

__all__ = [
    "EventTimeoutError",
    "ReceivedEvent",
    "send_event",
    "sleep",
    "sleep_until",
    "wait_event",
    "wait_timer",
    "wait_until",
]

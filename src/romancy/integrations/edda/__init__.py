"""A compatibility layer: Edda's API on top of romancy.

    from romancy.integrations.edda import EddaApp, WorkflowContext, activity, wait_event, workflow

A program written for Edda runs after its imports are changed: `edda` becomes `romancy.integrations.edda`, submodules too.
Names of Edda without a counterpart raise an error that says what to use instead. Every object has an attribute `romancy`
with the romancy object behind it, so that a program can be migrated one function at a time.

    context            WorkflowContext: the first parameter of workflows, activities and compensations
    current_app        the app that `wf.start()` and `send_event()` use
    retry              RetryPolicy and predefined policies
    compensation       @compensation, @on_failure, register_compensation
    activity           @activity
    workflow           @workflow, wf.start(...)
    channels           events, channels and timers; `events` is its older name
    outbox             send_event_transactional
    hooks              HooksBase, WorkflowHooks
    result_types       result types of activities and workflows, by name
    addressed_events   the extension `eddainstanceid`
    facades            app.storage, app.replay_engine
    app                EddaApp
    integrations       mcp, opentelemetry
    unsupported        what is not offered, and what to use instead
"""

from __future__ import annotations

from typing import Any

from romancy.integrations.edda.activity import activity
from romancy.integrations.edda.app import EddaApp
from romancy.integrations.edda.channels import (
    ChannelMessage,
    EventTimeoutError,
    ReceivedEvent,
    publish,
    receive,
    send_event,
    send_to,
    sleep,
    sleep_until,
    subscribe,
    unsubscribe,
    wait_event,
    wait_timer,
    wait_until,
)
from romancy.integrations.edda.compensation import compensation, on_failure, register_compensation
from romancy.integrations.edda.context import WorkflowContext
from romancy.integrations.edda.exceptions import RetryExhaustedError, TerminalError
from romancy.integrations.edda.hooks import HooksBase, WorkflowHooks
from romancy.integrations.edda.outbox import OutboxRelayer, send_event_transactional
from romancy.integrations.edda.retry import RetryPolicy
from romancy.integrations.edda.unsupported import MODULE, MODULES, explain_missing_modules, no_name
from romancy.integrations.edda.workflow import workflow
from romancy.integrations.edda.wsgi import create_wsgi_app

__all__ = [
    "ChannelMessage",
    "EddaApp",
    "EventTimeoutError",
    "HooksBase",
    "OutboxRelayer",
    "ReceivedEvent",
    "RetryExhaustedError",
    "RetryPolicy",
    "TerminalError",
    "WorkflowContext",
    "WorkflowHooks",
    "activity",
    "compensation",
    "create_wsgi_app",
    "on_failure",
    "publish",
    "receive",
    "register_compensation",
    "send_event",
    "send_event_transactional",
    "send_to",
    "sleep",
    "sleep_until",
    "subscribe",
    "unsubscribe",
    "wait_event",
    "wait_timer",
    "wait_until",
    "workflow",
]


def __getattr__(name: str) -> Any:
    """Raise an error for an unknown name that says what to use instead."""
    raise no_name(__name__, name, {**MODULE, **MODULES}, __all__)


explain_missing_modules()

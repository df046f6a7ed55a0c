"""Hooks: user objects whose methods are called after each commit, and the queue that calls them."""

from romancy.hooks.hooks import HOOK_METHODS as HOOK_METHODS
from romancy.hooks.hooks import ActivityCacheHit as ActivityCacheHit
from romancy.hooks.hooks import ActivityCompleted as ActivityCompleted
from romancy.hooks.hooks import ActivityFailed as ActivityFailed
from romancy.hooks.hooks import ActivityRetried as ActivityRetried
from romancy.hooks.hooks import ActivityStarted as ActivityStarted
from romancy.hooks.hooks import EventReceived as EventReceived
from romancy.hooks.hooks import EventSent as EventSent
from romancy.hooks.hooks import EventTimedOut as EventTimedOut
from romancy.hooks.hooks import EventWaitCompleted as EventWaitCompleted
from romancy.hooks.hooks import EventWaitStarted as EventWaitStarted
from romancy.hooks.hooks import Hooks as Hooks
from romancy.hooks.hooks import HooksOption as HooksOption
from romancy.hooks.hooks import Info as Info
from romancy.hooks.hooks import ReplayCompleted as ReplayCompleted
from romancy.hooks.hooks import ReplayStarted as ReplayStarted
from romancy.hooks.hooks import TimerFired as TimerFired
from romancy.hooks.hooks import TimerStarted as TimerStarted
from romancy.hooks.hooks import WorkflowCancelled as WorkflowCancelled
from romancy.hooks.hooks import WorkflowCompleted as WorkflowCompleted
from romancy.hooks.hooks import WorkflowFailed as WorkflowFailed
from romancy.hooks.hooks import WorkflowRecurred as WorkflowRecurred
from romancy.hooks.hooks import WorkflowStarted as WorkflowStarted
from romancy.hooks.hooks import read_hooks as read_hooks

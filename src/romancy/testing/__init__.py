"""Tools for tests of workflows: virtual time, forced replay, named crash points, replay of recorded histories.

    async with TestEnvironment(workflows=[checkout]) as env:
        handle = await env.app.start_workflow(checkout, order)
        assert await handle.result() == ...          # a year of sleeping passes at once

`env.advance(...)` moves the clock; `env.crash_at("commit.after")` simulates a crash at that point once, after which a new
worker takes over; `replay_history(...)` checks code against a recorded history. The fixture `romancy_env` of the pytest
plugin is an environment for all imported workflows: `async with romancy_env as env`.
"""

from romancy.crash_points import POINTS, SimulatedCrash
from romancy.testing.environment import CrashPointNotReached, TestEnvironment, VirtualClock
from romancy.testing.histories import RecordedHistory, Replayed, record_history, replay_history

__all__ = [
    "POINTS",
    "CrashPointNotReached",
    "RecordedHistory",
    "Replayed",
    "SimulatedCrash",
    "TestEnvironment",
    "VirtualClock",
    "record_history",
    "replay_history",
]

"""Orders that once violated an invariant."""

from __future__ import annotations

import pytest
from tests.explore.explorer import open_explorer
from tests.explore.participants import ExternalSender, Participants
from tests.explore.scheduler import Scheduler
from tests.explore.small_scenarios import for_event, item, listener, small
from tests.explore.strategies import ScriptedStrategy

_WRITTEN = ("a batch", "a commit", "a committed")


@pytest.mark.parametrize("cache_size", [0, 1000])
async def test_a_cancellation_is_read_while_an_activity_ends(cache_size: int) -> None:
    """The cancellation ended the body, and the next transition was taken before the end was recorded."""
    participants = Participants(small("x", "event", 1, 1, "outside", busy=True).listeners, (), ())
    async with open_explorer(1, Scheduler(extra_gates=True, gates_batches=True), cache_size=cache_size) as explorer:
        await explorer.run_round(
            participants,
            ScriptedStrategy(
                *("a start x/l0", "a batch", "a committed"),
                *_WRITTEN,  # it waits for the event and runs the activity
                "cancel x/l0",
                *_WRITTEN,
                "notify a: wake x/l0",  # it begins to read its inbox and is notified a second time
                *("a polls", "a unread", "notify a: wake x/l0", "a upcoming"),
                " work of x/l0",
                "a inbox x/l0",
                may=_WRITTEN,
            ),
        )


@pytest.mark.parametrize("cache_size", [0, 1000])
async def test_a_generation_is_woken_before_it_has_begun(cache_size: int) -> None:
    """The inbox was read before the body had begun, so the instance was released and nothing would wake it."""
    waiting = listener("x/l0", [for_event("x/c")], rounds=2, recur=1)
    sent_item = item("x/o", 0, "event", type="x/c", id="x/e")
    async with open_explorer(1, Scheduler(extra_gates=True, gates_batches=True), cache_size=cache_size) as explorer:
        await explorer.run_round(
            Participants([waiting], (), [ExternalSender("x/o", 0, [sent_item])]),
            ScriptedStrategy(
                *("a start x/l0", "a batch", "a committed"),
                "a send 0 of x/o",
                *_WRITTEN,  # it has received the event and recurs
                *("pause x/l0", "resume x/l0"),
                *_WRITTEN,
                "notify a: wake x/l0",
                may=("newest a inbox x/l0", *_WRITTEN),
            ),
        )

"""Orders in which something once went wrong."""

from __future__ import annotations

import pytest
from tests.explore.explorer import laboratory
from tests.explore.participants import Cast, Outsider
from tests.explore.scheduler import Hand
from tests.explore.small_scenarios import for_event, item, listener, small
from tests.explore.strategies import Script

_SERVED = ("a gather", "a commit", "a committed")


@pytest.mark.parametrize("warm", [0, 1000])
async def test_a_cancellation_is_read_while_an_activity_ends(warm: int) -> None:
    """It ended the body, and before the end was judged the next transition was taken: ended, but without an ending."""
    cast = Cast(small("x", "event", 1, 1, "outside", busy=True).listeners, (), ())
    async with laboratory(1, Hand(reads=True, gathers=True), warm=warm) as there:
        await there.play(
            cast,
            Script(
                *("a start x/l0", "a gather", "a committed"),
                *_SERVED,  # it waits, and is busy
                "cancel x/l0",
                *_SERVED,
                "tell a call x/l0",  # it begins to read its inbox, and is called a second time
                *("a looks", "a arrivals", "tell a call x/l0", "a upcoming"),
                " work of x/l0",
                "a inbox x/l0",
                may=_SERVED,
            ),
        )


@pytest.mark.parametrize("warm", [0, 1000])
async def test_a_generation_is_called_before_it_has_begun(warm: int) -> None:
    """What it was called for was read before its body had begun: it was released, and nothing would wake it."""
    waiting = listener("x/l0", [for_event("x/c")], rounds=2, recur=1)
    said = item("x/o", 0, "event", type="x/c", id="x/e")
    async with laboratory(1, Hand(reads=True, gathers=True), warm=warm) as there:
        await there.play(
            Cast([waiting], (), [Outsider("x/o", 0, [said])]),
            Script(
                *("a start x/l0", "a gather", "a committed"),
                "a send 0 of x/o",
                *_SERVED,  # it has heard, and recurs
                *("pause x/l0", "resume x/l0"),
                *_SERVED,
                "tell a call x/l0",
                may=("newest a inbox x/l0", *_SERVED),
            ),
        )

"""Faults that are planted on purpose, to see that the comparison finds them: `ROMANCY_CHAOS_PLANT=name:n`, one in n.

They are in the campaign's own code: before the app (see `app`), and in its workflows (see `town`).
"""

from __future__ import annotations

import os
from enum import StrEnum
from hashlib import blake2b

VARIABLE = "ROMANCY_CHAOS_PLANT"


class Plant(StrEnum):
    """Where something goes wrong."""

    LOST_START = "lost-start"
    """It is acknowledged, and not done."""
    LOST_EVENT = "lost-event"
    LOST_MESSAGE = "lost-message"
    LOST_CANCEL = "lost-cancel"
    REFUSED_START = "refused-start"
    """It is done, and refused."""
    REFUSED_EVENT = "refused-event"
    REFUSED_MESSAGE = "refused-message"
    REFUSED_CANCEL = "refused-cancel"
    DOUBLED_EVENT = "doubled-event"
    """It is done twice."""
    DOUBLED_MESSAGE = "doubled-message"
    DISORDERED_MESSAGE = "disordered-message"
    """It is acknowledged, and done after the next one that goes the same way."""
    DOUBLED_ROW = "doubled-row"
    LOST_ROW = "lost-row"
    LOST_COMPENSATION = "lost-compensation"
    LOST_LETTER = "lost-letter"


def planted(plant: Plant, key: str) -> bool:
    """Whether it goes wrong for this one. The same again when a workflow is replayed, or asked for again."""
    # Not by a checksum: those of `a.one` and `a.two` differ as those of `b.one` and `b.two` do, so both go wrong or neither.
    name, _, every = os.environ.get(VARIABLE, "").partition(":")
    return name == plant and key != "" and blake2b(key.encode()).digest()[0] % int(every) == 0

"""Faults that are planted to test the comparison: `ROMANCY_CHAOS_PLANT=name:n` affects one call in n.

They are part of the campaign's own code: of its app (see `app`) and its workflows (see `campaign_workflows`).
"""

from __future__ import annotations

import os
from enum import StrEnum
from hashlib import blake2b

VARIABLE = "ROMANCY_CHAOS_PLANT"


class Plant(StrEnum):
    """The faults that can be planted."""

    LOST_START = "lost-start"
    """Acknowledged, but not done."""
    LOST_EVENT = "lost-event"
    LOST_MESSAGE = "lost-message"
    LOST_CANCEL = "lost-cancel"
    REFUSED_START = "refused-start"
    """Done, but refused."""
    REFUSED_EVENT = "refused-event"
    REFUSED_MESSAGE = "refused-message"
    REFUSED_CANCEL = "refused-cancel"
    DOUBLED_EVENT = "doubled-event"
    """Done twice."""
    DOUBLED_MESSAGE = "doubled-message"
    DISORDERED_MESSAGE = "disordered-message"
    """Acknowledged, but done after the next message with the same order key."""
    DOUBLED_ROW = "doubled-row"
    LOST_ROW = "lost-row"
    LOST_COMPENSATION = "lost-compensation"
    LOST_LETTER = "lost-letter"


def planted(plant: Plant, key: str) -> bool:
    """Whether the fault affects this key; the same again in a replay or a repeated request."""
    # Not a checksum: those of `a.one` and `a.two` differ like those of `b.one` and `b.two`, so both or neither would be hit.
    name, _, every = os.environ.get(VARIABLE, "").partition(":")
    return name == plant and key != "" and blake2b(key.encode()).digest()[0] % int(every) == 0

"""The shapes of writes that are so common that databases have short ways for them."""

from __future__ import annotations

from typing import TypeGuard

from romancy.model.transition import FIRST_EXTRA, NO_EXTRAS, Transition, Write

MAX_STEP_ENTRIES = 32
"""Entries of a step; one with more goes the long way."""


def is_step(write: Write) -> TypeGuard[Transition]:
    """Nothing but the history changes, unless the instance is no longer as its run knows it."""
    if type(write) is not Transition or not write.keep_owned or write.ending is not None or write.length is None:
        return False
    if write.wake_at is not None or write.retrying_since is not None or has_extras(write):
        return False
    # The entry after the last one is what a step that was committed already collides with.
    history = write.history
    return 0 < len(history) <= MAX_STEP_ENTRIES and history[0].seq == write.length + 1


def has_extras(write: Transition) -> bool:
    """It is a claim as well, or more than the history and the end is to be written."""
    return write.new_epoch != write.epoch or write[FIRST_EXTRA:] != NO_EXTRAS

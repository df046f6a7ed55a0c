"""Recognises writes that are so common that the databases have a fast path for them."""

from __future__ import annotations

from typing import TypeGuard

from romancy.model.transition import FIRST_EXTRA, NO_EXTRAS, Transition, Write

MAX_STEP_ENTRIES = 32
"""Most history entries of a step; a transition with more takes the slow path."""


def is_step(write: Write) -> TypeGuard[Transition]:
    """Whether the write is a step: it only appends to the history, provided the instance is as its run knows it."""
    if type(write) is not Transition or not write.keep_owned or write.ending is not None or write.length is None:
        return False
    if write.wake_at is not None or write.retrying_since is not None or has_extras(write):
        return False
    # The first entry follows the stored history directly: a step that was committed already collides with its own rows.
    history = write.history
    return 0 < len(history) <= MAX_STEP_ENTRIES and history[0].seq == write.length + 1


def has_extras(write: Transition) -> bool:
    """Whether the transition also claims the instance, or writes more than history and end."""
    return write.new_epoch != write.epoch or write[FIRST_EXTRA:] != NO_EXTRAS

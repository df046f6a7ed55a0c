"""Which items of an instance's inbox its runner has seen, consumed, or must read again."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from romancy.model.instance import InboxItem
from romancy.model.transition import RESULT_ITEM


class RunnerInbox:
    """The runner's view of its instance's inbox."""

    __slots__ = ("consumed", "is_reading", "must_reread", "pausing", "recently_consumed", "seen")

    def __init__(self, seen: int) -> None:
        self.seen = seen
        """The newest version of the inbox that the run has seen."""
        self.is_reading = False
        self.must_reread = False
        """Items may have arrived since the last read began."""
        self.consumed: list[int] = []
        """The items that the next transition consumes."""
        self.recently_consumed: set[int] = set()
        """The items that were consumed during the current read, which may still return them."""
        self.pausing = False
        """The inbox has a pause: nothing new is started, and the instance is paused as soon as no attempt runs."""

    def accept(self, items: Iterable[InboxItem], running: Container[str]) -> Iterator[InboxItem]:
        """Yield the items to apply to the run, each marked as consumed; `running`: the operations with an attempt here."""
        pauses: list[int] = []
        for item in items:
            if item.id in self.consumed or item.id in self.recently_consumed:
                continue
            if item.kind == RESULT_ITEM and item.op in running:
                continue  # the running attempt reports its result itself
            if item.kind == "pause":
                # A pause stays in the inbox until the instance is resumed: consumed earlier, it would not outlive a crash.
                pauses.append(item.id)
                continue
            self.consumed.append(item.id)
            if item.kind == "cancel":
                self.consumed += pauses
                pauses.clear()
            yield item
        self.pausing = bool(pauses)

    def mark_committed(self, items: tuple[int, ...]) -> None:
        """These items were consumed by a transition that is durable now."""
        if self.is_reading:
            self.recently_consumed.update(items)
        self.consumed = [one for one in self.consumed if one not in items]

"""What was asked of the store and is not answered: instances that may be ours, and that are begun by the answer only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from romancy.model.transition import CreateInstance


class PendingWrites:
    """Instances that something asked of the store is about, as long as its answer is not here.

    The store may say already that they are ours: the COMMIT is done, and its answer is on its way, or being found out after
    a cut line. The answer begins them, or says that nothing will; until then nothing else may, however long it takes.
    """

    __slots__ = ("_ids", "_unnamed_count")

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._unnamed_count = 0

    def __contains__(self, instance_id: str) -> bool:
        return instance_id in self._ids or self._unnamed_count > 0

    def is_named(self, instance_id: str) -> bool:
        """This one was named, and not only may be among them."""
        return instance_id in self._ids

    def begin(self, ids: Iterable[str]) -> None:
        """Something is asked about these."""
        for instance_id in ids:
            self._ids[instance_id] = self._ids.get(instance_id, 0) + 1

    def end(self, ids: Iterable[str]) -> None:
        """It was answered; who else waits for an answer about them still does."""
        for instance_id in ids:
            left = self._ids.get(instance_id, 0) - 1
            if left > 0:
                self._ids[instance_id] = left
            else:
                self._ids.pop(instance_id, None)

    @contextmanager
    def pending(self, ids: Iterable[str] | None) -> Iterator[None]:
        """Ask within this about these; None: the answer only says about which."""
        named = () if ids is None else tuple(ids)
        self._unnamed_count += ids is None
        self.begin(named)
        try:
            yield
        finally:
            self._unnamed_count -= ids is None
            self.end(named)


def owned_starts(creates: Iterable[CreateInstance]) -> list[str]:
    """The new instances that the answer begins, if it says that they were written: those that are not left to others."""
    return [create.instance_id for create in creates if create.owner is not None]

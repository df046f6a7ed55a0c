"""Tracks writes and claims in flight, so that nothing but their results starts the instances they concern."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from romancy.model.transition import CreateInstance


class PendingWrites:
    """The instances that writes or claims in flight may make owned by this worker.

    The store may show already that this worker owns them: the COMMIT is done, and its result is on the way, or is being
    determined after a lost connection. The result starts them, or says that they are not owned. Until then nothing else
    may start them, however long it takes.
    """

    __slots__ = ("_ids", "_unnamed_count")

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._unnamed_count = 0

    def __contains__(self, instance_id: str) -> bool:
        return instance_id in self._ids or self._unnamed_count > 0

    def is_named(self, instance_id: str) -> bool:
        """The instance is known to be pending; `in` also counts claims whose ids are not known yet."""
        return instance_id in self._ids

    def begin(self, ids: Iterable[str]) -> None:
        """A write or claim of these instances begins; several may be in flight for one instance."""
        for instance_id in ids:
            self._ids[instance_id] = self._ids.get(instance_id, 0) + 1

    def end(self, ids: Iterable[str]) -> None:
        """A write or claim of these instances has its result."""
        for instance_id in ids:
            left = self._ids.get(instance_id, 0) - 1
            if left > 0:
                self._ids[instance_id] = left
            else:
                self._ids.pop(instance_id, None)

    @contextmanager
    def pending(self, ids: Iterable[str] | None) -> Iterator[None]:
        """Mark these instances as pending within the context. None: their ids are known only from the result."""
        named = () if ids is None else tuple(ids)
        self._unnamed_count += ids is None
        self.begin(named)
        try:
            yield
        finally:
            self._unnamed_count -= ids is None
            self.end(named)


def owned_starts(creates: Iterable[CreateInstance]) -> list[str]:
    """The ids of the new instances that are created with an owner, and so are begun here by the result of the write."""
    return [create.instance_id for create in creates if create.owner is not None]

"""The only source of chance. Everything else gets an `Ids`."""

from __future__ import annotations

import os
from typing import Protocol


class Ids(Protocol):
    """Makes names that nobody else has; tests put their own in its place."""

    def instance_id(self, now: int) -> str:
        """A new instance id. Ids of one time sort together, so that the database writes them side by side."""
        ...

    def incarnation(self) -> str:
        """A suffix that tells this start of a worker from every other."""
        ...


class RandomIds:
    """Ids by the machine's chance: UUIDs of version 7."""

    def instance_id(self, now: int) -> str:
        """A UUIDv7: 48 bits of milliseconds, then chance."""
        time, chance = f"{now // 1000:012x}", os.urandom(10).hex()
        variant = "89ab"[int(chance[3], 16) & 3]
        return f"{time[:8]}-{time[8:]}-7{chance[:3]}-{variant}{chance[4:7]}-{chance[7:19]}"

    def incarnation(self) -> str:
        """Eight characters of chance."""
        return os.urandom(4).hex()


def random_bytes(size: int) -> bytes:
    """Bytes that nobody can guess."""
    return os.urandom(size)

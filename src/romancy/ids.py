"""Ids and random bytes. Only this module uses randomness; all other code is given an `Ids`."""

from __future__ import annotations

import os
from typing import Protocol


class Ids(Protocol):
    """A source of unique ids; tests replace it."""

    def instance_id(self, now: int) -> str:
        """Return a new instance id. Ids of about the same time sort together, so the database writes them side by side."""
        ...

    def incarnation(self) -> str:
        """Return a suffix that tells this start of a worker from all others."""
        ...


class RandomIds:
    """Random ids: instance ids are UUIDs of version 7."""

    def instance_id(self, now: int) -> str:
        """Return a UUIDv7: 48 bits of milliseconds, then random bits."""
        time, digits = f"{now // 1000:012x}", os.urandom(10).hex()
        variant = "89ab"[int(digits[3], 16) & 3]
        return f"{time[:8]}-{time[8:]}-7{digits[:3]}-{variant}{digits[4:7]}-{digits[7:19]}"

    def incarnation(self) -> str:
        """Return eight random hexadecimal digits."""
        return os.urandom(4).hex()


def random_bytes(size: int) -> bytes:
    """Return random bytes that cannot be guessed."""
    return os.urandom(size)

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
        value = (now // 1000) << 80 | int.from_bytes(os.urandom(10), "big")
        value = value & ~(0xF << 76) | 0x7 << 76
        value = value & ~(0x3 << 62) | 0x2 << 62
        text = f"{value:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def incarnation(self) -> str:
        """Eight characters of chance."""
        return os.urandom(4).hex()

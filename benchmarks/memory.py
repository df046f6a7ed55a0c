"""Measures the memory of this process."""

from __future__ import annotations

import gc
import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def resident_mb() -> float:
    """Return resident megabytes after a garbage collection; without /proc, the maximum so far."""
    gc.collect()
    if _STATUS.exists():
        line = next(text for text in _STATUS.read_text().splitlines() if text.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1024 * 1024 if sys.platform == "darwin" else 1024)

"""How much memory this process occupies now."""

from __future__ import annotations

import gc
import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def resident_mb() -> float:
    """Resident megabytes, after a collection; where the system does not tell, the most it ever was."""
    gc.collect()
    if _STATUS.exists():
        line = next(one for one in _STATUS.read_text().splitlines() if one.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1024 * 1024 if sys.platform == "darwin" else 1024)

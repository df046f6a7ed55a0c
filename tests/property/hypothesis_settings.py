"""How the property tests are run."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings


def examples(usual: int) -> int:
    """How many programs to try; more with `ROMANCY_EXAMPLES`."""
    return int(os.environ.get("ROMANCY_EXAMPLES", usual))


def unhurried(most: int) -> settings:
    """Programs are large and slow to make; a failing one is printed, never kept."""
    return settings(
        max_examples=most,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.data_too_large, HealthCheck.filter_too_much, HealthCheck.too_slow],
    )

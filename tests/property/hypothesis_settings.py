"""Settings of the property tests."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings


def examples(usual: int) -> int:
    """How many programs to try: `ROMANCY_EXAMPLES=5000` is a number for every search, `25%` a share of the usual one."""
    wanted = os.environ.get("ROMANCY_EXAMPLES", "100%")
    return max(1, usual * int(wanted[:-1]) // 100) if wanted.endswith("%") else int(wanted)


def unhurried(most: int) -> settings:
    """Settings for programs that are large and slow to generate; a failing one is printed, but not stored."""
    return settings(
        max_examples=most,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.data_too_large, HealthCheck.filter_too_much, HealthCheck.too_slow],
    )

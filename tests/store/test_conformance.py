"""SQLite does what every store does."""

from tests.store.conformance import *  # noqa: F403

"""SQLite does what every store does."""

from romancy.testing.conformance import *  # noqa: F403

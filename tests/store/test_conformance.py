"""The conformance suite on every database."""

from tests.store.conformance import *  # noqa: F403

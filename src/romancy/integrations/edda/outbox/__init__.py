"""Edda's outbox."""

from romancy.integrations.edda.outbox.relayer import OutboxRelayer
from romancy.integrations.edda.outbox.transactional import send_event_transactional

__all__ = ["OutboxRelayer", "send_event_transactional"]

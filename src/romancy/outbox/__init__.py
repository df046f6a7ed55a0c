"""Delivers events from the outbox to the brokers.

    commit of a step ──► romancy_outbox ──► relay: claim ──► broker.send ──► record the outcome
                                              ▲                               │
                              poll at once, when due, every outbox_interval ──┘

An app has a relay for each of its brokers. May import the store's port, the brokers' and below; relays and workers share
only the store.
"""

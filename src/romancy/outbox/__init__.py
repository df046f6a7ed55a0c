"""From the outbox to the brokers.

    commit of a step ──► romancy_outbox ──► relay: claim ──► broker.send ──► settle
                                              ▲                               │
                              look at once, when due, every outbox_interval ──┘

A relay for each broker of an app. May import the store's port, the brokers' and below; the worker it meets in the store.
"""

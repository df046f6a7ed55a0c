"""The operators' interface: the queries and actions that the API, the viewer and the command line share.

    viewer ─┐
    api ────┼─► Manager ──► the store's port (queries), the client's methods (actions)
    cli ────┘

`records` holds the records that all three show. `filters` is the grammar by which instances are selected. `explain` gives
the reason for the status of an instance, and what will change it. Nothing here depends on a terminal, and only `remote`, a
client of the API, depends on HTTP.
"""

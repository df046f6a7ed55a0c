"""The durable state: the port that every database implements, and how a store is opened.

`port` declares the store's operations, on the frozen records of `romancy.model`. `open` turns a database address into a
store and is the only module that knows the dialects. `committer` collects the writes of the whole process into few
transactions. `migrator` reads numbered SQL files. Each database has its own statements, in `.sql` files of its own.

    start_workflow, runners, requests ──► committer ──► store.commit(batch) ──► COMMIT ──► one result for each write

May import `serde`, `core`, `model`.
"""

"""Where truth lives: the port every database implements, and how one is opened.

`port` is the list of verbs, on the frozen records of `romancy.model`. `open` turns a database address into a store and is
the only module that knows the dialects. `committer` gathers the writes of a whole process into few transactions.
`migrator` reads numbered SQL files. Behind the port each database writes its best SQL, in `.sql` files of its own.

    start_workflow, runs, requests ──► committer ──► store.commit(batch) ──► COMMIT ──► answers, one for each

May import `serde`, `core`, `model`.
"""

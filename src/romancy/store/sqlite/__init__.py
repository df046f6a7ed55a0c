"""The SQLite store: one file, several processes, one writer at a time.

    event loop ──► executors: writer thread ──► BEGIN IMMEDIATE ─ read ─ decide ─ write ─ COMMIT
         ▲                    reader thread ──► a connection that cannot write, beside the writer
         └── results, and the notification that another connection has committed (PRAGMA data_version)

`store` implements the port and holds no SQL. `database` owns the connections and the executors (`executor`): threads, or
none if the store runs inline. `connection` opens connections and repeats a transaction while the file is busy. `errors`
translates the driver's errors. `schema` migrates the file. `statements` reads the `.sql` files.

A batch of writes takes the fast path where it can (`fast_path`, `step_batch`). For other writes `apply` reads the hot rows
of all their instances at once, decides in Python under the write lock (`romancy.store.sql`), and writes the decisions with
few statements of many rows (`UnitOfWork`).

Minimum: SQLite 3.33 (UPDATE FROM). May import `romancy.store`, `core`, `model`, and the driver `sqlite3`.
"""

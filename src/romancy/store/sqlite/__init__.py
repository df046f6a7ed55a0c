"""The SQLite store: one file, several processes, one writer at a time.

    event loop ──► lanes: writer thread ──► BEGIN IMMEDIATE ─ look ─ decide ─ write ─ COMMIT      batch, ownership
         ▲               reader thread ──► a connection that cannot write, beside the writer     reads
         └── answers, and "somebody else has written" (PRAGMA data_version)

`store` is the port and holds no SQL. `database` keeps the connections and the `lanes`: threads, or none when everything
is done inline. `connection` opens connections and runs a transaction again when the file is busy. `failures` is the one
place that knows the driver's errors. `schema` brings the file up to date. `statements` reads the `.sql` files.

A `batch` reads the hot rows of all its instances at once, decides in Python under the write lock (`transitions`,
`requests`), and writes what it decided with few wide statements (`ledger`).

Minimum: SQLite 3.33 (UPDATE FROM). May import `romancy.store`, `core`, `model`, and the driver `sqlite3`.
"""

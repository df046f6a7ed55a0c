"""The store on PostgreSQL: asyncpg, batches as arrays, rows that are locked in place of a whole file."""

"""The store on PostgreSQL: driver asyncpg, batches as array parameters, row locks."""

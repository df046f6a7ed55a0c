"""The named SQL statements of this dialect."""

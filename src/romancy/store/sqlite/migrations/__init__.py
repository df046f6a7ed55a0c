"""The schema of the SQLite store, as numbered SQL files in dbmate's format; up only."""

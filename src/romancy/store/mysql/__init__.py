"""The store on MySQL and MariaDB: asyncmy, several statements in one packet, polling in place of notifications.

Only what MySQL 8 and MariaDB 10.6 both have: no RETURNING, no partial indexes (columns that are generated stand for their
conditions), no LATERAL. Names are bytes (VARBINARY): the text collations that both have take 'a' and 'a ' for equal.
"""

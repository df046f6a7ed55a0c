"""The store on MySQL and MariaDB: driver asyncmy, several statements in one packet, polling in place of notifications.

It uses only what MySQL 8 and MariaDB 10.6 both have: no RETURNING, no LATERAL, and no partial indexes (generated columns
replace their conditions). Names are bytes (VARBINARY): the text collations that both have take 'a' and 'a ' for equal.
"""

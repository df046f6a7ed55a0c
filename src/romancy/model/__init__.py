"""Frozen records and enums: the words the rest of the library speaks.

Nothing here does anything. `status` names what an instance can be, `policy` says how often to try again, `history` is what
a run remembers, `transition` is what it writes, `instance` is what users and operators read. Times are integers in
microseconds since 1970 (UTC) inside, aware datetimes in what users read. May import `romancy.errors` only.
"""

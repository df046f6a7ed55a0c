"""The frozen records and enums that the packages of the library exchange.

    status      the statuses of an instance
    history     the entries of a history
    messaging   events, messages, channels and groups; effects and store calls
    transition  the writes, and their results
    instance    what the store reads for the engine, and the records that users read
    outbox      events on their way to brokers
    retry       retry policies
    source      the stored source of a workflow
    admin       queries of operators, and their results

Times are integers in microseconds since 1970 (UTC) in records of the engine, and aware datetimes in records for users. May
import `romancy.errors` only.
"""

"""The decorators and functions with which users write workflows: activities, contexts, waits, messaging, compensations.

A decorated function keeps its types: type checkers accept right calls and reject wrong ones. A call of an activity in a
workflow issues a durable operation on the run of the context that is passed; nothing here does I/O. May import `store`,
`serde`, `core`, `model`.
"""

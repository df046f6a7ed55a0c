"""What users write with: workflows, activities, their contexts, waits and compensations.

A decorated function keeps its types: checkers accept right calls and reject wrong ones. Calling an activity inside a
workflow issues a durable operation on the run whose context it is given; nothing here does I/O. May import `store`,
`serde`, `core`, `model`.
"""

"""The core: replay as a function, without I/O, clock, randomness or log.

`loop` is a private, deterministic event loop that runs one workflow. `execution` keeps the state of one instance around
it: open operations, recorded entries, pending compensations. The worker feeds resolutions and carries out commands:

    execution.feed(resolution)       ──► the run advances ──► activities, store calls, effects, withdrawals, entries, outcome
    execution.feed_replies(*replies) ──►     (the store has resolved store calls, and has recorded the replies itself)

    body ──► finishing (attempts that cannot be stopped end) ──► compensating ──► ended
      └──────────── completed, or recurs: nothing to compensate ──────────────────► ended

Everything that affects what a workflow sees is in this package. May import `model` and `errors` only.
"""

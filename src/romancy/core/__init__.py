"""The core: replay as a function. No I/O, no clock, no chance, no log.

`loop` is a private, deterministic event loop that runs one workflow; `execution` keeps the books of one instance around
it: what is open, what was recorded, what must be undone. The shell feeds resolutions and carries out commands:

    execution.feed(resolution) ──► the run goes on ──► starts, asks, effects, withdrawals, entries, a verdict
    execution.settled(reply)   ──►      (the store has decided an ask, and recorded that itself)

    body ──► (attempts that cannot be stopped end) ──► compensating ──► ended
      └──────────── finished, or recurs: nothing to undo ────────────────► ended

Everything that affects what a workflow sees lives in this package. May import `model` and `errors` only.
"""

"""The worker: claims instances, runs them, and takes over those of dead workers.

    worker           has the runners, parks waiting ones, shuts down
      runner           one instance: feeds its execution, starts attempts, hands transitions to the committer
      attempt          one attempt of an activity or a compensation
      retries          earlier attempts that failed or were cut off, and back-offs
      wait_registry    the timers and waits that the store has of an instance
      timers           a heap of callbacks by due time
      claimer          finds instances that are due and unowned, and claims them
      maintenance      heartbeat, sweep of dead workers, watchdog, retention
      hook_dispatcher  calls hooks after commits

    claimed ──► running ──► released: parked in memory ──► timer or inbox item ──► running
                   │                      └─ evicted when the cache is full: replayed when it is due
                   └──► ended

May import `authoring`, `store`, `serde`, `core`, `model`; never `http` or `outbox`, which it reaches only through the store.
"""

"""The worker: runs instances here, and looks after those nobody runs.

    worker     owns hosts, parks waiting ones, shuts down
      host       one instance: feeds its execution, starts attempts, hands transitions to the committer
      attempt    one attempt of an activity or a compensation
      retries    what failed or was cut off, and what waits for its next attempt
      waits      what the store shows of waiting instances
      alarms     what is due when, in memory
      finder     finds instances that are due and unowned, and claims them
      upkeep     heartbeat, sweep of dead workers, watchdog, retention

    claimed ──► running ──► released: parked warm ──► its alarm or mail ──► running
                   │                      └─ evicted when the cache is full: replayed cold when it is due
                   └──► ended

May import `authoring`, `store`, `serde`, `core`, `model`; never `ingress` or `outbox`: they meet in the store.
"""

"""Benchmarks of romancy, alone and in comparison with other engines.

    python -m benchmarks                everything: one table for each benchmark, and results/latest.json
    python -m benchmarks throughput     compared with DBOS, and with bare one-row commits of SQLite
    python -m benchmarks history        the cost of a step late in a long history, and of a cold resume
    python -m benchmarks sleeping       100,000 waiting instances: memory, start-up, the speed of other workflows
    python -m benchmarks waking         from an event to the line after the wait of a workflow, compared with DBOS
    python -m benchmarks timers         1,000 sleeping workflows: how late they resume, compared with DBOS
    python -m benchmarks channel        messages that ten workflows compete for
    python -m benchmarks recurring      a workflow that recurs 20,000 times: the cost of a round early and late
    python -m benchmarks records        what is recorded for operators: bytes and time
    python -m benchmarks profile        where the time goes, by layer
    python -m benchmarks postgres       on PostgreSQL, compared with DBOS, Edda and bare commits; the number of commits
    python -m benchmarks plans          on PostgreSQL with a million instances: the plan and the cost of every statement
    python -m benchmarks million        operators' queries with a million instances: every call, every page of the viewer
    python -m benchmarks scaling        on PostgreSQL: with up to a million waiting instances, and in several processes
    ... --quick                         the same in a minute or two, for a check while developing

Every measurement runs in a process of its own (a module of `processes`, started by `child`), on a database of its own in
`build/`, on the project's own disk (a server's data too): a temporary folder in memory would make every commit free.

A shared machine is noisy. Two figures are compared only if their measurements were interleaved within one run, and the
result is the median of the ratios of the rounds. Figures of different runs cannot be compared. No benchmark fails a build: a
target that was missed is printed as FAIL, and the exit code stays 0.
"""

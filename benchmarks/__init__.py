"""How fast romancy is, and what its speed depends on.

    python -m benchmarks                everything: one table for each question, and results/latest.json
    python -m benchmarks throughput     beside DBOS, and beside bare one-row commits of SQLite
    python -m benchmarks history        what a step costs late in a long history, and what a cold resume costs
    python -m benchmarks sleeping       100,000 waiting instances: memory, start-up, the speed of the others
    python -m benchmarks waking         from an event to the next line of a workflow that waits, beside DBOS
    python -m benchmarks timers         1,000 sleepers: how late they go on, beside DBOS
    python -m benchmarks channel        messages that ten workflows compete for
    python -m benchmarks recurring      a workflow that recurs 20,000 times: what a round costs early and late
    python -m benchmarks records        what is recorded for operators: bytes and time
    python -m benchmarks profile        where the time goes, by layer
    python -m benchmarks postgres       on PostgreSQL, beside DBOS, Edda and bare commits; how often it commits
    python -m benchmarks plans          on PostgreSQL with a million instances: every statement's plan, and what it costs
    python -m benchmarks million        what operators ask, with a million instances: every call, every page of the viewer
    ... --quick                         the same in a minute or two, for a look while developing

Every measurement runs in a process of its own (`sides`, started by `child`), on a database of its own in `build/`, on
the disk the project lies on (a server's data too): a temporary folder in memory would make every commit free.

A shared machine is noisy. Two figures are compared only if they were measured in turn, within one run: what is judged is
the median of the ratios of each round. Figures of different runs say nothing about each other. Nothing here fails a
build: a target that was missed is printed as FAIL, and the exit code stays 0.
"""

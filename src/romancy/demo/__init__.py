"""The demonstration: `python -m romancy.demo`.

A worker process is killed in the middle of charging a card; another takes over, and nothing is done twice.

    __main__   the command: options, signals, the exit code
    story      what happens, one act after another, in plain words
    process      a worker as a child process: start it, hear it, kill it
    worker       what runs in there
    shop           the workflow and its activities: the part to read first
    world          the shop's surroundings: a bank, a warehouse, a carrier, and the ledger of what they did
    records    what the database knows of an instance afterwards
    timeline     drawn
    checks       compared with the ledger
    terminal   colours, widths, lines

The driver and its workers share only the database, as a web server and its workers would. What a worker prints is
for the narration alone.
"""

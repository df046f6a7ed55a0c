"""The demonstration: `python -m romancy.demo`.

A worker process is killed in the middle of charging a card. Another one takes over, and nothing is done twice.

    __main__            the command: options, signals, the exit code
    scenario            the scenario, step by step, with its narration
    process             a worker as a child process: start, reports, kill
    worker              the program of that process
    shop                the workflow and its activities: the part to read first
    external_services   a bank, a warehouse, a carrier, and the log of their requests
    records             the stored data of an instance
    timeline            draws these data
    checks              compares them with the request log
    terminal            colours, widths, lines

The driver and its workers share only the database, like a web server and its workers. The output of a worker is used only
for the narration.
"""

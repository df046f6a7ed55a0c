"""The command `romancy`; each module of `commands` holds one of its commands, or a few similar ones.

    main ──► a command ──► CommandContext ──► Manager ──► a database, or the HTTP API of an app
                             └──────────────► Output ──► tables for people, JSON for programs

Each module has a function `add`, which describes the arguments of its commands, and functions that carry them out and return
the exit code (`exit_codes`). Commands about instances are written once, for a `Manager`; `--database` or `--url` decides
whether it reads a database or calls an app. Results go to standard output, everything else to standard error. An error that
the user can correct is a `RomancyError`, which is printed as one sentence.
"""

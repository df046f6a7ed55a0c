"""The command `romancy`: one module for each of its commands, or for a few that are alike.

    main ──► a command ──► Desk ──► Manager ──► a database, or an app's HTTP interface
                             └────► Printer ──► tables for people, JSON for programs

Each module has `add(commands)`, which describes its arguments, and functions that do it and return the exit code
(`exits`). Commands about instances are written once, on a `Manager`: whether it looks into a database or asks an app is
decided by `--database` or `--url`. What was asked for goes to standard output, everything else to standard error. An
error that the user can do something about is a `RomancyError`, shown as one sentence.
"""

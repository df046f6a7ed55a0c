"""The command `romancy`: one module for each of its commands.

Each has `add(commands)`, which describes its arguments, and a function that does it and returns the exit code: 0 done, 1 an
error, 2 wrong usage. An error that the user can do something about is a `RomancyError`, shown as one sentence.
"""

"""The entry point of `python -m romancy`, which is the command `romancy`."""

from romancy.cli.main import run

if __name__ == "__main__":  # the processes of `serve --workers` import this module, and must not run the command again
    run()

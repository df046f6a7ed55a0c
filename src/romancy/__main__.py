"""`python -m romancy` is the command `romancy`."""

from romancy.cli.main import run

if __name__ == "__main__":  # the processes of `serve --workers` import this module too
    run()

"""`python -m romancy.demo`: options, signals, the temporary folder, the exit code."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path

from romancy import RomancyError
from romancy.demo.process import WorkerFault
from romancy.demo.scenario import Scenario
from romancy.demo.terminal import Colour, Terminal, paint

_BROKEN = 1
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """A signal has interrupted the demonstration; its number is the argument."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration. Return 0, 1 if a check failed, or 128 plus the number of the signal that ended it."""
    options = _options(arguments)
    try:
        return _demonstrate(Terminal(sys.stdout), options.keep, forgetful=options.forgetful)
    except BrokenPipeError:
        # The reader has closed the pipe. Python flushes stdout again when it exits, which must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN


def _demonstrate(terminal: Terminal, keep: Path | None, *, forgetful: bool) -> int:
    try:
        with _folder(keep) as folder:
            good = asyncio.run(_run(Scenario(terminal, folder, forgetful=forgetful)))
    except (WorkerFault, RomancyError) as fault:
        terminal.line()
        terminal.line(paint("The demonstration did not work.", Colour.FAILED))
        terminal.lines(f"{type(fault).__name__}: {fault}".splitlines())
        return _BROKEN
    except (Interrupted, KeyboardInterrupt) as interrupt:
        terminal.line()
        terminal.line("Interrupted. The worker has been stopped, and the files have been removed.")
        return 128 + (interrupt.args[0] if interrupt.args else signal.SIGINT)
    _print_hints(terminal, folder, kept=keep is not None, good=good)
    return 0 if good else _BROKEN


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m romancy.demo",
        description="A worker is killed while it charges a card. Another one takes over, and nothing is done twice.",
    )
    parser.add_argument(
        "--keep", metavar="FOLDER", type=Path, help="keep the database, request log and worker logs in this folder"
    )
    parser.add_argument(
        "--forgetful", action="store_true", help="the bank ignores idempotency keys: the checks find the double charge"
    )
    return parser.parse_args(arguments)


@contextlib.contextmanager
def _folder(keep: Path | None) -> Generator[Path]:
    """Create the folder for the files: in the folder to keep, or a temporary one that is always removed."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield Path(tempfile.mkdtemp(prefix="romancy-demo-", dir=keep)).absolute()
        return
    with tempfile.TemporaryDirectory(prefix="romancy-demo-", ignore_cleanup_errors=True) as name:
        yield Path(name)


async def _run(scenario: Scenario) -> bool:
    """Run the scenario. A signal cancels it, so that it cleans up."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    received: list[int] = []

    def interrupt(number: int) -> None:
        received.append(number)
        task.cancel()

    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            loop.add_signal_handler(number, interrupt, number)
    try:
        return await scenario.run()
    except asyncio.CancelledError:
        raise Interrupted(*received) from None


def _print_hints(terminal: Terminal, folder: Path, *, kept: bool, good: bool) -> None:
    terminal.line()
    if not good:
        terminal.line(paint("A check failed: see FAILED above.", Colour.FAILED))
        terminal.line()
    terminal.line(paint("Try next", Colour.STRONG))
    python = _python()
    terminal.line(f"   read the code        {python} -m inspect romancy.demo.shop")
    terminal.line(f"   keep the files here  {python} -m romancy.demo --keep .")
    terminal.line(f"   a bank without keys  {python} -m romancy.demo --forgetful")
    terminal.line()
    terminal.line(paint("Files", Colour.STRONG))
    terminal.line(f"   {'code':<9}{Path(__file__).parent}")
    terminal.line(f"   {'database':<9}{folder / 'shop.db'}{'' if kept else '  (removed)'}")
    terminal.line(f"   {'requests':<9}{folder / 'requests.jsonl'}{'' if kept else '  (removed)'}")


def _python() -> str:
    """Return the command for this interpreter. Its environment may not be the active one."""
    if shutil.which("python") == sys.executable:
        return "python"
    here = Path(sys.executable)
    return str(here.relative_to(Path.cwd()) if here.is_relative_to(Path.cwd()) else here)


if __name__ == "__main__":
    sys.exit(main())

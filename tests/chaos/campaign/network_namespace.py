"""A network namespace of its own for a process, with one wire to this machine that can be pulled.

A cable that stands still keeps its connections; on a pulled wire packets vanish, and both kernels send them again for a
while. Needs Linux, root and the program `ip`; a campaign goes without where they are not to be had.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from itertools import count

_numbers = count(0)
_MOST = 64
"""As many as fit into the addresses of one process here."""


class Island:
    """Made at once; `close` takes it away."""

    def __init__(self) -> None:
        number = next(_numbers) % _MOST
        self._name = f"rmcy{os.getpid()}-{number}"
        self._near, self._far = f"ra{os.getpid() % 100000}-{number}", f"rb{os.getpid() % 100000}-{number}"
        net = f"10.213.{os.getpid() % 256}"
        self.host = f"{net}.{4 * number + 1}"
        """The address of this machine, as seen from there."""
        try:
            self._make(f"{net}.{4 * number + 2}")
        except RuntimeError:
            self.close()
            raise

    def _make(self, address: str) -> None:
        _ip("netns", "add", self._name)
        _ip("link", "add", self._near, "type", "veth", "peer", "name", self._far, "netns", self._name)
        _ip("address", "add", f"{self.host}/30", "dev", self._near)
        _ip("link", "set", self._near, "up")
        for words in (("address", "add", f"{address}/30", "dev", self._far), ("link", "set", self._far, "up")):
            _ip("-n", self._name, *words)
        _ip("-n", self._name, "link", "set", "lo", "up")

    @property
    def entry(self) -> list[str]:
        """What is put before a command, so that it runs there; it stays the same process."""
        return [_program(), "netns", "exec", self._name]

    def pull(self) -> None:
        """Nothing gets there, and nothing back."""
        _ip("link", "set", self._near, "down")

    def plug(self) -> None:
        """As before."""
        _ip("link", "set", self._near, "up")

    def close(self) -> None:
        """Take it away."""
        for words in (("netns", "delete", self._name), ("link", "delete", self._near)):
            subprocess.run([_program(), *words], capture_output=True, check=False)  # the one goes with the other


@cache
def why_not() -> str:
    """Why there can be none here; empty if there can."""
    if sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("ip", path=_places()):
        return "network namespaces need Linux, root and the program `ip`"
    try:
        Island().close()
    except RuntimeError as error:
        return f"network namespaces cannot be made here: {error}"
    return ""


def _ip(*words: str) -> None:
    done = subprocess.run([_program(), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def _program() -> str:
    return shutil.which("ip", path=_places()) or "ip"


def _places() -> str:
    return os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))

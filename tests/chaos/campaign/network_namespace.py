"""A network namespace for a process, with one virtual link to the host that can be taken down.

A blocked proxy keeps its connections open. On a link that is down packets are lost, and both kernels retransmit them for a
while. Needs Linux, root and the program `ip`; without them, a campaign runs without a namespace.
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
"""The number of namespaces that fit into the address range of one process."""


class NetworkNamespace:
    """A network namespace; it exists until `close`."""

    def __init__(self) -> None:
        number = next(_numbers) % _MOST
        self._name = f"rmcy{os.getpid()}-{number}"
        self._near, self._far = f"ra{os.getpid() % 100000}-{number}", f"rb{os.getpid() % 100000}-{number}"
        net = f"10.213.{os.getpid() % 256}"
        self.host = f"{net}.{4 * number + 1}"
        """The address of the host as seen from the namespace."""
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
        """The prefix that runs a command in the namespace, in the same process."""
        return [_program(), "netns", "exec", self._name]

    def unplug(self) -> None:
        """Take the link down: packets are lost in both directions."""
        _ip("link", "set", self._near, "down")

    def plug(self) -> None:
        """Bring the link up again."""
        _ip("link", "set", self._near, "up")

    def close(self) -> None:
        """Delete the namespace."""
        for words in (("netns", "delete", self._name), ("link", "delete", self._near)):
            subprocess.run([_program(), *words], capture_output=True, check=False)  # deleting one end deletes the other


@cache
def why_not() -> str:
    """Why namespaces are not available here; empty if they are."""
    if sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("ip", path=_search_path()):
        return "network namespaces need Linux, root and the program `ip`"
    try:
        NetworkNamespace().close()
    except RuntimeError as error:
        return f"network namespaces cannot be made here: {error}"
    return ""


def _ip(*words: str) -> None:
    done = subprocess.run([_program(), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def _program() -> str:
    return shutil.which("ip", path=_search_path()) or "ip"


def _search_path() -> str:
    return os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))

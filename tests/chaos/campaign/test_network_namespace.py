"""A process in a network namespace of its own, and the wire that leads there."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.chaos.campaign import network_namespace
from tests.chaos.campaign.network_namespace import Island

pytestmark = pytest.mark.chaos

CALL = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=0.5) as line:
    line.sendall(b"hello")
"""


@pytest.fixture
def place() -> Iterator[Island]:
    if reason := network_namespace.why_not():
        pytest.skip(reason)
    one = Island()
    yield one
    one.close()


def test_it_is_heard_unless_its_wire_is_pulled(place: Island) -> None:
    with socket.create_server((place.host, 0)) as server:
        server.settimeout(30)
        call = [*place.entry, sys.executable, "-c", CALL, place.host, str(server.getsockname()[1])]
        place.pull()
        assert subprocess.run(call, capture_output=True, check=False).returncode != 0
        place.plug()
        subprocess.run(call, check=True)
        line, _ = server.accept()
        with line:
            assert line.recv(5) == b"hello"


def test_what_cannot_be_done_says_why(place: Island) -> None:
    place.close()
    with pytest.raises(RuntimeError, match=r"ip link set \S+ down: "):
        place.pull()

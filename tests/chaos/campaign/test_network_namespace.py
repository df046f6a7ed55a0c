"""Tests of a network namespace and of the link to it."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.chaos.campaign import network_namespace
from tests.chaos.campaign.network_namespace import NetworkNamespace

pytestmark = pytest.mark.chaos

CALL = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=0.5) as line:
    line.sendall(b"hello")
"""


@pytest.fixture
def namespace() -> Iterator[NetworkNamespace]:
    if reason := network_namespace.why_not():
        pytest.skip(reason)
    one = NetworkNamespace()
    yield one
    one.close()


def test_a_process_is_unreachable_while_its_link_is_down(namespace: NetworkNamespace) -> None:
    with socket.create_server((namespace.host, 0)) as server:
        server.settimeout(30)
        call = [*namespace.entry, sys.executable, "-c", CALL, namespace.host, str(server.getsockname()[1])]
        namespace.unplug()
        assert subprocess.run(call, capture_output=True, check=False).returncode != 0
        namespace.plug()
        subprocess.run(call, check=True)
        line, _ = server.accept()
        with line:
            assert line.recv(5) == b"hello"


def test_an_error_gives_the_reason(namespace: NetworkNamespace) -> None:
    namespace.close()
    with pytest.raises(RuntimeError, match=r"ip link set \S+ down: "):
        namespace.unplug()

"""uvicorn as `romancy serve` uses it. Only this module and `timeouts` import uvicorn.

A single process serves by itself. With several processes, a supervisor holds the listening socket, starts the processes and
replaces those that die:

    SIGTERM, SIGINT   stop: accept no new connections, answer the running requests, then shut down the app
    SIGHUP            with several processes: replace them one by one; a single process stops
"""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import multiprocessing
import os
import signal
import socket
import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from uvicorn import Config, Server
from uvicorn.config import LOGGING_CONFIG, STARTUP_FAILURE
from uvicorn.supervisors import ChangeReload, Multiprocess

from romancy.app import App
from romancy.cli.app_loader import full_target, load_app
from romancy.cli.uvicorn.timeouts import TimeoutProtocol
from romancy.clock import monotonic
from romancy.errors import ConfigurationError
from romancy.http.access import is_loopback

_LOG = logging.getLogger("romancy.http")
_BACKLOG = 2048
_MAX_CONNECTIONS = 1000
"""The most connections of a process. Others are answered with 503, because file descriptors and memory are limited."""
_MAX_HEADERS = 64 * 1024
_SLOW_START = 30
"""Seconds that a process may take to load the app. With uvicorn's 5, a busy machine would replace it again and again."""
_LAST_ANSWERS = 5.0
"""The most seconds that a shutdown waits for running requests, before it waits for activities."""
_GRACE = 5.0
_EXPOSED = (
    "%s can be reached from other machines, but without auth the app serves only this machine (except for health checks). "
    "Give the app auth=[Token(...)], or auth='open' to accept events from every machine."
)


def run(app: App, given: Namespace) -> int:
    """Serve until a signal arrives; return the exit code."""
    listening = _listen(given.host, given.port)
    config = _config(app, given)
    config.exposed = not is_loopback(listening.getsockname()[0])
    if config.exposed and app._options["auth"] is None:
        _LOG.warning(_EXPOSED, given.host)
    print(f"romancy serves {given.target} on {_address(listening)}", flush=True)
    with listening:
        if given.reload:
            ChangeReload(config, target=Server(config).run, sockets=[listening]).run()
            return 0
        if given.workers > 1:
            return _supervise(config, listening, app._options["shutdown_timeout"])
        return _serve(config, listening)


class _Config(Config):
    """Tells the app the address on which it is served, in each process."""

    served_on = ""
    exposed = False

    def load(self) -> None:
        """Import the app, and tell it the address."""
        super().load()
        visitors = load_app(str(self.app))._visitors
        visitors.served_on, visitors.exposed = self.served_on, self.exposed


def _config(app: App, given: Namespace) -> _Config:
    config = _Config(
        full_target(given.target),
        workers=given.workers,
        reload=given.reload,
        loop="asyncio",
        http=TimeoutProtocol,
        ws="none",
        lifespan="on",
        log_config=_logging(given.access_log),
        access_log=given.access_log,
        proxy_headers=False,  # the address of a caller is that of the connection; headers can be forged
        server_header=False,
        limit_concurrency=_MAX_CONNECTIONS,
        backlog=_BACKLOG,
        h11_max_incomplete_event_size=_MAX_HEADERS,
        timeout_graceful_shutdown=max(1, math.ceil(min(_LAST_ANSWERS, app._options["shutdown_timeout"]))),
        timeout_notify=0,
        timeout_worker_healthcheck=_SLOW_START,
        callback_notify=stop_as_orphan,
    )
    config.served_on = given.host
    return config


def _logging(access_log: bool) -> dict[str, Any]:
    """Return uvicorn's logging configuration, changed to log only warnings and errors, and requests if asked to."""
    config = copy.deepcopy(LOGGING_CONFIG)
    config["loggers"]["uvicorn"]["level"] = "WARNING"
    config["loggers"]["uvicorn.access"]["level"] = "INFO" if access_log else "WARNING"
    config["loggers"].pop("uvicorn.error", None)
    return config


def _listen(host: str, port: int) -> socket.socket:
    """Listen before the address is printed, so that a program that reads the address can connect at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ConfigurationError(
            f"Cannot listen on {host} port {port}: {os.strerror(error.errno) if error.errno else error}."
        ) from error
    listening.set_inheritable(True)
    return listening


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _serve(config: Config, listening: socket.socket) -> int:
    try:
        _Server(config).run([listening])
    except SystemExit:  # uvicorn has logged the reason
        return 1
    return 0


class _Server(Server):
    """A server that exits with 0 after a signal. uvicorn's own server would raise the signal again, and die from it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let signals stop the server while it is running."""
        signals = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
        before = {one: signal.signal(one, self.handle_exit) for one in signals}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)


def _supervise(config: Config, listening: socket.socket, shutdown_timeout: float) -> int:
    supervisor = _Supervisor(config, [listening])
    supervisor.stop_timeout = _LAST_ANSWERS + shutdown_timeout + _GRACE
    supervisor.run()
    return int(supervisor.failed)


class _Supervisor(Multiprocess):
    """A supervisor that waits for its processes to stop, but only for a limited time."""

    stop_timeout = 0.0
    failed = False

    def terminate_all(self) -> None:
        """Ask all processes to stop."""
        self.failed = any(process.exitcode == STARTUP_FAILURE for process in self.processes)
        super().terminate_all()

    def join_all(self) -> None:
        """Wait for all processes to stop; kill those that do not stop in time."""
        deadline = monotonic() + self.stop_timeout
        for process in self.processes:
            process.process.join(max(0.0, deadline - monotonic()))
            if process.exitcode is None:
                print(f"romancy: process {process.pid} did not stop in time and is being killed", file=sys.stderr)
                process.kill()
            process.process.join()


async def stop_as_orphan() -> None:
    """Stop this process if the supervisor was killed. uvicorn calls this about every second in each process."""
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():
        signal.raise_signal(signal.SIGTERM)

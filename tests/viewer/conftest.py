"""Fixtures with a browser, and with the sample app served on this machine."""

from __future__ import annotations

import asyncio
import shutil
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from tests.viewer.sample_app import SampleShop, open_shop

from romancy import App

T = TypeVar("T")
_FOREIGN_NAME = "--host-resolver-rules=MAP evil.test 127.0.0.1"
"""Makes the browser resolve a foreign name to this machine, as in DNS rebinding."""
_TIMEOUT = 30_000  # milliseconds; shared machines may be slow
expect.set_options(timeout=_TIMEOUT)


class Site:
    """The sample app, served in a thread with an event loop of its own."""

    def __init__(
        self,
        folder: Path,
        wrap: Callable[[App], Any] = lambda app: app,
        make: Callable[..., Any] = open_shop,
        *,
        empty: bool = False,
        **options: Any,
    ) -> None:
        self._folder = folder
        self._wrap = wrap
        self._make = make
        self._options = {"empty": empty, **options}
        self._up = threading.Event()
        self._failure: BaseException | None = None
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.root = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.shop: SampleShop
        self._thread = threading.Thread(target=self._run, name="site", daemon=True)

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        self._thread.start()
        assert self._up.wait(60), "the site did not start"
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Stop the server."""
        self._server.should_exit = True
        self._thread.join(30)
        self._socket.close()

    def run(self, work: Callable[[App], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine with the app on the app's own event loop."""
        return asyncio.run_coroutine_threadsafe(work(self.shop.app), self._loop).result(30)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
            self._up.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with self._make(str(self._folder / "world.db"), **self._options) as self.shop:
            config = uvicorn.Config(
                self._wrap(self.shop.app), log_level="error", lifespan="off", timeout_graceful_shutdown=1
            )
            self._server = uvicorn.Server(config)
            self._server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
            serving = asyncio.create_task(self._server.serve([self._socket]))
            while not self._server.started and not serving.done():
                await asyncio.sleep(0.01)
            self._up.set()
            await serving


@pytest.fixture(scope="module")  # not for the session: its event loop would block asynchronous tests in this thread
def chromium() -> Iterator[Browser]:
    """The Chromium that is installed on this machine."""
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", _FOREIGN_NAME])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The sample app, shared by all tests: a test that changes instances starts its own."""
    made = Site(tmp_path_factory.mktemp("site"))
    made.start()
    yield made
    made.stop()


@pytest.fixture
def new_site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """A function that starts a site for one test."""
    made: list[Site] = []

    def make(**options: Any) -> Site:
        made.append(Site(tmp_path / str(len(made)), **options))
        (tmp_path / str(len(made) - 1)).mkdir()
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.stop()


class Watched:
    """A recorder of the errors and warnings of a browser context."""

    def __init__(self, context: BrowserContext) -> None:
        self.messages: list[str] = []
        self.expected: list[str] = []
        """Parts of the messages that the test expects."""
        context.on(
            "console", lambda message: self._note(f"{message.type}: {message.text}") if message.type in _RECORDED else None
        )
        context.on("weberror", lambda error: self._note(f"error: {error.error}"))
        context.on("dialog", lambda dialog: self._note(f"dialog: {dialog.message}"))

    def _note(self, message: str) -> None:
        self.messages.append(message)

    def check(self) -> None:
        """Check that there was no unexpected error, policy violation or dialog."""
        left = [one for one in self.messages if not any(part in one for part in self.expected)]
        assert not left, left


_RECORDED = ("error", "warning", "assert")


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    """A new browser context with a wide window and the light theme."""
    made = chromium.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    made.set_default_timeout(_TIMEOUT)
    yield made
    made.close()


@pytest.fixture
def watched(context: BrowserContext) -> Iterator[Watched]:
    """The recorder of the test's browser context, checked at the end of the test."""
    made = Watched(context)
    yield made
    made.check()


@pytest.fixture
def page(context: BrowserContext, watched: Watched) -> Page:
    """A page whose errors and warnings are recorded."""
    return context.new_page()

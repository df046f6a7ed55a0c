"""A browser, and an app with something in every state, served on this machine."""

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
from tests.viewer.sample_app import World, world

from romancy import App

T = TypeVar("T")
_STRANGER = "--host-resolver-rules=MAP evil.test 127.0.0.1"
"""A name whose owner has pointed it at this machine."""
_PATIENCE = 30_000  # milliseconds: machines are shared
expect.set_options(timeout=_PATIENCE)


class Site:
    """An app in a thread with a loop of its own, and its address."""

    def __init__(
        self,
        folder: Path,
        wrap: Callable[[App], Any] = lambda app: app,
        make: Callable[..., Any] = world,
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
        self.world: World
        self._thread = threading.Thread(target=self._run, name="site", daemon=True)

    def start(self) -> None:
        """Serve."""
        self._thread.start()
        assert self._up.wait(60), "the site did not come up"
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Serve no longer."""
        self._server.should_exit = True
        self._thread.join(30)
        self._socket.close()

    def run(self, work: Callable[[App], Coroutine[Any, Any, T]]) -> T:
        """Do something with the app, in its own loop."""
        return asyncio.run_coroutine_threadsafe(work(self.world.app), self._loop).result(30)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
            self._up.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with self._make(str(self._folder / "world.db"), **self._options) as self.world:
            config = uvicorn.Config(
                self._wrap(self.world.app), log_level="error", lifespan="off", timeout_graceful_shutdown=1
            )
            self._server = uvicorn.Server(config)
            self._server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
            serving = asyncio.create_task(self._server.serve([self._socket]))
            while not self._server.started and not serving.done():
                await asyncio.sleep(0.01)
            self._up.set()
            await serving


@pytest.fixture(scope="module")  # not longer: while it is open, no test with a loop of its own could run in this thread
def chromium() -> Iterator[Browser]:
    """Debian's Chromium."""
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", _STRANGER])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The shop. Tests share it: those that act do so on instances that they start."""
    made = Site(tmp_path_factory.mktemp("site"))
    made.start()
    yield made
    made.stop()


@pytest.fixture
def new_site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Sites of the test's own."""
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
    """Collects what a page complains about."""

    def __init__(self, context: BrowserContext) -> None:
        self.complaints: list[str] = []
        self.expected: list[str] = []
        """Parts of complaints that the test provokes."""
        context.on("console", lambda said: self._note(f"{said.type}: {said.text}") if said.type in _BAD else None)
        context.on("weberror", lambda error: self._note(f"error: {error.error}"))
        context.on("dialog", lambda dialog: self._note(f"dialog: {dialog.message}"))

    def _note(self, complaint: str) -> None:
        self.complaints.append(complaint)

    def check(self) -> None:
        """Nothing unexpected was said: no error, no violation of the policy, no dialog."""
        left = [one for one in self.complaints if not any(part in one for part in self.expected)]
        assert not left, left


_BAD = ("error", "warning", "assert")


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    """A fresh browser profile, wide, light."""
    made = chromium.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    made.set_default_timeout(_PATIENCE)
    yield made
    made.close()


@pytest.fixture
def watched(context: BrowserContext) -> Iterator[Watched]:
    """What the pages complain about; checked at the end."""
    made = Watched(context)
    yield made
    made.check()


@pytest.fixture
def page(context: BrowserContext, watched: Watched) -> Page:
    """A page that is watched."""
    return context.new_page()

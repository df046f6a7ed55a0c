"""Takes the pictures of the documentation: `python -m tests.viewer.screenshots docs/pictures`.

The sample app is loaded under another name and path, so that the pictures do not show a folder of this machine.
"""

from __future__ import annotations

import linecache
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from playwright.sync_api import Browser, sync_playwright
from tests.viewer.conftest import Site

PICTURES = {
    "overview": ("", 1280, "light"),
    "instances": ("instances?q=status%3Alive", 1280, "light"),
    "instance": ("instance?id=order-1&view=diagram", 1280, "light"),
    "failed": ("instance?id=order-2", 1280, "dark"),
    "code": ("instance?id=order-3&view=code", 1280, "light"),
    "slept": ("instance?id=napper", 1280, "light"),
    "start": ("start?like=order-1", 1280, "light"),
    "workflows": ("workflows", 1280, "dark"),
    "narrow": ("instance?id=order-3", 400, "light"),
}
"""The page, the width and the theme of each picture."""


def load_shop() -> Any:
    """Load the sample app as the module `shop.orders`, from the path `/srv/shop/orders.py`."""
    name, path = "shop.orders", "/srv/shop/orders.py"
    source = (Path(__file__).parent / "sample_app.py").read_text()
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    module = ModuleType(name)
    module.__file__ = path
    sys.modules["shop"], sys.modules[name] = ModuleType("shop"), module
    exec(compile(source, path, "exec"), module.__dict__)
    return module


def make(folder: Path) -> None:
    """Take all pictures and write them to a folder."""
    site = Site(Path(tempfile.mkdtemp()), make=load_shop().open_shop, friendly=True)
    site.start()
    try:
        _add_load(site)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            for name in PICTURES:
                _take(browser, site.root, folder, name)
            browser.close()
    finally:
        site.stop()


def _take(browser: Browser, root: str, folder: Path, name: str) -> None:
    path, width, theme = PICTURES[name]
    scheme: Literal["light", "dark"] = "dark" if theme == "dark" else "light"
    context = browser.new_context(viewport={"width": width, "height": 600}, color_scheme=scheme)
    page = context.new_page()
    page.goto(f"{root}/viewer/{path}")
    page.wait_for_load_state("load")
    page.screenshot(path=folder / f"viewer-{name}.png", full_page=True)
    context.close()


def _add_load(site: Any) -> None:
    """Run some instances over several minutes, so that the charts are not empty."""
    module = sys.modules["shop.orders"]

    async def work(app: Any, first: int) -> None:
        for number in range(first, first + 30):
            workflow, given = (module.stolen, "no funds") if number % 11 == 5 else (module.checkout, module.ORDER)
            await app.start_workflow(workflow.with_options(instance_id=f"order-{number}"), given)

    for first in (100, 200, 300):
        site.run(partial(work, first=first))
        time.sleep(25)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    make(target)

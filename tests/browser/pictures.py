"""The pictures of the documentation: `python -m tests.browser.pictures docs/pictures`.

The shop is read under another name and path, so that the pictures show no folder of whoever makes them.
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

from playwright.sync_api import Page, sync_playwright

PICTURES: dict[str, str] = {
    "overview": "",
    "instances": "instances",
    "instance": "instance?id=order-1&view=diagram",
    "failed": "instance?id=order-2",
    "waiting": "instance?id=order-3",
    "slept": "instance?id=napper",
    "start": "start?like=order-1",
    "workflows": "workflows",
}
_SIZES = {"": 1280, "-narrow": 400}
_NARROW = ("instances", "slept")


def shop() -> Any:
    """The world of the tests, as if it were somebody's `shop/orders.py`."""
    name, path = "shop.orders", "/srv/shop/orders.py"
    source = (Path(__file__).parent / "world.py").read_text()
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    module = ModuleType(name)
    module.__file__ = path
    sys.modules["shop"], sys.modules[name] = ModuleType("shop"), module
    exec(compile(source, path, "exec"), module.__dict__)
    return module


def make(folder: Path) -> None:
    """Take all pictures."""
    from tests.browser import conftest  # after the shop: it names it

    conftest.world = shop().world
    site = conftest.Site(Path(tempfile.mkdtemp()), friendly=True)
    site.start()
    try:
        _busy(site)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            themes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
            for theme in themes:
                for suffix, width in _SIZES.items():
                    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=theme)
                    _take(context.new_page(), site.root, folder, theme, suffix)
                    context.close()
            browser.close()
    finally:
        site.stop()


def _take(page: Page, root: str, folder: Path, theme: str, suffix: str) -> None:
    for name, path in PICTURES.items():
        if suffix and name not in _NARROW:
            continue
        page.goto(f"{root}/viewer/{path}")
        page.wait_for_load_state("load")
        page.screenshot(path=folder / f"viewer-{name}{suffix}-{theme}.png", full_page=True)


def _busy(site: Any) -> None:
    """Some traffic, and time for it to be counted."""
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

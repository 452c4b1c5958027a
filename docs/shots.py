"""Draws the pictures of docs/page.md: a server with a small story in it, seen by a real browser.

    python docs/shots.py [FOLDER]

Needs playwright, Pillow and Debian's chromium. The same story, clock and ids every time.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.conftest import HOUR, FakeClock, SeededIds
from tests.server.web.browser import Window, launched, window
from tests.server.web.page_data import (
    CHAT,
    SPACE,
    Story,
    fill,
)

import reverie
from reverie import Settings
from reverie.aio import AsyncStore
from reverie.server.context import ServerContext
from reverie.server.run import bind_socket, run_in_thread
from reverie.write import tokens

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FOLDER = Path(__file__).with_name("images")
DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 780}
COLOURS = 96


def main(folder: Path) -> None:
    clock = FakeClock()
    with tempfile.TemporaryDirectory() as place:
        settings = Settings(space=SPACE)
        with reverie.open(
            Path(place, "story.db"), settings=settings, clock=clock, ids=SeededIds()
        ) as store:
            story = fill(store, clock)
            clock.step(3 * HOUR)
            bound = bind_socket("127.0.0.1", 0)
            port = bound.getsockname()[1]
            token = tokens.new_secret("operator")
            serving = ServerContext(AsyncStore(store), settings, token, port=port)
            with run_in_thread(serving, bound), launched() as browser:
                _draw(browser, f"http://127.0.0.1:{port}", token, story, clock, folder)


def _draw(
    browser: Browser, url: str, token: str, story: Story, clock: FakeClock, folder: Path
) -> None:
    def shot(name: str, where: str, scheme: str, size: dict[str, int], wait: str) -> None:
        options: dict[str, Any] = {"viewport": size, "color_scheme": scheme, "timezone_id": "UTC"}
        with window(browser, url, reduced_motion="reduce", **options) as seen:
            seen.page.clock.set_fixed_time(clock.now() / 1000)
            seen.open(where, token)
            seen.page.locator(wait).first.wait_for()
            seen.page.get_by_text("live", exact=True).wait_for()
            _settle(seen)
            path = folder / f"page-{name}.png"
            seen.page.screenshot(path=path)
            _shrink(path)

    shot("memory", f"#/memories/{story.boss}", "light", DESKTOP, ".life")
    search = "#/memories?q=who+is+my+boss%3F"
    shot("search", search, "dark", DESKTOP, ".score-bar")
    shot("session", f"#/sessions/{CHAT}/3", "light", DESKTOP, ".recalled")
    shot("phone", search, "light", PHONE, ".score-bar")


def _settle(seen: Window) -> None:
    """What is fetched when it comes into view has come."""
    from playwright.sync_api import expect

    expect(seen.page.locator(".turn.meant .recalled > ul [data-memory]")).to_have_count(0)
    if seen.page.locator(".score-bar").count():
        seen.page.locator(".score-bar").first.click()


def _shrink(path: Path) -> None:
    """Few colours are enough for text."""
    from PIL import Image

    with Image.open(path) as picture:
        few = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)

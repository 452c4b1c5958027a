"""A real browser on the page, which records what the page must never do."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page, Response

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# A loaded machine may keep a browser waiting for long; what never comes is still noticed.
PATIENCE_MS = 60_000
# Told by the browser itself when something is tried that the policy forbids.
LISTENER = """
window.violations = [];
document.addEventListener('securitypolicyviolation', (event) => {
  window.violations.push(`${event.violatedDirective}: ${event.blockedURI}`);
});
"""
# Until the page has heard of it.
GO = """where => new Promise((done) => {
  addEventListener('hashchange', () => setTimeout(done), { once: true });
  if (location.hash === where) done();
  location.hash = where;
})"""


@contextmanager
def launched() -> Iterator[Browser]:
    """Debian's Chromium, or a plain word that there is none."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.skip("the page is not tested: there is no playwright (pip install playwright)")
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("the page is not tested: there is no chromium (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield browser
        browser.close()


@dataclass
class Window:
    """One page in a browser of its own, with all that it asked for and complained about."""

    page: Page
    url: str
    asked: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    """Files of the page that the server had to be asked for."""

    def open(self, where: str = "", token: str | None = None) -> None:
        """Go to a place of the page, signed in if a token is given."""
        if token is not None:
            script = f"sessionStorage.setItem('reverie.token', {token!r})"
            self.page.add_init_script(f"if (location.host) {script}")
            # Another address after '#' alone would not load the page again.
            self.page.goto("about:blank")
        if self.page.url.startswith(self.url) and where.startswith("#"):
            self.page.evaluate(GO, where)
        else:
            self.page.goto(f"{self.url}/{where}")

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def rows(self) -> Locator:
        return self.page.locator("[data-row]")

    def width_needed(self) -> int:
        return int(self.page.evaluate("document.documentElement.scrollWidth"))

    def check(self) -> None:
        """Nothing foreign was asked for, nothing forbidden was tried, nothing broke."""
        assert self.page.evaluate("window.violations ?? []") == []
        assert [each for each in self.asked if not each.startswith(self.url)] == []
        assert self.wrong == []


Open = Callable[..., Window]


@contextmanager
def window(browser: Browser, url: str, **options: Any) -> Iterator[Window]:
    """A window of a browser that knows nothing yet; looked through when it is closed."""
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.add_init_script(LISTENER)
    opened = Window(page, url)
    page.on("request", lambda request: opened.asked.append(request.url))
    page.on("response", lambda answer: _note(opened, answer))
    page.on("pageerror", lambda error: opened.wrong.append(str(error)))
    page.on("console", lambda line: _hear(opened, line.type, line.text))
    yield opened
    opened.check()
    context.close()


def _note(opened: Window, answer: Response) -> None:
    kept = answer.request.timing["requestStart"] < 0
    if "/api/" not in answer.url and not kept:
        opened.fetched.append(answer.url)


def _hear(opened: Window, kind: str, text: str) -> None:
    # A refused request is reported on the console too; what it means is on the page.
    if kind == "error" and not text.startswith("Failed to load resource"):
        opened.wrong.append(text)


def shows(found: Locator, text: str | re.Pattern[str] | None = None) -> None:
    from playwright.sync_api import expect

    checked = expect(found)
    if text is None:
        checked.to_be_visible(timeout=PATIENCE_MS)
    else:
        checked.to_contain_text(text, timeout=PATIENCE_MS)


def has(found: Locator, count: int) -> None:
    from playwright.sync_api import expect

    expect(found).to_have_count(count, timeout=PATIENCE_MS)


def is_gone(found: Locator) -> None:
    has(found, 0)

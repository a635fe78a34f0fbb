"""A real headless browser for the pages' tests: Debian's Chromium by way of playwright, and what it saw and asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path("/usr/bin/chromium")


def missing() -> str:
    """Why the browser tests cannot run here; "" when they can."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "the package playwright is not installed (pip install playwright)"
    return "" if CHROMIUM.exists() else f"{CHROMIUM} is not there (bash scripts/browser.sh installs it on Debian)"


needed = pytest.mark.skipif(bool(missing()), reason=missing() or "there")


@dataclass
class Opened:
    """A page with what it said and asked for while it was open."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def go(self, path: Path) -> None:
        """Open a file."""
        self.page.goto(path.resolve().as_uri())

    def wait(self, selector: str, text: str) -> None:
        """Wait until an element reads so."""
        from playwright.sync_api import expect

        expect(self.page.locator(selector)).to_have_text(text)

    def count(self, selector: str, number: int) -> None:
        """Wait until there are so many of an element."""
        from playwright.sync_api import expect

        expect(self.page.locator(selector)).to_have_count(number)

    def leaving(self, folder: Path) -> list[str]:
        """Requests for anything outside a folder."""
        return [url for url in self.requests if not url.startswith(folder.resolve().as_uri() + "/")]

    def overflow(self) -> int:
        """How many pixels the page is wider than its window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    def texts(self, selector: str) -> list[str]:
        return list(self.page.locator(selector).all_inner_texts())


@contextmanager
def running() -> Iterator[Any]:
    """Chromium, started once for many pages."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as player:
        arguments = ["--no-sandbox", "--disable-background-networking"]
        browser = player.chromium.launch(executable_path=str(CHROMIUM), args=arguments)
        yield browser
        browser.close()


@contextmanager
def opened(browser: Any, path: Path, *, width: int = 1200, dark: bool = False, script: bool = True) -> Iterator[Opened]:
    """A file in a window of its own, 900 pixels high."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if dark else "light",
        java_script_enabled=script,
    )
    page = context.new_page()
    seen = Opened(page)
    page.on("console", lambda message: seen.complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: seen.complaints.append(f"error: {error}"))
    page.on("dialog", lambda dialog: (seen.complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: seen.requests.append(request.url))
    seen.go(path)
    yield seen
    context.close()

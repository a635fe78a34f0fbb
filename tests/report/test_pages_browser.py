"""The persona pages in a real browser: safe, within their folder, whole at every width, in light and dark, by keyboard.

Skipped by name where the browser is absent; `scripts/browser.sh` installs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from personalink.report import pages
from personalink.report.pages.facts import page_name
from tests.report import browser as chromium
from tests.report.hostile import ATTACKS, evidence, other, user_name

pytestmark = chromium.needed
MANY = 10_000
SIZES = [(390, False), (390, True), (1200, False), (1200, True)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium.running() as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages of a hostile run of 130 users (two static pages of the list), and of two such runs side by side."""
    made = tmp_path_factory.mktemp("hostile")
    one = evidence(made, 130)
    pages.write(one, made / "one")
    pages.write([one, other(one, "second")], made / "two")
    return made


def some_pages(folder: Path) -> list[Path]:
    """Overview, list, the users whose ids are attacks, and the same of the comparison."""
    names = ["index.html", "users.html", *(f"users/{page_name(user_name(i))}" for i in range(len(ATTACKS)))]
    return [folder / side / name for side in ("one", "two") for name in names]


@pytest.mark.parametrize(("width", "dark"), SIZES)
def test_every_page_is_safe_and_fits_its_window(browser: Any, folder: Path, width: int, dark: bool) -> None:
    with chromium.opened(browser, folder / "one" / "users.html", width=width, dark=dark) as seen:
        seen.page.wait_for_load_state("networkidle")  # the data files of the list are asked for by its script
        assert any(url.endswith("/data/users-0.js") for url in seen.requests)
        for path in some_pages(folder):
            seen.go(path)
            seen.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
            assert seen.complaints == [], path
            assert seen.leaving(folder) == [], path
            assert seen.overflow() <= 0, path
            assert (
                seen.page.evaluate("document.images.length + document.querySelectorAll('svg, iframe, b').length") == 0
            )
            assert seen.page.locator("h1").count() == 1


def test_hostile_texts_are_read_as_they_are(browser: Any, folder: Path) -> None:
    with chromium.opened(browser, folder / "one" / "users" / page_name(user_name(0))) as seen:
        assert seen.texts("h1") == [f"User {ATTACKS[0]}0"]
        assert seen.page.title().startswith(f"User {ATTACKS[0]}0 · ")
        assert ATTACKS[4] in seen.texts(".persona .summary")[0]
    with chromium.opened(browser, folder / "one" / "users" / page_name(user_name(8))) as seen:
        assert "⟨U+0000⟩" in seen.texts("h1")[0]


def test_a_right_to_left_text_turns_nothing_but_itself_around(browser: Any, folder: Path) -> None:
    """What stands behind a hostile id in the same line stays to the right of it."""
    with chromium.opened(browser, folder / "one" / "users.html") as seen:
        row = seen.page.locator("#list tbody tr", has_text="gnihtyreve").first
        boxes = [cell.bounding_box()["x"] for cell in row.locator("th, td").all()]
        assert boxes == sorted(boxes)
        assert "⟨U+202E⟩" in row.inner_text()
        assert row.locator("td").nth(1).inner_text() == "+0.333"


def test_long_items_are_folded(browser: Any, folder: Path) -> None:
    path = folder / "one" / "users" / page_name(user_name(0))
    assert path.stat().st_size > 50_000
    with chromium.opened(browser, path) as seen:
        long = seen.page.locator("#held-out details.long").first
        assert not long.locator(".said").is_visible()
        seen.page.locator("#held-out > details > summary").first.click()
        long.locator("summary").click()
        assert len(long.locator(".said").inner_text()) > 49_000


def test_without_a_script_everything_can_be_read(browser: Any, folder: Path) -> None:
    with chromium.opened(browser, folder / "one" / "users.html", script=False) as seen:
        assert seen.page.locator("#list tbody tr").count() == 100
        assert seen.page.locator("button, input, select").count() == 0
        seen.page.get_by_role("link", name="2", exact=True).click()
        assert seen.page.locator("#list tbody tr").count() == 30
        seen.page.locator("#list tbody a").last.click()
        assert seen.page.locator(".pass").count() > 0
        seen.page.locator(".prompt summary").first.click()
        assert seen.page.locator(".prompt pre").nth(1).inner_text().endswith("Label >:")


def test_the_list_sorts_and_filters(browser: Any, folder: Path) -> None:
    with chromium.opened(browser, folder / "one" / "users.html") as seen:
        page, before = seen.page, seen.texts("#list tbody tr")
        history = page.get_by_role("columnheader", name="History")
        assert history.get_attribute("aria-sort") is None
        history.get_by_role("button").click()
        page.wait_for_selector("th[aria-sort=descending]")
        assert [int(text) for text in seen.texts("#list tbody td:nth-child(2)")] == list(range(135, 35, -1))
        history.get_by_role("button").click()
        page.wait_for_selector("th[aria-sort=ascending]")
        assert seen.texts("#list tbody td:nth-child(2)")[:2] == ["6", "7"]
        page.get_by_label("Find").fill("gain>0 history<=20 user-1")
        seen.wait("#told", "2 of 130 users.")
        assert seen.texts("#list tbody th") == ["user-12", "user-13"]
        page.get_by_label("Find").fill("")
        seen.wait("#told", "130 users.")
        page.get_by_label("Answers").select_option("better")
        seen.wait("#told", "43 of 130 users.")
        assert set(seen.texts("#list tbody td:nth-child(9)")) == {"better"}
        page.get_by_label("Answers").select_option("")
        user = page.get_by_role("columnheader", name="User")
        user.get_by_role("button").click()
        seen.count("#list tbody tr", 100)
        page.get_by_role("button", name="On →").click()
        seen.count("#list tbody tr", 30)
        assert seen.complaints == []
        assert sorted(before) != before  # the static order is by gain, not by name


def test_the_script_writes_rows_as_the_static_page_does(browser: Any, folder: Path) -> None:
    for side in ("one", "two"):
        with chromium.opened(browser, folder / side / "users.html") as seen:
            static = seen.page.locator("#list tbody").inner_html()
            seen.page.get_by_label("Find").fill(" ")
            seen.wait("#told", "130 users.")
            assert seen.page.locator("#list tbody").inner_html() == static


def test_by_keyboard_alone(browser: Any, folder: Path) -> None:
    with chromium.opened(browser, folder / "one" / "users.html") as seen:
        page = seen.page

        def tab() -> str:
            page.keyboard.press("Tab")
            return str(page.evaluate("document.activeElement.textContent || document.activeElement.tagName"))

        assert tab() == "Skip to the page"
        assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        assert tab() == "INPUT"
        reached = [tab() for _ in range(5)]
        assert reached[-2:] == ["User", "History"]
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        page.keyboard.press("Enter")
        page.wait_for_selector("th[aria-sort=descending]")
        assert page.evaluate("document.activeElement.textContent") == "History"
    with chromium.opened(browser, folder / "one" / "users" / page_name(user_name(0))) as seen:
        seen.page.locator(".drove summary").first.focus()
        seen.page.keyboard.press("Enter")
        assert seen.page.locator(".drove .items").first.is_visible()


def test_colours_can_be_told_apart(browser: Any, folder: Path) -> None:
    """WCAG 2.1: text has a contrast of at least 4.5 to 1 with what it stands on, in light and in dark."""
    path = folder / "one" / "users" / page_name(user_name(3))
    for dark in (False, True):
        with chromium.opened(browser, path, dark=dark) as seen:
            for selector in ("p", ".quiet", ".eyebrow", "ins", "del", ".badge.kept", ".badge.refused", "a", ".label"):
                front, back = seen.page.evaluate(_COLOURS, selector)
                assert contrast(front, back) >= 4.5, (selector, dark, front, back)


_COLOURS = """(selector) => {
  let element = document.querySelector("main " + selector);
  const front = getComputedStyle(element).color;
  while (getComputedStyle(element).backgroundColor === "rgba(0, 0, 0, 0)") element = element.parentElement;
  return [front, getComputedStyle(element).backgroundColor];
}"""


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2.1, from 1 to 21."""

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_ten_thousand_users_are_listed_sorted_and_found(browser: Any, tmp_path: Path) -> None:
    """The whole list, in chunks; each user has a page of a stable name."""
    one = evidence(tmp_path, MANY)
    told = pages.write(one, tmp_path / "pages")
    assert told.users == MANY
    assert len(list((tmp_path / "pages" / "users").iterdir())) == MANY
    with chromium.opened(browser, tmp_path / "pages" / "users.html", width=390) as seen:
        page = seen.page
        assert page.locator("#list tbody tr").count() == 100  # there before any data file
        page.get_by_role("columnheader", name="History").get_by_role("button").click()
        page.wait_for_selector("th[aria-sort=descending]")
        assert seen.texts("#list tbody td:nth-child(2)")[0] == "10,005"
        assert seen.texts("#told") == ["10,000 users."]
        page.get_by_label("Find").fill("user-4321")
        seen.wait("#told", "1 of 10,000 users.")
        page.get_by_role("link", name="user-4321").click()
        assert seen.page.url.endswith("/users/user-4321.html")
        assert seen.complaints == []
        assert seen.leaving(tmp_path) == []
        assert seen.overflow() <= 0

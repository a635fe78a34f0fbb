"""Markup with one door: every text that is not `Html` already is escaped on its way in, so nothing can be forgotten.

Knows HTML and what may not stand in it as it is; knows nothing of runs or personas.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from functools import lru_cache

from personalink.text import one_line

Child = str | Iterable["Child"] | None
Attribute = str | int | float | bool | None

FOLD = 600
"""Texts of more characters than this are folded under their beginning."""
_BEGINNING = 180
MOST_NAME = 80
"""Most characters of a user's id that are shown."""
_POLICY = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file:; img-src 'self' file:; base-uri 'none'; "
    "form-action 'none'"
)
_VOID = frozenset(("img", "input", "link", "meta"))
_LOST = "\x00-\x08\x0b-\x1f\x7f-\x9f\u202d\u202e\ud800-\udfff\ufffe\uffff"
_UNSHOWN = re.compile(f"[{_LOST}]")
_MARKUP = re.compile(f"[&<>\"'{_LOST}]")


class Html(str):
    """Markup that is safe as it stands."""

    __slots__ = ()


def text(value: str) -> Html:
    """The door: `value` as text that a page shows as it is; markup passes."""
    if isinstance(value, Html):
        return value
    return Html(html.escape(plain(value)) if _MARKUP.search(value) else value)


def plain(value: str) -> str:
    """`value` with everything shown that would be lost or hide what is read: control characters, lone surrogates and
    overrides of direction by their code, such as ⟨U+0000⟩."""
    return _UNSHOWN.sub(lambda found: f"⟨U+{ord(found.group()):04X}⟩", value.replace("\r\n", "\n"))


def el(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """An element. A trailing underscore of an attribute is dropped, others become hyphens; None and False leave it out,
    True is an attribute without a value."""
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is not None and value is not False:
            parts.append(_attribute(key) if value is True else f'{_attribute(key)}="{text(str(value))}"')
    parts.append(">")
    if name not in _VOID:
        _collect(children, parts)
        parts.append(f"</{name}>")
    return Html("".join(parts))


@lru_cache(maxsize=128)
def _attribute(key: str) -> str:
    return f" {key.rstrip('_').replace('_', '-')}"


def joined(*children: Child) -> Html:
    """Children one after another: texts through the door, None as nothing, what can be iterated in its order."""
    parts: list[str] = []
    _collect(children, parts)
    return Html("".join(parts))


def _collect(children: Iterable[Child], parts: list[str]) -> None:
    for child in children:
        if isinstance(child, str):
            parts.append(text(child))
        elif child is not None:
            _collect(child, parts)


def short(name: str) -> str:
    """A name such as a user's id, clipped only where it is very long."""
    return name if len(name) <= MOST_NAME else clipped(name, MOST_NAME)


def called(name: str) -> Html:
    """The same, isolated."""
    return said(short(name))


def said(value: str) -> Html:
    """Words of a user or a model within a line, isolated, so that their direction stays their own."""
    return el("bdi", value)


def said_block(value: str) -> Html:
    """The same as a block of its own, white space kept."""
    return el("div", value, class_="said", dir="auto")


def folded(value: str) -> Html:
    """A text of any length: whole where it is short, else under its beginning."""
    if len(value) <= FOLD:
        return said_block(value)
    beginning = el("bdi", clipped(value, _BEGINNING))
    return el(
        "details",
        el("summary", beginning, " ", el("span", f"all {len(value):,} characters", class_="quiet")),
        said_block(value),
        class_="long",
    )


def clipped(value: str, most: int) -> str:
    """The beginning of a text as one line of at most `most` characters."""
    line = one_line(value[: 2 * most])
    return line if len(line) <= most and len(value) <= 2 * most else line[: most - 1].rstrip() + "…"


def document(title: str, body: Child, *, root: str, trail: Iterable[Html], script: bool = False) -> str:
    """A whole page.

    Args:
        title: of the window. body: what stands in <main>. root: the way to the pages' folder, such as "../".
        trail: the links above, from the overview down.
        script: whether the list's script is loaded.
    """
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="referrer", content="no-referrer"),
        el("meta", name="generator", content="personalink"),
        el("title", title),
        el("link", rel="stylesheet", href=f"{root}assets/style.css"),
        el("script", src=f"{root}assets/list.js", defer=True) if script else None,
    )
    page = el(
        "body",
        el("a", "Skip to the page", href="#main", class_="skip"),
        el("header", el("nav", el("ol", (el("li", link) for link in trail)), aria_label="Where you are"), class_="top"),
        el("main", body, id="main", tabindex="-1"),
    )
    return "<!doctype html>\n" + el("html", head, "\n", page, lang="en") + "\n"

"""Text on a terminal: what could command or deceive it made visible, colours where wanted, columns that line up.

Knows characters and streams; knows no run.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from personalink.report.diff import FieldChange, Segment

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
"""Control characters, marks and overrides of direction, what has no width, lone surrogates, tags; not the joiners that
some scripts and emoji are spelt with."""

_GONE, _NEW, _QUIET, _STRONG, _PLAIN = "\x1b[31;9m", "\x1b[32;4m", "\x1b[2m", "\x1b[1m", "\x1b[0m"


def safe(text: str) -> str:
    """`text` with what a terminal would act on, or a reader not see, written out as its escape, such as \\x1b.

    Line feeds and tabs stay.
    """
    return _UNSEEN.sub(lambda found: found.group().encode("unicode_escape").decode(), _lines(text))


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n")


def line(text: str, most: int | None = None) -> str:
    """`safe` on one line, with "…" in place of what is beyond `most` characters."""
    whole = safe(" ".join(_lines(text).split()))
    return whole if most is None or len(whole) <= most else whole[: most - 1].rstrip() + "…"


def width(text: str) -> int:
    """Columns that a text takes on a terminal: two for a wide character, none for one that combines."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) or c in "\u200c\u200d" else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def padded(text: str, columns: int, *, right: bool = False) -> str:
    """A text filled up with blanks, before it where it belongs to the `right`."""
    blanks = " " * max(0, columns - width(text))
    return blanks + text if right else text + blanks


def columns() -> int | None:
    """Columns of the terminal that stdout is; None where it is none."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Ink:
    """How words stand out: by colour, or by marks alone."""

    coloured: bool = False

    @classmethod
    def of_stdout(cls) -> Ink:
        """Colours on a terminal, unless NO_COLOR is set (no-color.org) or it is a dumb one."""
        terminal = sys.stdout is not None and sys.stdout.isatty()
        return cls(terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb")

    def strong(self, text: str) -> str:
        """A heading."""
        return f"{_STRONG}{text}{_PLAIN}" if self.coloured else text

    def quiet(self, text: str) -> str:
        """What is said beside."""
        return f"{_QUIET}{text}{_PLAIN}" if self.coloured else text

    def words(self, segments: Iterable[Segment]) -> str:
        """Words that are gone and new: struck and underlined in colour, or as [-gone-] and {+new+}."""
        return " ".join(self._segment(kind, line(text)) for kind, text in segments)

    def changes(self, fields: Sequence[FieldChange]) -> list[str]:
        """What changed, a field under the other; `~` marks an entry that was rewritten."""
        lines = []
        for one in fields:
            lines.append(self.strong(one.name))
            lines += ["  (the same, in another order)"] if one.reordered else []
            for change in one.changes:
                if change.kind == "changed":
                    lines.append(f"  ~ {self.words(change.segments)}")
                else:
                    mark, paint = ("+", _NEW) if change.kind == "new" else ("−", _GONE)
                    words = " ".join(line(text) for _, text in change.segments)
                    lines.append(f"  {mark} {paint}{words}{_PLAIN}" if self.coloured else f"  {mark} {words}")
        return lines or ["no change"]

    def _segment(self, kind: str, words: str) -> str:
        if kind == "same":
            return words
        if self.coloured:
            return f"{_GONE if kind == 'gone' else _NEW}{words}{_PLAIN}"
        return f"[-{words}-]" if kind == "gone" else f"{{+{words}+}}"

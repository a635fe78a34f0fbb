"""What each official LaMP file looks like: the keys of its profiles, its labels, the instruction that opens a question.

Three tasks have labels in their profiles (news categories, movie tags, ratings); the other four are told apart by the
profiles' keys and the instruction. Knows forms and how to tell one from another; does not know users or histories.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from personalink.data.reading import cleaned
from personalink.errors import DataError
from personalink.text import one_line

CITATION_LABELS = ("[1]", "[2]")
NEWS_LABELS = (
    "food & drink", "sports", "education", "parents", "religion", "travel", "business", "crime",
    "science & technology", "culture & arts", "entertainment", "politics", "women", "style & beauty",
    "healthy living",
)  # fmt: skip
TAG_LABELS = (
    "sci-fi", "based on a book", "comedy", "action", "twist ending", "dystopia", "dark comedy", "classic",
    "psychology", "fantasy", "romance", "thought-provoking", "social commentary", "violence", "true story",
)  # fmt: skip
RATING_LABELS = ("1", "2", "3", "4", "5")

_CITATION = re.compile(
    r'paper with the title "(?P<title>.+?)", which reference is related\?'
    r'.*?\[1\]:\s*"(?P<one>.+?)"\s*\[2\]:\s*"(?P<two>.+)"\s*\Z',
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Form:
    """One task's file form.

    Attributes:
        task, words, number: our name, how people call it, LaMP's number.
        text_key, label_key: the profile's keys for input and label.
        cue, marker: the instruction holds `cue` before `marker`; what follows is the question itself.
        labels: of golds; () where any text is one.
        coded: whether a profile's label is one of `labels`; otherwise it is a text of the user's own.
    """

    task: str
    words: str
    number: str
    text_key: str
    label_key: str
    cue: str
    marker: re.Pattern[str]
    labels: tuple[str, ...] = ()
    coded: bool = False

    @property
    def carries(self) -> str:
        """What a profile's entries carry that tells the form."""
        if self.coded:
            return f'"{self.label_key}"'
        return '"text" alone' if self.text_key == self.label_key else f'"{self.label_key}" and "{self.text_key}"'

    def gold(self, value: object) -> str | None:
        """A gold as the label space writes it, or as one line of text; None when it is no such label."""
        if not self.labels:
            return one_line(str(value)) or None
        text = " ".join(str(value).split()).casefold()
        if self.task == "lamp3" and re.fullmatch(r"[1-5]\.0+", text):
            text = text[0]
        return text if text in self.labels else None

    def label(self, value: object) -> str | None:
        """The label of a profile's entry, likewise."""
        return self.gold(value) if self.coded else one_line(cleaned(str(value))) or None

    def question(self, asked: str) -> str:
        """What is asked about, without the official instruction; all of it when there is no instruction."""
        if self.task == "lamp1" and (parts := _CITATION.search(asked)):
            return citation_question(parts["title"], parts["one"], parts["two"])
        found = self.marker.search(asked)
        if found and self.cue in asked[: found.start()].casefold():
            return cleaned(asked[found.end() :])
        return cleaned(asked)

    def subject(self, question: str) -> str:
        """The part of a question that may also stand in a profile: the whole, or the paper's title."""
        return question.partition("\n")[0] if self.task == "lamp1" else question


FORMS: Mapping[str, Form] = {
    form.task: form
    for form in (
        Form("lamp1", "citations", "1", "abstract", "title", "which reference is related",
             re.compile(r"(?<!\S)explanation\."), CITATION_LABELS),
        Form("lamp2", "news", "2", "text", "category", "which category",
             re.compile(r"(?<!\S)article:"), NEWS_LABELS, coded=True),
        Form("lamp2_tags", "movie tags", "2", "description", "tag", "which tag",
             re.compile(r"(?<!\S)description:"), TAG_LABELS, coded=True),
        Form("lamp3", "product ratings", "3", "text", "score", "score of the following",
             re.compile(r"(?<!\S)review:"), RATING_LABELS, coded=True),
        Form("lamp4", "headlines", "4", "text", "title", "headline for the following",
             re.compile(r"(?<!\S)article:")),
        Form("lamp5", "paper titles", "5", "abstract", "title", "title for the following abstract",
             re.compile(r"(?<!\S)paper:")),
        Form("lamp7", "tweets", "7", "text", "text", "paraphrase the following tweet",
             re.compile(r"(?<!\S)it:")),
    )
}  # fmt: skip

_EMAILS = "generate a subject for the following"


def citation_question(title: str, one: str, two: str) -> str:
    """A paper's title and two references, a line each behind its mark."""
    marks = zip(CITATION_LABELS, (one, two), strict=True)
    return "\n".join([one_line(cleaned(title)), *(f"{mark} {one_line(cleaned(text))}" for mark, text in marks)])


def detect(path: Path, records: Sequence[Mapping[str, Any]], task: str | None) -> Form:
    """Which task a file is: by a key of its profiles that tells it, otherwise by their keys and the instruction.

    Raises:
        DataError: it is another task's than `task`, or one that is not read, or it cannot be told.
    """
    keys: set[str] = set()
    for entry in _entries(records):
        found = [form for form in FORMS.values() if form.coded and form.label_key in entry]
        if found:
            return _agreed(path, next((form for form in found if form.task == task), found[0]), task)
        keys |= set(entry)
    asked = next((text for record in records if isinstance(text := record.get("input"), str)), "").casefold()
    if asked.lstrip().startswith(_EMAILS):
        raise DataError(f"{path}: this is LaMP-6 (e-mail subjects), which is not read: its texts are not public")
    by_keys = _by_keys(keys)
    cues = [(asked.index(form.cue), form.task) for form in FORMS.values() if form.cue in asked]
    by_cue = FORMS[min(cues)[1]] if cues else None
    if by_cue and by_keys and by_cue not in by_keys:
        raise DataError(
            f"{path}: the questions are of {by_cue.words}, whose profiles carry {by_cue.carries}, but these carry "
            f"{by_keys[0].carries}"
        )
    if by_cue or len(by_keys) == 1:
        return _agreed(path, by_cue or by_keys[0], task)
    if task is not None:
        return FORMS[task] if not by_keys or FORMS[task] in by_keys else _agreed(path, by_keys[0], task)
    told = " or ".join(f'"{form.task}" ({form.words})' for form in by_keys) or f"one of {', '.join(FORMS)}"
    raise DataError(f"{path}: nothing in it tells which task it is; give task={told}")


def _entries(records: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for record in records:
        profile = record.get("profile")
        yield from (entry for entry in (profile if isinstance(profile, list) else ()) if isinstance(entry, dict))


def _by_keys(keys: set[str]) -> list[Form]:
    """The forms without coded labels whose profiles have these keys."""
    if "abstract" in keys:
        return [FORMS["lamp1"], FORMS["lamp5"]]
    if "text" in keys:
        return [FORMS["lamp4" if "title" in keys else "lamp7"]]
    return []


def _agreed(path: Path, found: Form, task: str | None) -> Form:
    """`found`, where it is what was asked for."""
    if task is None or found.task == task:
        return found
    wanted = FORMS[task]
    how = "its questions ask for that" if found.carries == wanted.carries else f"profiles carry {found.carries}"
    raise DataError(
        f"{path}: this is {found.words} ({how}), not {wanted.words} ({wanted.carries}); "
        f'give task="{found.task}" or the {wanted.words} files'
    )

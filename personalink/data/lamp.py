"""The official LaMP files (Salemi et al. 2024): citations, news categories, movie tags, product ratings, headlines,
paper titles and tweets.

Questions are a JSON list of `{"id", "input", "profile"}`, since the time split also `"user_id"`; outputs are
`{"task", "golds": [{"id", "output"}]}`, joined by id and never by position. Knows how a file becomes users, and what is
left out; what each task's file looks like is in `lamp_forms`; does not know how a question is put to a model or scored.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from personalink.canonical import digest
from personalink.data.lamp_forms import FORMS, Form, detect
from personalink.data.lamp_pairs import citation_users, tweet_items
from personalink.data.leaks import holds_query
from personalink.data.reading import as_path, cleaned, described, is_later, moment, quoted, read_json
from personalink.data.siblings import SiblingIndex
from personalink.data.types import Dataset, Item, Query, User
from personalink.errors import DataError
from personalink.text import nearest, normalised

_NEWS = ("lamp2", "lamp4")
"""Tasks whose questions without a user id may be of one author."""


class _Place(NamedTuple):
    """Where in a file something stands, for error lines; `number` counts from 0 as JSON tools do."""

    file: Path
    what: str
    number: int
    id: str | None = None
    item: int | None = None

    def fail(self, problem: str) -> NoReturn:
        """Raise the one-line DataError that names this place."""
        name = f"{self.what} {self.number}" + (f" (id {quoted(self.id)})" if self.id is not None else "")
        inner = f", profile[{self.item}]" if self.item is not None else ""
        raise DataError(f"{self.file}, {name}{inner}: {problem}")


def load_lamp(
    questions: str | Path, outputs: str | Path | None = None, *, task: str | None = None, source: str | None = None
) -> Dataset:
    """Users, histories, queries and golds of one official LaMP split.

    What is decided here, and counted in `Dataset.dropped`:

    - A user is a `user_id`, or a question where the file has none. Of several questions under one `user_id` the
      first in file order is the user's query, with that question's profile; the others are left out.
    - History items that repeat an id of the same profile, have no text, carry a label outside the label space, are
      later than a dated query, or are the user's own query (see `leaks.holds_query`) are left out; so are questions
      without a text.
    - History is sorted by date (stable) when every item has a readable one, and in file order otherwise.
    - News files (categories and headlines) without user ids: siblings are found by the overlap of profiles and share
      `User.group`. A sibling's query may stand in a history, so take one user of each group, as `make_manifest` does.
    - Profiles of citations and tweets hold no pairs: items are made of them (see `lamp_pairs`).

    Args:
        questions: the questions file.
        outputs: the outputs file; None where there is none (test splits), and then there are no golds.
        task: "lamp1" (citations), "lamp2" (news), "lamp2_tags" (movie tags), "lamp3" (ratings), "lamp4" (headlines),
            "lamp5" (paper titles) or "lamp7" (tweets), to be checked against the file; None takes what the file is.
        source: the dataset's name; None makes one from task and split, such as "lamp2/dev" or "lamp2-time/dev".

    Raises:
        DataError: a file cannot be read, is another task's, or has a record that breaks the format.
    """
    path = as_path(questions, "questions")
    answers = None if outputs is None else as_path(outputs, "outputs")
    if task is not None and task not in FORMS:
        hint = nearest(task, FORMS)
        known = ", ".join(FORMS)
        raise DataError(
            f"task {quoted(task)} is not known here; " + (f"meant {hint}?" if hint else f"take one of {known}")
        )
    records, sha = _read_questions(path)
    form = detect(path, records, task)
    golds, golds_sha = _read_golds(answers, form) if answers is not None else ({}, None)
    loader = _Loader(path, form, source or _source(path, form.task))
    users = loader.users(records)
    return Dataset(
        source=loader.source,
        task=form.task,
        users=users,
        golds=_join(users, golds, path, answers) if answers is not None else {},
        sha256=digest([sha, golds_sha]),
        dropped=dict(sorted(loader.dropped.items())),
    )


class _Loader:
    """Turns the records of one questions file into users, counting what it leaves out."""

    def __init__(self, file: Path, form: Form, source: str) -> None:
        self.file, self.form, self.source = file, form, source
        self.dropped: Counter[str] = Counter()
        self._siblings = SiblingIndex()

    def users(self, records: list[Any]) -> tuple[User, ...]:
        """Every user in file order."""
        users: dict[str, User] = {}
        seen: dict[str, int] = {}
        named = False
        for number, record in enumerate(records):
            id_ = _id(record, "id", _Place(self.file, "question", number))
            place = _Place(self.file, "question", number, id_)
            if id_ in seen:
                place.fail(f"the id was used by question {seen[id_]}; ids must be unique in a file")
            seen[id_] = number
            text = self.form.question(_string(record, "input", place))
            named = named or record.get("user_id") is not None
            user = _id(record, "user_id", place) if record.get("user_id") is not None else id_
            profile = _profile(record, place)
            if not text:
                self.dropped["question without a text"] += 1
            elif user in users:
                self.dropped["further question of the same user"] += 1
            else:
                query = Query(id_, text, self._date(record, place))
                users[user] = User(user, self.source, self._history(user, query, profile, place), (query,))
        if not users:
            raise DataError(f"{self.file}: no question has a text after its instruction")
        if self.form.task == "lamp1":
            return citation_users(list(users.values()), self.dropped)
        groups = {} if named or self.form.task not in _NEWS else self._siblings.groups()
        return tuple(
            User(user.id, user.source, user.history, user.queries, groups.get(user.id, "")) for user in users.values()
        )

    def _history(self, user: str, query: Query, profile: list[Any], place: _Place) -> tuple[Item, ...]:
        """The items that may be used for `query`, in order."""
        own = normalised(query.input)
        asked = (Query(query.id, self.form.subject(query.input)),)
        kept: dict[str, Item] = {}
        articles: list[tuple[str, str]] = []
        for number, record in enumerate(profile):
            item, problem = self._item(record, place._replace(item=number))
            text = normalised(item.input)
            if text:
                articles.append((item.title, text))
            if item.id in kept:
                problem = "item id repeated in one profile"
            elif not problem and holds_query(item, asked):
                problem = "query in own history"
            elif not problem and item.date and query.date and is_later(item.date, query.date):
                problem = "item later than its query"
            if problem:
                self.dropped[problem] += 1
            else:
                kept[item.id] = item
        if self.form.task in _NEWS:
            self._siblings.add(user, articles, own)
        items = in_order(list(kept.values()))
        return tuple(tweet_items(items, self.dropped)) if self.form.task == "lamp7" else items

    def _item(self, record: Any, place: _Place) -> tuple[Item, str]:
        """One profile entry and why it cannot be used ("" when it can)."""
        form = self.form
        if not isinstance(record, dict):
            place.fail(f"must be an object, not {described(record)}")
        other = [f for f in FORMS.values() if f.coded and f.label_key in record and form.label_key not in record]
        if other:
            place.fail(f'carries "{other[0].label_key}" ({other[0].words}), the rest of the file "{form.label_key}"')
        id_ = _id(record, "id", place)
        text = cleaned(_string(record, form.text_key, place))
        label = form.label(_label(record, form, place))
        title = record.get("title")
        if title is not None and not isinstance(title, str):
            place.fail(f'"title" must be a string, not {described(title)}')
        without = "label outside the label space" if form.coded else "item without a title"
        problem = "item without a text" if not text else without if label is None else ""
        return Item(id_, text, label or "", self._date(record, place), cleaned(title or "")), problem

    def _date(self, record: Mapping[str, Any], place: _Place) -> str | None:
        """The record's date as the file writes it; None when there is none or it cannot be read (counted)."""
        value = record.get("date")
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            place.fail(f'"date" must be a string such as "2018-03-02", not {described(value)}')
        if moment(value) is None:
            self.dropped["date that cannot be read"] += 1
            return None
        return value.strip()


def in_order(items: list[Item]) -> tuple[Item, ...]:
    """`items` oldest first when every one has a readable date (ties keep their order), otherwise as they are."""
    times = [moment(item.date) if item.date else None for item in items]
    known = [time for time in times if time is not None]
    if len(known) < len(items):
        return tuple(items)
    return tuple(item for _, item in sorted(zip(known, items, strict=True), key=lambda pair: pair[0]))


def _read_questions(path: Path) -> tuple[list[Any], str]:
    """The records of a questions file, each an object, and the file's digest."""
    value, sha = read_json(path)
    if isinstance(value, dict) and "golds" in value:
        raise DataError(f"{path}: this is an outputs file; give the questions first and the outputs second")
    if not isinstance(value, list):
        raise DataError(f"{path}: a questions file must be a JSON list of questions, not {described(value)}")
    if not value:
        raise DataError(f"{path}: the list of questions is empty")
    for number, record in enumerate(value):
        if not isinstance(record, dict):
            _Place(path, "question", number).fail(f"must be an object, not {described(record)}")
    return value, sha


def _read_golds(path: Path, form: Form) -> tuple[dict[str, str], str]:
    """Question id → gold label, and the file's digest."""
    value, sha = read_json(path)
    if isinstance(value, list):
        raise DataError(f"{path}: this is a questions file, given as outputs; were the two swapped?")
    if not isinstance(value, dict) or not isinstance(value.get("golds"), list):
        raise DataError(f'{path}: an outputs file must be an object with a list "golds"')
    named = re.search(r"lamp[_\- ]?(\d)", str(value.get("task", "")), re.IGNORECASE)
    if named and named[1] != form.number:
        raise DataError(
            f'{path}: "task" is {described(value["task"])}, but the questions are {form.words} (LaMP-{form.number})'
        )
    golds: dict[str, str] = {}
    for number, record in enumerate(value["golds"]):
        if not isinstance(record, dict):
            _Place(path, "gold", number).fail(f"must be an object, not {described(record)}")
        id_ = _id(record, "id", _Place(path, "gold", number))
        place = _Place(path, "gold", number, id_)
        output = _label(record, form, place, key="output")
        label = form.gold(output)
        if label is None and not form.labels:
            place.fail('"output" must not be empty')
        if label is None:
            also = [f.words for f in FORMS.values() if f.labels and f.gold(output) is not None]
            place.fail(
                f'"output" {quoted(str(output))} is not a label of {form.words}'
                + (f" but of {also[0]}" if also else "")
            )
        if id_ in golds:
            place.fail("the id has a gold already; ids must be unique in a file")
        golds[id_] = label
    return golds, sha


def _join(users: tuple[User, ...], golds: dict[str, str], questions: Path, outputs: Path) -> dict[tuple[str, str], str]:
    """(user, query) → gold, by id. Golds of questions that are not there are no error; a missing gold is."""
    pairs = [(user.id, query.id) for user in users for query in user.queries]
    missing = [query for _, query in pairs if query not in golds]
    if missing:
        raise DataError(
            f"{outputs}: no gold for question id {quoted(missing[0])} of {questions} ({len(missing)} of {len(pairs)} "
            "are missing); give the outputs of the same split"
        )
    return {(user, query): golds[query] for user, query in pairs}


def _id(record: Mapping[str, Any], key: str, place: _Place) -> str:
    """An id as a string; whole numbers are taken as their digits."""
    value = record.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value.strip():
        what = described(value) if key in record else "missing"
        place.fail(f'"{key}" must be a non-empty string, not {what}')
    return cleaned(value)


def _string(record: Mapping[str, Any], key: str, place: _Place) -> str:
    """A text field, which must be there and be a string."""
    value = record.get(key)
    if not isinstance(value, str):
        place.fail(f'"{key}" must be a string, not {described(value) if key in record else "missing"}')
    return value


def _label(record: Mapping[str, Any], form: Form, place: _Place, key: str = "") -> str | float:
    """A label field: a string, or for ratings also a number."""
    key = key or form.label_key
    value = record.get(key)
    if isinstance(value, str):
        return value
    if form.task == "lamp3" and isinstance(value, int | float) and not isinstance(value, bool):
        return value
    place.fail(f'"{key}" must be a string, not {described(value) if key in record else "missing"}')


def _profile(record: Mapping[str, Any], place: _Place) -> list[Any]:
    """The profile, which must be a list; it may be empty."""
    value = record.get("profile")
    if not isinstance(value, list):
        place.fail(f'"profile" must be a list, not {described(value) if "profile" in record else "missing"}')
    return value


def _source(path: Path, task: str) -> str:
    """A dataset name from the official file names: dev_questions.json under a folder "time" gives "lamp2-time/dev"."""
    split = path.stem.removesuffix("_questions")
    timed = "time" in (parent.name for parent in list(path.resolve().parents)[:4])
    return f"{task}-time/{split}" if timed else f"{task}/{split}"

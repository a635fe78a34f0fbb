"""The named tasks: LaMP-1 to 5 and 7, and the film ratings, as settings of the four general ones.

Prompts are our own wording. `task_from` builds a task from plain values, which is how configuration files reach here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from personalink.data.lamp_forms import CITATION_LABELS, NEWS_LABELS, TAG_LABELS
from personalink.errors import ConfigError
from personalink.tasks.base import Task, Wording
from personalink.tasks.choice import ChoiceTask
from personalink.tasks.label import LabelTask
from personalink.tasks.rating import RatingTask
from personalink.tasks.text import TextTask
from personalink.text import nearest

CATALOGUE: Mapping[str, Mapping[str, Any]] = {
    "lamp1": {
        "kind": "choice",
        "instruction": "A researcher wrote a paper. Of two references, choose the one that this researcher would cite.",
        "labels": CITATION_LABELS,
        "input_name": "Paper",
        "label_name": "Reference",
    },
    "lamp2": {
        "kind": "label",
        "instruction": "File a news article under the one category that this author would choose for it.",
        "labels": NEWS_LABELS,
        "input_name": "Article",
        "label_name": "Category",
    },
    "lamp2_tags": {
        "kind": "label",
        "instruction": "Tag a film, told by its description, with the one tag that this person would choose for it.",
        "labels": TAG_LABELS,
        "input_name": "Description",
        "label_name": "Tag",
    },
    "lamp3": {
        "kind": "rating",
        "instruction": "Predict the rating that this person gave with a product review.",
        "input_name": "Review",
        "label_name": "Rating",
    },
    "lamp4": {
        "kind": "text",
        "instruction": "Write the headline that this author would give to a news article.",
        "input_name": "Article",
        "label_name": "Headline",
        "max_tokens": 48,
    },
    "lamp5": {
        "kind": "text",
        "instruction": "Write the title that this researcher would give to a paper, told by its abstract.",
        "input_name": "Abstract",
        "label_name": "Title",
        "max_tokens": 48,
    },
    "lamp7": {
        "kind": "text",
        "instruction": "Word a tweet, told by its content, as this person would.",
        "input_name": "Content",
        "label_name": "Tweet",
        "max_tokens": 64,
    },
    "films": {
        "kind": "rating",
        "instruction": "Predict the rating that this person gave to a film, told by its title and genres.",
        "input_name": "Film",
        "label_name": "Rating",
    },
}
"""Name → settings as `task_from` takes them."""


def task(name: str, **changes: Any) -> Task:
    """A task of the catalogue by name ("lamp2", "lamp4", "films", …), with any setting changed.

    Raises:
        ConfigError: no such task, or no such setting.
    """
    if name not in CATALOGUE:
        near = nearest(name, CATALOGUE)
        msg = f"no task {name!r}" + (f"; did you mean {near!r}?" if near else f"; tasks are {', '.join(CATALOGUE)}")
        raise ConfigError(msg)
    return task_from({"name": name, **CATALOGUE[name], **changes})


_KINDS: Mapping[str, tuple[type[LabelTask | RatingTask | TextTask], Wording]] = {
    "label": (LabelTask, Wording("Text", "Label")),
    "choice": (ChoiceTask, Wording("Question", "Option")),
    "rating": (RatingTask, Wording("Text", "Rating")),
    "text": (TextTask, Wording("Text", "Answer")),
}
"""Kind → class, and the words around inputs and labels that hold where none are given."""


def task_from(settings: Mapping[str, Any]) -> Task:
    """A task from plain values: `kind` ("label", "choice", "rating" or "text"), `input_name`, `label_name` and the
    task's own fields.

    Raises:
        ConfigError: an unknown kind or field, or a value out of range.
    """
    values = dict(settings)
    kind = values.pop("kind", "label")
    if not isinstance(kind, str) or kind not in _KINDS:
        msg = f"task.kind is {kind!r:.60}; it must be {', '.join(_KINDS)}"
        raise ConfigError(msg)
    cls, default = _KINDS[kind]
    names = {f.name for f in fields(cls)} - {"kind", "wording"}
    if (version := values.pop("wording", default.version)) != default.version:
        msg = f"task.wording is {version!r}; this personalink words prompts by version {default.version}"
        raise ConfigError(msg)
    wording = Wording(_name(values, "input_name", default.input_name), _name(values, "label_name", default.label_name))
    for key in values:
        if key not in names:
            near = nearest(key, names)
            hint = f"did you mean {near!r}?" if near else f"known: {', '.join(sorted(names))}"
            msg = f"task.{key} is unknown for kind {kind!r}; {hint}"
            raise ConfigError(msg)
    if missing := {"name", "instruction"} - set(values) | ({"labels"} & names - set(values)):
        msg = f"task.{sorted(missing)[0]} is missing"
        raise ConfigError(msg)
    for key in ("name", "instruction"):
        if not isinstance(values[key], str) or not values[key]:
            msg = f"task.{key} is {values[key]!r:.60}; it must be a text"
            raise ConfigError(msg)
    if "labels" in values:
        if isinstance(values["labels"], str) or not isinstance(values["labels"], Iterable):
            msg = f"task.labels is {values['labels']!r:.60}; it must be a list"
            raise ConfigError(msg)
        values["labels"] = tuple(values["labels"])
        for label in values["labels"]:
            if not isinstance(label, str):  # what YAML makes of yes, no, 007 and 1.50
                msg = f"task.labels holds {label!r:.60}, which is no text; labels must be text: put it in quotes"
                raise ConfigError(msg)
    return cls(wording=wording, **values)


def _name(values: dict[str, Any], key: str, default: str) -> str:
    """The word before an input or a label, taken out of the settings."""
    name = values.pop(key, default)
    if not isinstance(name, str) or not name.strip() or len(name.splitlines()) != 1:
        msg = f"task.{key} is {name!r:.60}; it must be a text of one line"
        raise ConfigError(msg)
    return name

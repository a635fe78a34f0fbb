"""Small made-up files in the official LaMP formats, for the tasks whose profiles hold texts: 1, 4, 5 and 7."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from personalink.seeding import stream

NAMES = {"lamp1": "LaMP_1", "lamp4": "LaMP_4", "lamp5": "LaMP_5", "lamp7": "LaMP_7"}
HEADS = {
    "lamp4": "Generate a headline for the following article: ",
    "lamp5": "Generate a title for the following abstract of a paper: ",
    "lamp7": "Paraphrase the following tweet without any explanation before or after it: ",
}
WORDS = (
    "amber basin cedar delta ember fjord grove harbor island jetty kiln lagoon meadow nectar orchard pebble quarry "
    "ridge summit thicket umber valley willow yonder zephyr"
).split()


def words(user: str, what: str, n: int) -> str:
    """`n` words drawn by name."""
    return " ".join(WORDS[i] for i in stream(1, user, what).integers(0, len(WORDS), n))


def citation(title: str, one: str, two: str) -> str:
    """LaMP-1's question."""
    return (
        f'For an author who has written the paper with the title "{title}", which reference is related? '
        f'Just answer with [1] or [2] without explanation. [1]: "{one}" [2]: "{two}"'
    )


def entry(task: str, user: str, k: int | str) -> dict[str, Any]:
    """One profile entry."""
    body, name = words(user, f"body {k}", 14), f"{user} {words(user, f'name {k}', 5)}"
    if task == "lamp7":
        return {"text": f"Gotta say the {name} is so lovely :)", "id": f"{user}{k}"}
    return {
        "title": name.capitalize(),
        "text" if task == "lamp4" else "abstract": f"We saw {body}.",
        "id": f"{user}{k}",
    }


def question(task: str, user: str, m: int) -> tuple[dict[str, Any], str]:
    """One question with a profile of `m` entries, and its gold."""
    asked = entry(task, user, "asked")
    profile = [entry(task, user, k) for k in range(m)]
    if task == "lamp1":
        text, gold = citation(asked["title"], f"{user} cited", f"{user} other"), "[1]"
    elif task == "lamp7":
        text, gold = HEADS[task] + f"I find the {words(user, 'name asked', 5)} beautiful.", asked["text"]
    else:
        text, gold = HEADS[task] + asked["text" if task == "lamp4" else "abstract"], asked["title"]
    return {"id": user, "input": text, "profile": profile}, gold


def write(folder: Path, task: str, users: int = 3, m: int = 20) -> tuple[Path, Path]:
    """A dev split where `find_lamp` looks; users are "100", "101", …"""
    pairs = [question(task, str(100 + i), m) for i in range(users)]
    where = folder / NAMES[task] / "dev"
    where.mkdir(parents=True)
    asked, told = where / "dev_questions.json", where / "dev_outputs.json"
    asked.write_text(json.dumps([record for record, _ in pairs]), encoding="utf-8")
    golds = [{"id": record["id"], "output": gold} for record, gold in reversed(pairs)]
    told.write_text(json.dumps({"task": NAMES[task], "golds": golds}), encoding="utf-8")
    return asked, told

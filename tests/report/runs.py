"""Small finished runs for the tests of reports: made-up people, a scripted model, every row of the paper's tables."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from personalink.lm import ScriptedLM
from personalink.run_dir import RunDir
from personalink.running import arun
from tests.people import LABELS, random_script
from tests.test_experiment import settings, write_records

CONTEXTS = "personalink.contexts."
ROWS: dict[str, dict[str, Any]] = {
    "nopers": {"_target_": f"{CONTEXTS}NoPersonalization"},
    "random_user_persona": {"_target_": f"{CONTEXTS}RandomUserPersona"},
    "random_user_demos": {"_target_": f"{CONTEXTS}RandomUserDemonstrations", "k": 3},
    **{f"rag_{k}": {"_target_": f"{CONTEXTS}Retrieval", "k": k} for k in (1, 3, 5, 10, 20)},
    "pag": {"_target_": f"{CONTEXTS}Draft"},
    "rag_pag": {"_target_": f"{CONTEXTS}RetrievalWithDraft", "k": 5},
    **{f"personalink_r{depth}": {"_target_": f"{CONTEXTS}PersonaLink", "depth": depth} for depth in (1, 2, 3)},
    **{
        f"personalink_r2_no_{short}": {"_target_": f"{CONTEXTS}PersonaLink", "depth": 2, "without": field}
        for short, field in (
            ("rules", "decision_rules"),
            ("exemplars", "exemplars"),
            ("summary", "preference_summary"),
        )
    },
    "oracle": {"_target_": f"{CONTEXTS}FullProfile"},
}
TASK = {"kind": "label", "name": "lamp2", "instruction": "Say where it lies.", "labels": list(LABELS)}
STARS = {"kind": "rating", "name": "lamp3", "instruction": "Say how much this person likes it."}


def finished(folder: Path, *, n: int = 6, script: int = 5, lm: ScriptedLM | None = None, **changes: Any) -> RunDir:
    """A run of every row over `n` people; `script` chooses the answers, `changes` the settings."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "people.jsonl").exists():
        write_records(folder / "people.jsonl", n=n)
    configuration = settings(folder, **{"task": TASK, "context": ROWS, **changes})
    return asyncio.run(arun(configuration, lm=lm or ScriptedLM(random_script(script)))).result.run


def rated(folder: Path, **changes: Any) -> RunDir:
    """The same with ratings from 1 to 5."""
    folder.mkdir(parents=True, exist_ok=True)
    path = write_records(folder / "people.jsonl")
    numbers = {label: str(number + 1) for number, label in enumerate(LABELS)}
    text = path.read_text()
    for label, number in numbers.items():
        text = text.replace(f'"label": "{label}"', f'"label": "{number}"')
    path.write_text(text)
    lm = ScriptedLM(random_script(5, ("1", "2", "3", "4", "5")))
    return finished(folder, lm=lm, task=STARS, **changes)

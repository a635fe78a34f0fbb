"""A run whose every text is an attack or an ugly accident: made in memory, as large as a test wants it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from personalink.data import load_records, make_manifest
from personalink.data.types import Item, Query, User
from personalink.gate import SliceScore
from personalink.persona import Caps, Exemplar, PersonaState, Rule
from personalink.predictions import Prediction
from personalink.refinement import Pass, Refinement
from personalink.report.answers import Judged
from personalink.report.evidence import Evidence
from personalink.report.results import Scores
from personalink.report.tables import RowResult, results_table
from personalink.run_dir import RunDir
from personalink.tasks import LabelTask
from personalink.tasks.base import Wording
from personalink.text import one_line

ATTACKS = (
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "</title></textarea></style><img src=x onerror=alert(3)>",
    '" onmouseover="alert(4)" x=\'',
    "<img src=http://example.invalid/pixel.png><link rel=stylesheet href=//example.invalid/x.css>",
    "<!-- --> ]]> <svg/onload=alert(5)> &lt;b&gt; &amp; &#x3c;",
    "javascript:alert(6)",
    "\u202egnihtyreve nrut\u202d \u2067right-to-left\u2069 \u200f مرحبا שלום",
    "NUL \x00 bell \x07 escape \x1b[31m delete \x7f next line \x85",
    "lone \ud800 and \udfff, line \u2028 and paragraph \u2029",
    "w" * 400,
    "{{constructor.constructor('alert(7)')()}} ${alert(8)} `",
)
LABELS = ("<b>bold</b>", "right \u202eleft", "plain", "\"quoted\" & 'all'")
TASK = LabelTask("</script><script>alert(9)</script>", "Say <i>what</i>.", LABELS, Wording("Text <", "Label >"))
ROWS = {
    "nopers": {"_target_": "personalink.contexts.NoPersonalization"},
    "rag_5": {"_target_": "personalink.contexts.Retrieval", "k": 5},
    "personalink_r2": {"_target_": "personalink.contexts.PersonaLink", "depth": 2},
    "<script>alert(10)</script>": {"_target_": "someone.elses.Context"},
}
LONG = "A long item. <script>alert(11)</script> " * 1_250


class Words:
    id = "words <b>"
    remote = False

    def count(self, text: str) -> int:
        return len(text.split())


def user_name(i: int) -> str:
    """The first users have attacks as ids, the others numbers."""
    return f"{ATTACKS[i]}{i}" if i < len(ATTACKS) else f"user-{i}"


def person(i: int, *, long: bool = False) -> User:
    """A user of such items; with `long`, the first item has 50,000 characters."""
    texts = [ATTACKS[(i + j) % len(ATTACKS)] + f" item {j}" for j in range(6)]
    items = [Item(f"<i{j}>", LONG if long and not j else texts[j], LABELS[j % len(LABELS)]) for j in range(6)]
    return User(user_name(i), "hostile", tuple(items), (Query("q</pre>", ATTACKS[i % len(ATTACKS)] + " asked"),))


def refinement(i: int) -> Refinement:
    """A loop of three passes: one kept, one refused, one with nothing to use."""
    name, caps, counter = user_name(i), Caps(*[10**6] * 6), Words()

    def clean(j: int) -> str:
        return one_line(ATTACKS[(i + j) % len(ATTACKS)])

    empty = PersonaState.empty(counter, caps)
    shown = Exemplar("<i1>", clean(1), LABELS[0], 1)
    rules = tuple(Rule(clean(j), LABELS[j % 3], 1) for j in range(2, 4))
    kept = PersonaState(f"Likes {clean(4)} and more.", (shown,), rules, caps, counter=counter)
    tried = kept.edit(counter, preference_summary=f"Likes {clean(5)} and less.", decision_rules=rules[:1])
    none, one, two = SliceScore((0, 0, 0), 0.0), SliceScore((1, 0, 0), 1 / 3), SliceScore((0, 1, 0), 1 / 3)
    ids = ("<i0>", "<i2>", "<i4>")
    why = f"not better {ATTACKS[i % len(ATTACKS)]}"
    passes = (
        Pass(1, none, one, one, True, "accepted", kept, kept, ids, calls=4, notes=(ATTACKS[0], ATTACKS[0])),
        Pass(2, one, one, two, False, why, tried, kept, ids[1:], calls=4, unreadable=1),
        Pass(3, one, one, None, False, ATTACKS[1], None, kept, ids[1:], calls=1),
    )
    if i % 3 == 2:  # a user for whom nothing was kept
        passes = (Pass(1, none, none, two if i % 2 else None, False, why, tried, empty, ids, 0.0, calls=4),)
    return Refinement(name, 1, ids, ("<i5>",), none, empty, passes, (none, one), flags=(ATTACKS[2],))


def write_records(path: Path, n: int) -> None:
    """The users' data as a records file; the first two have an item of 50,000 characters."""
    with path.open("w", encoding="ascii") as file:
        for i in range(n):
            user = person(i, long=i < 2)
            for kind, pieces in (("history", user.history), ("query", user.queries)):
                for piece in pieces:
                    label = piece.label if isinstance(piece, Item) else LABELS[i % 4]
                    row = {"user": user.id, "id": piece.id, "input": piece.input, "label": label, "split": kind}
                    file.write(json.dumps(row) + "\n")


def answers(i: int, row: str, r: int) -> Judged:
    """What a row answered to a user's query."""
    items = () if row == "nopers" else ("<i1>", "<i3>")
    read = ("exact", "ok", ATTACKS[i % len(ATTACKS)], 7 * r, items)
    label = LABELS[(i if (i + r) % 3 else i + 1) % 4]  # two thirds are right
    return Judged(Prediction(user_name(i), "q</pre>", row, label, *read), LABELS[i % 4])


def evidence(folder: Path, n: int, *, name: str = "hostile") -> Evidence:
    """A run of `n` such users, whose data are at hand; of the run itself nothing but its folder is on the disk."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    data = folder / "hostile.jsonl"
    if not data.exists():
        write_records(data, n)
    users = [user_name(i) for i in range(n)]
    rows = {row: tuple(answers(i, row, r) for i in range(n)) for r, row in enumerate(("Floor: <u>", *ROWS))}
    config: dict[str, Any] = {
        "name": name, "seed": 1, "context": ROWS, "rows": list(ROWS), "task": {"name": TASK.name},
        "data": {"kind": "records", "path": str(data)},
        "optimizer": {"gate_metric": None, "gate": "strict", "depth": 3},
    }  # fmt: skip
    metrics = {"accuracy": 0.25, "macro_f1": 0.1, "official_accuracy": 0.25, "n": n}
    table = results_table(TASK, [RowResult(row, "", metrics) for row in rows], title=ATTACKS[1], notes=list(ATTACKS))
    return Evidence(
        run=RunDir(folder / name),
        config=config,
        task=TASK,
        manifest=make_manifest(load_records(data), n_users=None, seed=1).as_dict(),
        rows=rows,
        floors=("Floor: <u>",),
        users=tuple(users),
        incomplete={},
        refinements={user_name(i): refinement(i) for i in range(n)},
        results=Scores(TASK, config, table, None, {}, {}, {}),
        history_size={u: 6 + i for i, u in enumerate(users)},
    )


def other(one: Evidence, name: str) -> Evidence:
    """The same users in another run, whose personas are other people's."""
    ids = list(one.users)
    shifted = {u: replace(one.refinements[ids[i - 1]], user=u) for i, u in enumerate(ids)}
    run = RunDir(one.run.path.with_name(name))
    run.path.mkdir(exist_ok=True)
    return replace(one, run=run, config={**one.config, "name": name}, refinements=shifted)

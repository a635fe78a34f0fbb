"""Writing down what is finished: sorted, without a clock, so that the bytes are the same however it came about."""

from __future__ import annotations

import json
from collections.abc import Sequence

from personalink.canonical import canonical_json, pretty_json
from personalink.contexts.persona import Refine
from personalink.data import Dataset, User
from personalink.floors import floors_for
from personalink.persona_io import to_json, to_markdown
from personalink.predictions import Prediction
from personalink.refinement import Refinement
from personalink.rows import Rows
from personalink.run_dir import RunDir, file_name
from personalink.spool import Spool
from personalink.tasks import Task

PREDICTIONS = "predictions"


def keep(spool: Spool, user: User, predictions: Sequence[Prediction]) -> None:
    """Keep the predictions of a user who is finished, as they will be sealed.

    Raises:
        StorageError: the disk is full.
    """
    spool.put(PREDICTIONS, user.id, "".join(canonical_json(p.as_dict()) + "\n" for p in predictions))


def seal(run: RunDir, users: Sequence[User], dataset: Dataset, rows: Rows, task: Task) -> None:
    """Seal those among `users` who are finished, in their order: theirs is what `keep` and the rows kept.

    Raises:
        OSError: the folder cannot be written.
    """
    spool = rows.spool
    finished = [user for user in users if spool.has(PREDICTIONS, user.id)]
    run.seal("predictions.jsonl", "".join(text for _, text in spool.texts(PREDICTIONS, (u.id for u in finished))))
    run.seal_lines("floors.jsonl", (p.as_dict() for user in finished for p in floor_predictions(user, task)))
    golds = [(u.id, q.id, dataset.gold(u.id, q.id)) for u in finished for q in u.queries]
    run.seal_lines("golds.jsonl", ({"user": u, "query": q, "gold": gold} for u, q, gold in golds))
    about = {"source": dataset.source, "sha256": dataset.sha256, "left_out": dict(dataset.dropped)}
    run.seal("data.json", pretty_json(about))
    names = sorted(user.id for user in finished)
    for context in rows.all_contexts():
        if any(spool.has(context.key, name) for name in names):
            file = f"products/{type(context).__name__}-{context.key[:8]}.jsonl"
            run.seal(file, "".join(text for _, text in spool.texts(context.key, names)))
        if isinstance(context, Refine):
            for name, text in spool.texts(context.key, names):
                persona = Refinement.from_dict(json.loads(text)["product"]).persona
                run.seal(f"personas/{file_name(name)}.json", to_json(persona))
                run.seal(f"personas/{file_name(name)}.md", to_markdown(persona))
    run.close_seal()


def floor_predictions(user: User, task: Task) -> list[Prediction]:
    """The model-free floors for one user, as predictions."""
    made = []
    for query in user.queries:
        for row, floor in floors_for(task).items():
            label = floor(user, query)
            made.append(Prediction(user.id, query.id, row, label, "exact", "ok" if label else "empty", label or "", 0))
    return made

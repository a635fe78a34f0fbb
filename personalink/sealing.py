"""Writing down what is finished: sorted, without a clock, so that the bytes are the same however it came about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from personalink.canonical import pretty_json
from personalink.contexts.persona import Refine
from personalink.data import Dataset, User
from personalink.floors import floors_for
from personalink.persona_io import to_json, to_markdown
from personalink.predictions import Prediction
from personalink.refinement import Refinement
from personalink.rows import Rows
from personalink.run_dir import RunDir, file_name
from personalink.tasks import Task


def seal(
    run: RunDir, users: Sequence[User], done: Mapping[str, list[Prediction]], dataset: Dataset, rows: Rows, task: Task
) -> None:
    """Seal the finished among `users`, in their order.

    Raises:
        OSError: the folder cannot be written.
    """
    finished = [user for user in users if user.id in done]
    run.seal_lines("predictions.jsonl", (p.as_dict() for user in finished for p in done[user.id]))
    run.seal_lines("floors.jsonl", (p.as_dict() for user in finished for p in floor_predictions(user, task)))
    golds = [(u.id, q.id, dataset.gold(u.id, q.id)) for u in finished for q in u.queries]
    run.seal_lines("golds.jsonl", ({"user": u, "query": q, "gold": gold} for u, q, gold in golds))
    about = {"source": dataset.source, "sha256": dataset.sha256, "left_out": dict(dataset.dropped)}
    run.seal("data.json", pretty_json(about))
    for context in rows.all_contexts():
        products = rows.prepared(context, {user.id for user in finished})
        if products:
            name = f"products/{type(context).__name__}-{context.key[:8]}.jsonl"
            run.seal_lines(name, ({"user": u, "product": dict(products[u])} for u in sorted(products)))
        if isinstance(context, Refine):
            for user_id, product in products.items():
                persona = Refinement.from_dict(product).persona
                run.seal(f"personas/{file_name(user_id)}.json", to_json(persona))
                run.seal(f"personas/{file_name(user_id)}.md", to_markdown(persona))
    run.close_seal()


def floor_predictions(user: User, task: Task) -> list[Prediction]:
    """The model-free floors for one user, as predictions."""
    made = []
    for query in user.queries:
        for row, floor in floors_for(task).items():
            label = floor(user, query)
            made.append(Prediction(user.id, query.id, row, label, "exact", "ok" if label else "empty", label or "", 0))
    return made

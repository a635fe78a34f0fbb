"""What each row costs: to build once a user, and to ask once a query; and when building pays.

Read from the ledger (what was paid, over all attempts) and the predictions; asks no model. It hangs on what servers had
cached, so it stands in the log and not among the sealed files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from personalink.predictions import Prediction
from personalink.report.tables import ROW_LABELS, Cell, Column, Table
from personalink.run_dir import RunDir

_OURS = "personalink.contexts."
_UNBUILT = ("NoPersonalization", "Retrieval", "FullProfile", "RandomUserDemonstrations")
_BUILDING = ("evaluate", "draft", "rewrite")  # the audit is for the record and is left out


_NOTE = (
    "Build: calls and tokens paid once a user (without the audit, which is for the record). Query: tokens as the "
    "server counted them. Pays after: queries until building has cost fewer tokens than asking behind RAG-5 (RAG-20)."
)


def cost_table(run: RunDir) -> Table:
    """The costs of a run's rows.

    A figure is "–" where the server did not tell its tokens, and "never" is "–" too: a row that takes more tokens a
    query than RAG-k never pays against it.
    """
    config = run.read_json("sealed/config.json")
    lines = (run.read_json("log/ledger.json") or {"lines": []})["lines"]
    predictions: dict[str, list[Prediction]] = {}
    for record in run.read_lines("sealed/predictions.jsonl"):
        prediction = Prediction.from_dict(record)
        predictions.setdefault(prediction.row, []).append(prediction)
    users = len({p.user for group in predictions.values() for p in group})
    per_query = {row: _per_query(group) for row, group in predictions.items()}
    rows = []
    for row in (r for r in config["rows"] if r in predictions):
        calls, tokens = _built(passes_of(config["context"][row], config["optimizer"]["depth"]), lines, users)
        context = sum(p.context_tokens for p in predictions[row]) / len(predictions[row])
        pays = tuple(_pays(tokens, per_query[row], per_query.get(rag)) for rag in ("rag_5", "rag_20"))
        cells: tuple[Cell, ...] = (ROW_LABELS.get(row, row), context, per_query[row], calls, tokens, *pays)
        rows.append(cells)
    columns = (
        Column("method", "Method", "text"),
        Column("context_tokens", "Context tokens", "mean"),
        Column("query_tokens", "Tokens a query", "mean"),
        Column("build_calls", "Build: calls a user", "metric"),
        Column("build_tokens", "Build: tokens a user", "mean"),
        Column("pays_rag_5", "Pays after (RAG-5)", "mean"),
        Column("pays_rag_20", "Pays after (RAG-20)", "mean"),
    )
    return Table(f"{config['name']}: what it costs", columns, tuple(rows), notes=(_NOTE,))


def _per_query(predictions: Sequence[Prediction]) -> float | None:
    """Mean tokens of prompt and answer; None as soon as one is unknown."""
    totals = [(p.usage.prompt, p.usage.completion) for p in predictions if p.outcome != "too_long"]
    if not totals or any(a is None or b is None for a, b in totals):
        return None
    return sum((a or 0) + (b or 0) for a, b in totals) / len(totals)


def passes_of(settings: Mapping[str, Any], loop: int) -> int | None:
    """How many passes building a row takes, by its context; None for contexts that this does not know.

    PAG and what stands on it take the first pass; PersonaLink as many as its depth, of the loop's `loop`.
    """
    target = str(settings["_target_"])
    name = target.rsplit(".", 1)[-1] if target.startswith(_OURS) else ""
    if name in _UNBUILT:
        return 0
    if name == "PersonaLink":
        return min(int(settings.get("depth", 2)), loop)
    return {"Draft": 1, "RetrievalWithDraft": 1, "RandomUserPersona": 1, "Refine": loop}.get(name)


def _built(depth: int | None, lines: Sequence[Mapping[str, Any]], users: int) -> tuple[float | None, float | None]:
    """Calls and tokens a user that building took; answers of the cache count as calls without tokens."""
    if depth is None or not users:
        return None, None
    mine = [line for line in lines if depth and line["phase"] in _BUILDING and line["depth"] <= depth]
    calls = sum(line["calls"] + line.get("cached_calls", 0) for line in mine) / users
    if any(line["prompt_tokens"] is None or line["completion_tokens"] is None for line in mine):
        return calls, None
    return calls, sum(line["prompt_tokens"] + line["completion_tokens"] for line in mine) / users


def _pays(built: float | None, query: float | None, rival: float | None) -> float | None:
    """Queries after which a built row has taken fewer tokens than its rival; None for never or unknown."""
    if not built or query is None or rival is None or rival <= query:
        return None
    return built / (rival - query)

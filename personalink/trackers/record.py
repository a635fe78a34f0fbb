"""What a tracker is told of a run: settings, scores a row, slice and audit scores by depth, costs, and the tables.

Read from what is sealed and from the ledger; holds no persona, no answer and no text of a user. Knows no tracker.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from personalink.report.people import Line, People
from personalink.report.results import Scores
from personalink.run_dir import RunDir

TABLES = ("table.txt", "table.md", "table.csv", "selection.txt", "selection.md", "selection.csv", "metrics.json")
"""The sealed files that a tracker is given, where they are there."""


def record_of(run: RunDir, scores: Scores) -> dict[str, Any]:
    """What is told of a run, as plain JSON.

    Keys: `name` of the experiment; `run`, the folder named by the configuration's hash, which is the same for the same
    configuration; `folder`, its path; `state`; `settings`, dotted key → text; `metrics`, "row/metric" → number, with
    "cost/…" for the ledger's totals (unknown ones are left out, never 0); `series`, name → values by depth 0…R, means
    over the users who have such a slice; `files`, paths of the tables.

    Raises:
        IntegrityError: a file of the run is damaged.
    """
    config = scores.config
    return {
        "name": str(config["name"]),
        "run": run.path.resolve().name,
        "folder": str(run.path.resolve()),
        "state": str(run.status["state"]),
        "settings": dict(_flat({**config, "model": run.read_json("sealed/model.json") or {}})),
        "metrics": _metrics(scores) | _costs(run),
        "series": _series(list(People.of(run).lines())),
        "files": [str(path) for path in _files(run)],
    }


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as dotted keys and texts; lists as JSON."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield before + str(key), value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _metrics(scores: Scores) -> dict[str, float]:
    found: dict[str, Any] = {}
    for row, values in scores.metrics.items():
        low, high = values["interval"] or (None, None)
        flat = {**values, "interval_low": low, "interval_high": high}
        found |= {f"{row}/{name}": value for name, value in flat.items()}
    return _numbers(found)


def _costs(run: RunDir) -> dict[str, float]:
    total = (run.read_json("log/ledger.json") or {}).get("total", {})
    return _numbers({f"cost/{name}": value for name, value in total.items()})


def _series(lines: Sequence[Line]) -> dict[str, list[float]]:
    """Means over users by depth; a series that nobody has is left out."""
    named = (("slice", [one.slice for one in lines]), ("audit", [one.audit for one in lines]))
    found = {}
    for name, scores in named:
        rows = [values for values in scores if values]
        if rows:
            found[f"{name}/score_by_depth"] = [math.fsum(at) / len(rows) for at in zip(*rows, strict=False)]
    return found


def _files(run: RunDir) -> list[Path]:
    return [path.resolve() for name in TABLES if (path := run.sealed / name).exists()]


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Those that are finite numbers."""
    return {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }

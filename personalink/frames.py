"""A run as data frames, for notebooks: `pl.open_run("runs/lamp2")`.

    run = pl.open_run("runs/quickstart")
    run.users.sort_values("gain", ascending=False)
    run.predictions.groupby("row").right.mean()
    print(run.persona("35", depth=2).render())

Reads the run's sealed files when a frame is first asked for, asks no model, and needs pandas (the extra `notebooks`).
What is unknown is NA, never 0. The columns are told in docs/inspecting.md, and a test keeps the two equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from html import escape
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from personalink import stats
from personalink.errors import IncompleteRun, IntegrityError, UsageError
from personalink.metrics import primary
from personalink.persona import PersonaState
from personalink.refinement import Refinement
from personalink.report.answers import Answers, Judged
from personalink.report.contrasts import Choices, Contrast, contrast, matched
from personalink.report.people import Line, People, line_of
from personalink.report.results import Scores, read_scores, refinements_of
from personalink.report.tables import ROW_LABELS
from personalink.text import nearest

if TYPE_CHECKING:
    import pandas as pd

TEXT, COUNT, NUMBER, TRUTH, LIST = "string", "Int64", "Float64", "boolean", "object"
"""The dtypes of the frames: pandas' own nullable ones; a LIST holds tuples of texts."""

USERS: Mapping[str, str] = {
    **{"user": TEXT, "finished": TRUTH, "why": TEXT, "history": COUNT, "donor": TEXT, "queries": COUNT},
    **{"gain": NUMBER, "slice_before": NUMBER, "slice_after": NUMBER, "audit_before": NUMBER, "audit_after": NUMBER},
    **{"kept": COUNT, "tried": COUNT, "passes": COUNT, "ended": TEXT, "errors_before": COUNT, "errors_after": COUNT},
    **{"tokens": COUNT, "calls": COUNT},
}
PERSONAS: Mapping[str, str] = {
    **{"user": TEXT, "depth": COUNT, "preference_summary": TEXT, "exemplars": LIST, "decision_rules": LIST},
    **{"tokens": COUNT, "slice": NUMBER, "audit": NUMBER, "text": TEXT},
}
PASSES: Mapping[str, str] = {
    **{"user": TEXT, "depth": COUNT, "accepted": TRUTH, "reason": TEXT, "before": NUMBER, "after": NUMBER},
    **{"trial": NUMBER, "at_best": NUMBER, "errors": LIST, "unreadable": COUNT, "calls": COUNT},
    **{"candidate": TEXT, "candidate_tokens": COUNT, "notes": LIST, "constrained": TEXT},
}
PREDICTIONS: Mapping[str, str] = {
    **{"user": TEXT, "query": TEXT, "row": TEXT, "kind": TEXT, "label": TEXT, "gold": TEXT, "right": TRUTH},
    **{"error": NUMBER, "outcome": TEXT, "how": TEXT, "text": TEXT, "context_tokens": COUNT, "items": LIST},
    **{"prompt_tokens": COUNT, "completion_tokens": COUNT, "margin": NUMBER, "expected": NUMBER, "constrained": TEXT},
}
TESTS: Mapping[str, str] = {
    **{"a": TEXT, "b": TEXT, "n": COUNT, "a_value": NUMBER, "b_value": NUMBER, "difference": NUMBER, "low": NUMBER},
    **{"high": NUMBER, "a_better": COUNT, "b_better": COUNT, "p": NUMBER, "p_holm": NUMBER, "test": TEXT},
    **{"verdict": TEXT},
}


def open_run(path: str | Path) -> OpenedRun:
    """Open a run for reading.

    Args:
        path: the run's directory, or a folder that holds exactly one run.

    Raises:
        UsageError: there is no run, or there are several (they are listed).
        IntegrityError: its configuration or manifest is damaged.
    """
    return OpenedRun(People.of(str(path)))


class OpenedRun:
    """A run, read when it is asked for. Frames are made once; take a `copy()` before you change one.

    Args:
        people: the users of the run (see `open_run`).
    """

    def __init__(self, people: People) -> None:
        self._people = people

    @property
    def path(self) -> Path:
        """The run's directory."""
        return self._people.run.path

    @property
    def config(self) -> Mapping[str, Any]:
        """The sealed configuration."""
        return self._people.config

    @property
    def state(self) -> str:
        """ "complete", "incomplete", "interrupted", "failed"; "" where no attempt came to its end."""
        return str(self._people.run.status["state"])

    @cached_property
    def refinements(self) -> Mapping[str, Refinement]:
        """User → the record of the loop, sorted by id; empty where no row has one, or nothing is sealed yet.

        Raises:
            IntegrityError: one is damaged.
        """
        return refinements_of(self._people.run)

    def persona(self, user: str, depth: int | None = None) -> PersonaState:
        """The persona of a user after `depth` passes; None for the last, 0 for the empty one.

        Raises:
            UsageError: the run has no refinement, no such user, or no such pass.
            IncompleteRun: the user is not finished yet.
        """
        one = self.refinements.get(user)
        if one is None:
            raise self._people.nobody(user, [*self.refinements])
        if depth is not None and not 0 <= depth <= len(one.passes):
            raise UsageError(f"depth is {depth}; it must be from 0 (the empty persona) to {len(one.passes)}")
        return one.at(len(one.passes) if depth is None else depth)

    @cached_property
    def users(self) -> pd.DataFrame:
        """One row a user of the manifest, finished or not, in its order (see `USERS`)."""
        why = self._people.unfinished(self._people.finished())
        return _frame(USERS, (self._user(user, entry, why.get(user)) for user, entry in self._people.entries.items()))

    @cached_property
    def personas(self) -> pd.DataFrame:
        """One row a user and depth 0…R (see `PERSONAS`)."""
        return _frame(PERSONAS, (row for one in self.refinements.values() for row in _personas(one)))

    @cached_property
    def passes(self) -> pd.DataFrame:
        """One row a user and pass 1…R, with what was proposed, also where it was refused (see `PASSES`)."""
        return _frame(PASSES, (row for one in self.refinements.values() for row in _passes(one)))

    @cached_property
    def predictions(self) -> pd.DataFrame:
        """One row an answer, floors first, each beside its gold label (see `PREDICTIONS`).

        Raises:
            IncompleteRun: nothing is sealed yet. IntegrityError: a sealed file is missing or altered.
        """
        kinds = (("floor", self._answers.floors), ("method", self._answers.methods))
        return _frame(
            PREDICTIONS, (self._prediction(k, j) for k, rows in kinds for all_ in rows.values() for j in all_)
        )

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """One row a row of the table: `row`, `label`, `kind`, every metric of `metrics.score`, the 95 % interval of
        the primary one as `low` and `high`, `context_tokens`, and the paper's figures as `paper_*`.

        Raises:
            IncompleteRun: nothing is sealed yet. IntegrityError: a sealed file is missing or altered.
        """
        records = [self._metric(row, values) for row, values in self._scored[0].metrics.items()]
        names = dict.fromkeys(name for record in records for name in record)
        whole = {name: _kind_of(record.get(name) for record in records) for name in names}
        return _frame(whole, records)

    def tests(self, reference: str | None = None, choices: Choices | None = None) -> pd.DataFrame:
        """Pairs of methods on the queries that both answered and that have a gold label (see `TESTS`).

        `a_value`, `b_value` and `difference` = a − b are in the primary metric, with its 95 % interval as `low` and
        `high`; `p` is two-sided, and `p_holm` adjusted over the pairs of this frame (Holm 1979). Each comparison is the
        one that `personalink report` makes (see `report.contrasts.contrast`); `verdict` tells what it comes to for a.

        Args:
            reference: the row that each other method is compared with, as b; None for every pair.
            choices: which test and margin; None for the report's own.

        Raises:
            UsageError: there is no such row.
            IncompleteRun: nothing is sealed yet. IntegrityError: a sealed file is missing or altered.
        """
        rows, task = self._answers.methods, self._people.task
        if reference is not None and reference not in rows:
            near = nearest(reference, rows)
            known = f"did you mean {near!r}?" if near else f"rows: {', '.join(rows)}"
            raise UsageError(f"no row {reference!r}; {known}")
        names = [(a, reference) for a in rows if a != reference] if reference else list(combinations(rows, 2))
        found: list[tuple[str, str, Contrast]] = []
        for a, b in names:
            if pairs := matched(rows[a], rows[b]):
                made = contrast(task, pairs, seed=self.config["seed"], choices=choices or Choices())
                found.append((a, b, made))
        adjusted = stats.holm([made.p for _, _, made in found]) if found else []
        direction = primary(task)[1]
        return _frame(TESTS, (_test(*one, float(p), direction) for one, p in zip(found, adjusted, strict=True)))

    def __repr__(self) -> str:
        name = self.config["name"]
        users, finished = len(self._people.entries), len(self._people.finished())
        state = self.state or "unfinished"
        return f"<run {name} at {self.path}: {state}, {finished} of {users} users, {len(self.config['rows'])} rows>"

    def _repr_html_(self) -> str:
        """What a notebook shows: what it is, and the scores where there are any."""
        head = f"<p><code>{escape(repr(self))}</code></p>"
        try:
            scores = self._scored[0]
        except (IncompleteRun, IntegrityError) as error:
            return f"{head}<p>{escape(str(error))}</p>"
        return f"{head}<pre>{escape(scores.results.as_text())}</pre>"

    @cached_property
    def _scored(self) -> tuple[Scores, Answers]:
        run = self._people.run
        if not (run.sealed / "seal.json").exists():
            raise IncompleteRun(f"{run.path} is not finished: nothing of it is sealed yet; its command goes on")
        return read_scores(run)

    @property
    def _answers(self) -> Answers:
        return self._scored[1]

    def _user(self, user: str, entry: Mapping[str, Any], why: str | None) -> dict[str, Any]:
        one = self.refinements.get(user)
        known = {
            "user": user,
            "finished": why is None,
            "why": why,
            "history": entry["history"],
            "donor": entry["donor"],
            "queries": len(entry["queries"]),
        }
        return known | (_numbers(line_of(user, None, one, self._people.best_points)) if one else {})

    def _prediction(self, kind: str, judged: Judged) -> dict[str, Any]:
        p, known = judged.prediction, judged.gold is not None
        method = kind == "method"
        return {
            **{name: getattr(p, name) for name in ("user", "query", "row", "label", "outcome", "how", "text")},
            **{name: getattr(p, name) for name in ("margin", "expected")},
            "kind": kind,
            "gold": judged.gold,
            "right": judged.right if known else None,
            "error": judged.error(self._people.task) if known else None,
            "context_tokens": p.context_tokens if method else None,
            "items": p.item_ids if method else None,
            "prompt_tokens": p.usage.prompt,
            "completion_tokens": p.usage.completion,
            "constrained": p.constrained or None,
        }

    def _metric(self, row: str, values: Mapping[str, Any]) -> dict[str, Any]:
        floor = row in self._answers.floors
        flat = {name: value for name, value in values.items() if name not in ("interval", "paper")}
        low, high = values["interval"] or (None, None)
        head = {"row": row, "label": ROW_LABELS.get(row, row), "kind": "floor" if floor else "method"}
        paper = {f"paper_{name}": value for name, value in (values["paper"] or {}).items()}
        return {**head, **flat, "low": low, "high": high, **paper}


def _test(a: str, b: str, made: Contrast, adjusted: float, direction: str) -> dict[str, Any]:
    """A comparison as the columns of `TESTS`."""
    names = ("n", "a_better", "b_better", "p", "test")
    return {
        **{name: getattr(made, name) for name in names},
        **{"a": a, "b": b, "a_value": made.a, "b_value": made.b},
        **{"difference": made.difference.estimate, "low": made.difference.low, "high": made.difference.high},
        **{"p_holm": adjusted, "verdict": made.verdict(adjusted, direction)},
    }


def _numbers(one: Line) -> dict[str, Any]:
    """The numbers of a loop as the columns of `USERS`."""
    names = ("gain", "kept", "tried", "passes", "ended", "tokens", "calls")
    spans = (("slice", one.slice), ("audit", one.audit), ("errors", one.errors))
    ends: dict[str, Any] = {}
    for name, values in spans:
        ends |= {f"{name}_before": values[0], f"{name}_after": values[-1]} if values else {}
    return {name: getattr(one, name) for name in names} | ends


def _personas(one: Refinement) -> Iterator[dict[str, Any]]:
    for depth in range(len(one.passes) + 1):
        persona = one.at(depth)
        yield {
            "user": one.user,
            "depth": depth,
            "preference_summary": persona.preference_summary,
            "exemplars": tuple(e.render().removeprefix("- ") for e in persona.exemplars),
            "decision_rules": tuple(r.render().removeprefix("- ") for r in persona.decision_rules),
            "tokens": persona.tokens,
            "slice": one.score_at(depth).value if one.slice_ids else None,
            "audit": one.audit[depth].value if depth < len(one.audit) else None,
            "text": persona.render(),
        }


def _passes(one: Refinement) -> Iterator[dict[str, Any]]:
    held = bool(one.slice_ids)
    for p in one.passes:
        yield {
            **{
                name: getattr(p, name)
                for name in ("depth", "accepted", "reason", "at_best", "errors", "calls", "notes")
            },
            "user": one.user,
            "before": p.before.value if held else None,
            "after": p.after.value if held else None,
            "trial": p.trial.value if p.trial else None,
            "unreadable": p.unreadable if p.trial else None,
            "candidate": p.candidate.render() if p.candidate else None,
            "candidate_tokens": p.candidate.tokens if p.candidate else None,
            "constrained": p.constrained or None,
        }


def _kind_of(values: Iterable[Any]) -> str:
    """The dtype of a column of metrics."""
    known = [value for value in values if value is not None]
    if any(isinstance(value, str) for value in known):
        return TEXT
    return COUNT if known and all(isinstance(value, int) for value in known) else NUMBER


def _frame(dtypes: Mapping[str, str], records: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """A frame of exactly these columns; what a record does not have is NA.

    Raises:
        UsageError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        msg = 'data frames need pandas: pip install "personalink[notebooks]"'
        raise UsageError(msg) from None
    rows: Sequence[Mapping[str, Any]] = list(records)
    return pd.DataFrame(
        {name: pd.Series([row.get(name) for row in rows], dtype=dtype) for name, dtype in dtypes.items()}
    )

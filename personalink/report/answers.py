"""A run's answers, each beside its gold label, read from the sealed files and parsed again by the task.

Knows a run's files and a task's parser; computes no metric.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from personalink.generation_metrics import rouge
from personalink.metrics import Scored
from personalink.predictions import Prediction
from personalink.run_dir import RunDir
from personalink.tasks import RatingTask, Task
from personalink.tasks.base import Reading


@dataclass(frozen=True, slots=True)
class Judged:
    """One answer of a row to one query of one user, beside its gold label.

    Attributes:
        prediction: the answer, read again from its raw text.
        gold: the gold label; None where the files have none (an official test split): such an answer is not scored.
    """

    prediction: Prediction
    gold: str | None

    @property
    def key(self) -> tuple[str, str]:
        """(user, query): what rows and runs are paired on."""
        return self.prediction.user, self.prediction.query

    @property
    def right(self) -> bool:
        """Whether the label read is the gold one; INVALID never is."""
        return self.gold is not None and self.prediction.label == self.gold

    @property
    def scored(self) -> Scored:
        """The answer as `metrics.score` takes it.

        Raises:
            ValueError: there is no gold label.
        """
        if self.gold is None:
            msg = f"user {self.prediction.user!r}, query {self.prediction.query!r} has no gold label"
            raise ValueError(msg)
        return Scored(self.gold, self.prediction.label, self.prediction.text, self.prediction.outcome)

    def error(self, task: Task) -> float:
        """What the answer lost in the primary metric, lower is better: 0 or 1 for labels; |rating − gold| in points of
        the scale for ratings, INVALID as the farther end; 1 − ROUGE-L for texts.

        Raises:
            ValueError: there is no gold label.
        """
        gold, label = self.scored.gold, self.prediction.label
        if isinstance(task, RatingTask):
            return float(task.error(Reading(label), gold))
        if task.kind == "text":
            return 1 - (rouge(gold, label).rouge_l if label is not None else 0.0)
        return float(not self.right)


@dataclass(frozen=True, slots=True)
class Answers:
    """All answers of a run, in the manifest's order of users and each user's order of queries.

    Attributes:
        floors: what the history predicts without a model, by name.
        methods: by row, in the table's order.
        golds: (user, query) → gold label, None where there is none; of every finished user.
    """

    floors: Mapping[str, tuple[Judged, ...]]
    methods: Mapping[str, tuple[Judged, ...]]
    golds: Mapping[tuple[str, str], str | None]


def read_answers(run: RunDir, task: Task, rows: list[str]) -> Answers:
    """Read a run's predictions, floors and golds; the methods' raw texts are parsed again.

    Args:
        rows: names of the methods in the table's order; one without a prediction is left out.

    Raises:
        IntegrityError: a file is damaged.
        KeyError, TypeError: a record has not the fields of its kind.
    """
    golds = {(g["user"], g["query"]): g["gold"] for g in run.read_lines("sealed/golds.jsonl")}
    floors: dict[str, list[Judged]] = {}
    methods: dict[str, list[Judged]] = {}
    for name, found in (("floors", floors), ("predictions", methods)):
        for record in run.read_lines(f"sealed/{name}.jsonl"):
            read = Prediction.from_dict(record)
            one = read if found is floors else read.reread(task)
            found.setdefault(one.row, []).append(Judged(one, golds.get((one.user, one.query))))
    return Answers(
        floors={row: tuple(judged) for row, judged in floors.items()},
        methods={row: tuple(methods[row]) for row in rows if row in methods},
        golds=golds,
    )

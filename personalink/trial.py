"""A persona on trial: the agent's answers on the slice behind it, perhaps not all of them yet.

What is known bounds what can still come: an unanswered item can at best reach the task's best points. A gate that
would refuse even that refuses the candidate, so nothing more needs to be asked. Knows nothing of prompts or loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from personalink.agent import Answer
from personalink.brief import Mistake
from personalink.data.types import Item
from personalink.gate import Gate, SliceScore
from personalink.persona import PersonaState
from personalink.tasks.base import Task


@dataclass(slots=True)
class Trial:
    """A persona with what is known of it on the slice.

    Attributes:
        persona: who is on trial. items: the slice. task: gives the points.
        answers: place in the slice → answer.
    """

    persona: PersonaState
    items: Sequence[Item]
    task: Task
    answers: dict[int, Answer] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every item was answered."""
        return len(self.answers) == len(self.items)

    @property
    def score(self) -> SliceScore:
        """The slice score, every unanswered item at its best: exact when complete, an upper bound before."""
        points = tuple(self._points(i) for i in range(len(self.items)))
        return SliceScore(points, self.task.slice_value(sum(points), len(points)))

    def mistakes(self, among: Sequence[int] | None = None) -> tuple[Mistake, ...]:
        """Items answered otherwise than by the user's label; `among` narrows to some places.

        In the slice's order; where any text is a label, nearly every answer is a mistake, and the worst stand first.
        """
        wrong = self.wrong_places()
        places = wrong if among is None else [i for i in among if i in wrong]
        if not self.task.labels:
            places.sort(key=self._points)
        return tuple(Mistake(self.items[i], self.answers[i].reading.label) for i in places)

    def wrong_places(self) -> list[int]:
        """Places of the mistakes: answers that are neither the user's label nor worth the best points."""
        return [
            i
            for i, answer in sorted(self.answers.items())
            if answer.reading.label != self.items[i].label and self._points(i) < self.task.best_points
        ]

    def _points(self, place: int) -> int:
        """Points of one item; the best while it is unanswered."""
        if place not in self.answers:
            return self.task.best_points
        return self.task.points(self.answers[place].reading, self.items[place].label)


def waves(incumbent: Trial, candidate: Trial, *, race: bool) -> list[list[int]]:
    """Places still to be asked of a candidate, in two waves: what the incumbent got wrong, then the rest.

    Two waves and no more, so that a race costs at most one round trip more than asking everything at once.
    """
    wanted = [i for i in range(len(candidate.items)) if i not in candidate.answers]
    if not race:
        return [wanted] if wanted else []
    wrong = set(incumbent.wrong_places())
    return [wave for wave in ([i for i in wanted if i in wrong], [i for i in wanted if i not in wrong]) if wave]


def hopeless(gate: Gate, incumbent: Trial, candidate: Trial) -> bool:
    """Whether the gate refuses the candidate whatever its unanswered items bring.

    Exact for every gate that never prefers fewer points on an item, which the four gates are.
    """
    return not gate.accepts(incumbent.score, candidate.score)

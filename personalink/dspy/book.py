"""`Book`: what one compile for many users came to: refinements, unfinished users, the bill, one program for all.

Knows no loop and no model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from personalink.dspy.module import Personalized, Personas
from personalink.dspy.spaces import Space
from personalink.errors import PersonalinkError
from personalink.lm.ledger import Ledger
from personalink.refinement import Refinement


class Book(Mapping[str, Refinement]):
    """User → `Refinement` (`book["1136"].persona`, `.passes`, `.at(depth)`).

    Attributes:
        incomplete: user → error of those who could not be finished; the same call goes on with them.
        ledger: calls and tokens by user, phase and depth, of all attempts where there is a store.
    """

    def __init__(self, spaces: Mapping[str, Space], constrain: bool, ledger: Ledger) -> None:
        self.refinements: dict[str, Refinement] = {}
        self.incomplete: dict[str, PersonalinkError] = {}
        self.ledger = ledger
        self._spaces, self._constrain = spaces, constrain

    def __getitem__(self, user: str) -> Refinement:
        return self.refinements[user]

    def __iter__(self) -> Iterator[str]:
        return iter(self.refinements)

    def __len__(self) -> int:
        return len(self.refinements)

    def bind(self, student: Any) -> Personalized:
        """One program for all users: each call gives `user_id`, and a user without a persona is answered without."""
        kept = {user: one.persona for user, one in self.refinements.items() if not one.persona.is_empty}
        return Personalized(student, Personas(kept, by_user=True, spaces=self._spaces, constrain=self._constrain))

    def summary(self) -> dict[str, int | None]:
        """How many users kept a persona, kept the empty one, had nothing to mend, are incomplete; calls and tokens.

        `prompt_tokens` and `completion_tokens` are those paid for, None as soon as a server did not tell.
        """
        ended = list(self.refinements.values())
        perfect = sum(not one.passes or not one.passes[0].calls for one in ended)
        personal = sum(not one.persona.is_empty for one in ended)
        counts = self.ledger.total()
        return {
            "users": len(ended) + len(self.incomplete),
            "personalized": personal,
            "unchanged": len(ended) - personal - perfect,
            "nothing to mend": perfect,
            "incomplete": len(self.incomplete),
            "calls": counts.calls,
            "prompt_tokens": counts.prompt_tokens,
            "completion_tokens": counts.completion_tokens,
        }

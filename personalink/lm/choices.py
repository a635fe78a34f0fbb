"""Fixed choices as a trie of token ids, walked one token at a time: which tokens may come next, and when it is decided.

Pure logic. Knows no model and no tokenizer: a choice comes with its tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Node:
    """`choice` is the one that ends here, None where none does."""

    choice: str | None = None
    after: dict[int, _Node] = field(default_factory=dict)


class ChoiceWalk:
    """A walk through the tokens of some choices, from the first token on.

    Args:
        choices: choice → its tokens. Where two have the same tokens the first stands for both.
    """

    def __init__(self, choices: Mapping[str, Sequence[int]]) -> None:
        self._at = _Node()
        for choice, tokens in choices.items():
            node = self._at
            for token in tokens:
                node = node.after.setdefault(token, _Node())
            if node.choice is None:
                node.choice = choice

    @property
    def choice(self) -> str | None:
        """The choice that the tokens walked so far spell in full; None inside one."""
        return self._at.choice

    @property
    def allowed(self) -> list[int]:
        """Tokens that may come next, without the end of the answer, which may come where `choice` is not None."""
        return list(self._at.after)

    def step(self, token: int) -> None:
        """Go on to `token`, one of `allowed`."""
        self._at = self._at.after[token]

    def rest(self) -> list[int] | None:
        """The tokens to the only choice that is left; None while more than one is."""
        node, tokens = self._at, list[int]()
        while node.choice is None and len(node.after) == 1:
            ((token, node),) = node.after.items()
            tokens.append(token)
        return None if node.after else tokens

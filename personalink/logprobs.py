"""What a model thought of its own answer, token by token, and the one number that foretells a flip.

Knows tokens as texts with natural log-probabilities; knows no server, no task and no request.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MOST = 20
"""Most alternatives a token that may be asked for: OpenAI's bound of `top_logprobs` and vLLM's default one."""

NEAR_TIE = 0.05
"""Nats: an answer with a smaller margin is a near tie, which another batch, cache or GPU may flip. It is below the step
of bfloat16 (8 significant bits) between 8 and 16, where logits often lie: 2⁻⁴ = 0.0625."""

NEVER = -9999.0
"""Stands for a log-probability of −∞, as in vLLM's answers over HTTP: JSON has no infinity."""

ROUNDING = 1e-3
"""Nats above 0 that a server's float arithmetic may leave on a log-probability of 0; more is no log-probability."""

Alternative = tuple[str, float]
"""A token's text and its natural log-probability, at most 0."""


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """One generated token: its text, its natural log-probability (at most 0), and the likeliest tokens at its place.

    The token itself may be among `alternatives` or not. The probabilities are the model's own, before a constraint or
    a sampler had its say; a token that a constraint left no choice for, and that the model was not asked for, has 0
    and no alternatives.
    """

    text: str
    logprob: float
    alternatives: tuple[Alternative, ...] = ()

    @property
    def others(self) -> tuple[Alternative, ...]:
        """The alternatives less the token itself."""
        own = (self.text, self.logprob)
        at = self.alternatives.index(own) if own in self.alternatives else len(self.alternatives)
        return self.alternatives[:at] + self.alternatives[at + 1 :]


Tokens = tuple[TokenLogprobs, ...]


def as_logprob(value: Any) -> float:
    """A number that a server or a record gives as a log-probability, in [`NEVER`, 0].

    Raises:
        TypeError: it is no number, or a boolean.
        ValueError: it is not finite, or above 0 by more than `ROUNDING`.
        OverflowError: it is a whole number beyond every float.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("no number")
    if not math.isfinite(value) or value > ROUNDING:
        raise ValueError("no log-probability")
    return min(0.0, max(NEVER, float(value)))


def margin(tokens: Sequence[TokenLogprobs], choices: Sequence[str] = ()) -> float | None:
    """How far an answer was from another one: the smallest lead, over its tokens, of a token over the best other one.

    In nats, rounded to 4 decimals. 0 is a tie; the nearer to 0, the nearer to a flip; negative where something else
    than the model's own preference chose. None where no token has a known other, or a lead is not finite.

    Args:
        tokens: of the answer, in order.
        choices: what the answer was constrained to; () for an answer that was free. Then only others count that lead to
            one of them and away from the answer: no other can come of a change in the last bits, and the same answer
            in other tokens is no flip. White space is not compared, since some tokenizers tell tokens without it.
    """
    answer, allowed = _squeezed("".join(token.text for token in tokens)), [_squeezed(choice) for choice in choices]
    leads, written = [], ""
    for token in tokens:
        starts = [(_squeezed(written + text), logprob) for text, logprob in token.others]
        rivals = [
            logprob
            for start, logprob in starts
            if not choices or (not answer.startswith(start) and any(choice.startswith(start) for choice in allowed))
        ]
        if rivals:
            leads.append(token.logprob - max(rivals))
        written += token.text
    return round(min(leads), 4) if leads and all(map(math.isfinite, leads)) else None


def _squeezed(text: str) -> str:
    return "".join(text.split())


def logprobs_to_plain(tokens: Sequence[TokenLogprobs]) -> list[Any]:
    """Tokens as plain JSON: [text, logprob, [[text, logprob], …]] each."""
    return [[_written(t.text), t.logprob, [[_written(text), p] for text, p in t.alternatives]] for t in tokens]


def logprobs_from_plain(plain: Sequence[Any]) -> Tokens:
    """The tokens of `logprobs_to_plain`; none where a number among them is no log-probability, as records may hold.

    Raises:
        ValueError: an entry has not its three or two parts.
        TypeError: an entry is no list.
    """
    entries = [(text, logprob, [(t, p) for t, p in others]) for text, logprob, others in plain]
    try:
        return tuple(
            TokenLogprobs(text, as_logprob(logprob), tuple((t, as_logprob(p)) for t, p in others))
            for text, logprob, others in entries
        )
    except (TypeError, ValueError, OverflowError):
        return ()


def _written(text: str) -> str:
    """A token's text as UTF-8 can hold it: half a character may be a lone surrogate, which becomes "?"."""
    return text.encode("utf-8", "replace").decode()

"""How one row of a batch draws its tokens: as its `Decoding` and its constraint say, whoever else is in the batch.

Needs torch; knows no model. Penalties as OpenAI and vLLM define them: presence and frequency over the tokens of the
answer, repetition (Keskar et al. 2019, CTRL) over prompt and answer; then temperature, min-p, top-k, top-p, in vLLM's
order. Temperature 0 takes the most likely token, the first one of equals.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from personalink.errors import BadRequest
from personalink.lm.base import Decoding, Request
from personalink.lm.choices import ChoiceWalk
from personalink.logprobs import TokenLogprobs
from personalink.text import one_line


class Guide(Protocol):
    """What a constraint allows from token to token."""

    name: str

    def mask(self, logits: torch.Tensor) -> None:
        """Set the logits (shape [vocabulary]) of tokens that may not come next to −∞, in place."""
        ...

    def step(self, token: int) -> None:
        """Go on by a token that was allowed and does not end the answer."""
        ...

    def rest(self) -> Sequence[int] | None:
        """The tokens that must follow where the answer is decided, None where it is not."""
        ...


class ChoiceGuide:
    """Allows the tokens of some choices. `ends` are the tokens that end an answer."""

    name = "logits_mask"

    def __init__(self, walk: ChoiceWalk, ends: Sequence[int]) -> None:
        self._walk, self._ends = walk, list(ends)

    def mask(self, logits: torch.Tensor) -> None:
        """See `Guide`."""
        allowed = self._walk.allowed + (self._ends if self._walk.choice is not None else [])
        kept = logits[allowed]
        logits.fill_(-torch.inf)
        logits[allowed] = kept

    def step(self, token: int) -> None:
        """See `Guide`."""
        self._walk.step(token)

    def rest(self) -> Sequence[int] | None:
        """See `Guide`."""
        return self._walk.rest()


class SchemaGuide:
    """Allows JSON under a schema, on one line, by an xgrammar matcher."""

    name = "xgrammar"

    def __init__(self, xgrammar: Any, compiled: Any, vocabulary: int) -> None:
        self._xgrammar = xgrammar
        self._matcher = xgrammar.GrammarMatcher(compiled)
        self._bits = xgrammar.allocate_token_bitmask(1, vocabulary)

    def mask(self, logits: torch.Tensor) -> None:
        """See `Guide`."""
        self._matcher.fill_next_token_bitmask(self._bits)
        self._xgrammar.apply_token_bitmask_inplace(logits[None], self._bits.to(logits.device))

    def step(self, token: int) -> None:
        """See `Guide`."""
        self._matcher.accept_token(token)

    def rest(self) -> Sequence[int] | None:
        """None: an object that can only be closed is closed by the model."""
        return None


class Schemas:
    """Makes the guides of schemas; each schema is compiled once. Without xgrammar there are none.

    Args:
        tokenizer: the model's. vocabulary: width of its logits. ends: tokens that end an answer.
    """

    def __init__(self, tokenizer: Any, vocabulary: int, ends: Sequence[int]) -> None:
        self._vocabulary = vocabulary
        try:
            import xgrammar
        except ImportError:
            self._xgrammar = None
            return
        self._xgrammar = xgrammar
        info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=vocabulary, stop_token_ids=list(ends))
        self._compiler = xgrammar.GrammarCompiler(info)

    @property
    def available(self) -> bool:
        """Whether xgrammar is installed."""
        return self._xgrammar is not None

    def guide(self, schema: Any) -> Guide | None:
        """A guide for `schema`, at its beginning; None without xgrammar.

        Raises:
            BadRequest: xgrammar cannot read the schema.
        """
        if self._xgrammar is None:
            return None
        try:
            compiled = self._compiler.compile_json_schema(json.dumps(schema), any_whitespace=False)
        except (RuntimeError, ValueError) as error:
            raise BadRequest(f"xgrammar cannot keep an answer to this schema: {one_line(str(error))[:200]}") from None
        return SchemaGuide(self._xgrammar, compiled, self._vocabulary)


class Row:
    """One request in a batch: its prompt, its answer so far, and how the next token is drawn.

    Args:
        request: what was asked; repeated draws (`sample`) differ in their seed, `seed + sample`.
        prompt: its tokens. guide: what its constraint allows; None for everything.
        ends: tokens that end an answer.
    """

    def __init__(self, request: Request, prompt: tuple[int, ...], guide: Guide | None, ends: frozenset[int]) -> None:
        self.prompt, self.guide = prompt, guide
        self.answer: list[int] = []
        self.told: list[TokenLogprobs] = []  # of the tokens that the model was asked for
        self.logprobs = request.logprobs
        self.ended = self.truncated = False
        self._decoding, self._ends = request.decoding, ends
        self._random = torch.Generator().manual_seed((request.decoding.seed + request.sample) % 2**63)
        self._take_rest()

    @property
    def over(self) -> bool:
        """Whether the answer is complete or cut off."""
        return self.ended or self.truncated

    @property
    def plain(self) -> bool:
        """Whether the next token is simply the most likely one."""
        return self.guide is None and self._decoding.temperature == 0 and not _penalised(self._decoding)

    def draw(self, logits: torch.Tensor) -> int:
        """The next token by the model's logits (float32, shape [vocabulary]), which are left as they are."""
        decoding, logits = self._decoding, logits.clone()
        if self.guide is not None:
            self.guide.mask(logits)
        if _penalised(decoding):
            _penalise(logits, decoding, self.prompt, self.answer)
        if decoding.temperature == 0:
            return int(logits.argmax())
        chances = nucleus(logits / decoding.temperature, decoding).cpu()
        return int(torch.multinomial(chances, 1, generator=self._random))

    def take(self, token: int) -> None:
        """Go on by a drawn token."""
        self.answer.append(token)
        if token in self._ends:
            self.ended = True
            return
        if self.guide is not None:
            self.guide.step(token)
        self._take_rest()

    def _take_rest(self) -> None:
        """Spell what is decided without asking the model, and stop at `max_tokens`."""
        rest = self.guide.rest() if self.guide is not None else None
        if rest is not None:
            self.answer += rest
            self.ended = True
        most = self._decoding.max_tokens
        if len(self.answer) > most or (len(self.answer) == most and not self.ended):
            del self.answer[most:]
            self.ended, self.truncated = False, True

    @property
    def spoken(self) -> list[int]:
        """The answer's tokens without the one that ended it."""
        return self.answer[:-1] if self.answer and self.answer[-1] in self._ends else self.answer


def _penalised(decoding: Decoding) -> bool:
    neutral = (decoding.repetition_penalty, decoding.presence_penalty, decoding.frequency_penalty)
    return neutral != (1.0, 0.0, 0.0)


def _penalise(logits: torch.Tensor, decoding: Decoding, prompt: Sequence[int], answer: Sequence[int]) -> None:
    """Apply the three penalties in place."""
    seen = torch.tensor(sorted({*prompt, *answer}), device=logits.device)
    at, by = logits[seen], decoding.repetition_penalty
    logits[seen] = torch.where(at > 0, at / by, at * by)
    counts = Counter(answer)
    said = torch.tensor(list(counts), dtype=torch.long, device=logits.device)
    often = torch.tensor(list(counts.values()), dtype=logits.dtype, device=logits.device)
    logits[said] -= decoding.presence_penalty + decoding.frequency_penalty * often


def nucleus(logits: torch.Tensor, decoding: Decoding) -> torch.Tensor:
    """Chances (sum 1, shape [vocabulary]) of the tokens that min-p, top-k and top-p leave, in that order.

    min-p (Nguyen et al. 2024) keeps tokens at least `min_p` times as likely as the likeliest; top-k the k likeliest
    and their equals, 0 for all; top-p (Holtzman et al. 2020) the fewest likeliest that together reach `top_p`.
    """
    if decoding.min_p > 0:
        chances = logits.softmax(-1)
        logits = logits.masked_fill(chances < decoding.min_p * chances.max(), -torch.inf)
    if 0 < decoding.top_k < logits.shape[-1]:
        logits = logits.masked_fill(logits < logits.topk(decoding.top_k).values[-1], -torch.inf)
    if decoding.top_p < 1:
        likeliest, order = logits.softmax(-1).sort(descending=True, stable=True)
        before = likeliest.cumsum(-1) - likeliest  # what is more likely than this token
        beyond = before >= decoding.top_p
        beyond[0] = False
        logits = logits.masked_fill(torch.zeros_like(beyond).scatter(-1, order, beyond), -torch.inf)
    return logits.softmax(-1)

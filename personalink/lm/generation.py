"""A transformers model that answers batches: the shared prefix is read once, then all rows go on together.

Needs torch and transformers, so it is imported only when such a model is started. Knows no event loop and no queue.

A batch is laid out as usual, each row padded on the left. Its first columns are not computed: they are filled from
the keys and values of the prefix that all prompts share, shifted by each row's padding. So every row stands as it
would alone, without a gap, which layers with a sliding window need.

What a model's own `generation_config` says of sampling and penalties is not used, only its tokens that end an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache

from personalink.errors import LMError
from personalink.lm.base import Completion, Constraint, Outcome, Request, Usage
from personalink.lm.batching import Job
from personalink.lm.choices import ChoiceWalk
from personalink.lm.hub_model import prompt_tokens
from personalink.lm.prefixes import Prefixes, shared_by_all
from personalink.lm.sampling import ChoiceGuide, Guide, Row, Schemas
from personalink.logprobs import TokenLogprobs, Tokens
from personalink.text import one_line

WORTH_A_PASS = 16
"""Fewer shared tokens than this are read with each row: a pass of their own would cost more."""

State = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values a layer, each of shape [1, heads, tokens, size]."""
Asked = Job[Request, Completion]


@dataclass(slots=True)
class _Batch:
    """Rows that are being answered: `mask` is [rows, columns] with 0 for padding, `places` the next position a row."""

    jobs: list[Asked]
    rows: list[Row]
    cached: list[int]
    cache: Any
    mask: torch.Tensor
    places: torch.Tensor

    def narrow(self, live: Sequence[int]) -> None:
        """Go on with these rows only."""
        at = torch.tensor(live, device=self.mask.device)
        self.cache.batch_select_indices(at)
        self.mask, self.places = self.mask[at], self.places[at]
        self.jobs, self.rows = [self.jobs[i] for i in live], [self.rows[i] for i in live]
        self.cached = [self.cached[i] for i in live]


class Generation:
    """Answers batches with one loaded model.

    Args:
        model, tokenizer: as transformers loads them; the model stands on its device, in eval mode, and the tokenizer
            has a chat template.
        name: what answers are signed with.
        window: tokens that a prompt and its answer may have together; None for no bound.
        cache_bytes: memory for prefixes that may come back.
    """

    def __init__(self, model: Any, tokenizer: Any, name: str, window: int | None, cache_bytes: int) -> None:
        self.model, self.tokenizer, self.name, self.window = model, tokenizer, name, window
        ends = model.generation_config.eos_token_id
        listed = ends if isinstance(ends, list) else [ends]
        self.ends = frozenset(int(end) for end in (*listed, tokenizer.eos_token_id) if end is not None)
        self.schemas = Schemas(tokenizer, model.config.get_text_config().vocab_size, sorted(self.ends))
        self.prefixes: Prefixes[State] = Prefixes(cache_bytes)

    def run(self, jobs: list[Asked]) -> None:
        """Answer a batch, each job as soon as its own answer ends; jobs that nobody wants any more are dropped.

        Raises:
            LMError: the whole batch failed, such as for want of memory.
        """
        with torch.inference_mode():
            ready = self._ready(jobs)
            if not ready:
                return
            try:
                batch, logits = self._read(ready)
                while self._go_on(batch, logits):
                    logits = self._next(batch)
            except RuntimeError as error:  # what torch raises for want of memory and for whatever a device refuses
                self.prefixes.clear()
                what = one_line(str(error))[:200]
                msg = f"{self.name} failed on a batch of {len(ready)} ({what}); a lower lm.batch_size takes less memory"
                raise LMError(msg) from None

    def _ready(self, jobs: list[Asked]) -> list[tuple[Asked, Row]]:
        """The jobs with their rows; those that cannot be asked, or need no asking, are answered here."""
        ready = []
        for job in jobs:
            try:
                row = self._row(job.asked)
            except LMError as error:
                job.fail(error)
                continue
            if row.over:
                self._answer(job, row, 0)
            else:
                ready.append((job, row))
        return ready

    def _row(self, request: Request) -> Row:
        return Row(request, self.prompt(request), self._guide(request.constraint), self.ends)

    def prompt(self, request: Request) -> tuple[int, ...]:
        """The tokens of a request. Raises what `prompt_tokens` does."""
        return tuple(prompt_tokens(self.tokenizer, request, self.name, self.window))

    def _guide(self, constraint: Constraint | None) -> Guide | None:
        if constraint is None:
            return None
        if constraint.schema is not None:
            return self.schemas.guide(constraint.schema)
        tokens = {choice: self.tokenizer.encode(choice, add_special_tokens=False) for choice in constraint.choices}
        return ChoiceGuide(ChoiceWalk(tokens), sorted(self.ends))

    def _read(self, ready: list[tuple[Asked, Row]]) -> tuple[_Batch, torch.Tensor]:
        """The batch with its prompts read, and the logits of its first tokens."""
        rows = [row for _, row in ready]
        prompts = [row.prompt for row in rows]
        width = max(map(len, prompts))
        state, filled, known = self._prefix(shared_by_all(prompts)[: width - 1])
        padding = [width - len(prompt) for prompt in prompts]
        cached = [max(0, filled - pad) for pad in padding]
        first = padding.index(0)
        cached[first] = min(cached[first], known)  # one row pays for what was read just now
        padded = [[0] * pad + list(prompt) for pad, prompt in zip(padding, prompts, strict=True)]
        column = torch.arange(width, device=self.model.device)
        places = column[None] - self._tensor(padding)[:, None]
        mask = (places >= 0).long()
        cache = filled_cache(state, padding, filled)
        tokens = self._tensor([row[filled:] for row in padded])
        logits = self._forward(tokens, mask, places.clamp(min=0)[:, filled:], cache)
        return _Batch([job for job, _ in ready], rows, cached, cache, mask, places[:, -1:] + 1), logits

    def _prefix(self, tokens: tuple[int, ...]) -> tuple[State, int, int]:
        """(state, how many tokens of `tokens` it is good for, how many of those were known before)."""
        known = self.prefixes.find(tokens)
        if len(tokens) - known.length < WORTH_A_PASS:
            return known.state or [], known.length, known.length
        cache = filled_cache(known.state or [], [0], known.length)
        column = torch.arange(len(tokens), device=self.model.device)[None]
        new = self._tensor([tokens[known.length :]])
        self._forward(new, torch.ones_like(column), column[:, known.length :], cache)
        state = [(layer.keys, layer.values) for layer in cache.layers]
        self.prefixes.keep(tokens, state, sum(part.nbytes for layer in state for part in layer))
        return state, len(tokens), known.length

    def _forward(self, tokens: torch.Tensor, mask: torch.Tensor, places: torch.Tensor, cache: Any) -> torch.Tensor:
        """Logits of each row's last token: float32, shape [rows, vocabulary]."""
        out = self.model(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=places,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return torch.as_tensor(out.logits[:, -1].float())

    def _go_on(self, batch: _Batch, logits: torch.Tensor) -> bool:
        """Draw a token for each row and answer those that end; False when none is left."""
        highest, likeliest = logits.max(-1)
        if not bool(highest.isfinite().all()):
            msg = f"{self.name} computed no numbers (nan or infinity); set lm.dtype=float32 or bfloat16"
            raise LMError(msg)
        tokens = likeliest.tolist()
        for i, (job, row) in enumerate(zip(batch.jobs, batch.rows, strict=True)):
            if row.over:
                continue
            token = tokens[i] if row.plain else row.draw(logits[i])
            if row.logprobs:
                row.told.append(self._logprobs(logits[i], token, row.logprobs))
            row.take(token)
            if row.over:
                self._answer(job, row, batch.cached[i])
        live = [i for i, row in enumerate(batch.rows) if not row.over and batch.jobs[i].wanted]
        if live and 2 * len(live) <= len(batch.rows):
            batch.narrow(live)
        return bool(live)

    def _next(self, batch: _Batch) -> torch.Tensor:
        """The logits of the batch's next tokens."""
        tokens = self._tensor([row.answer[-1:] for row in batch.rows])
        batch.mask = torch.cat([batch.mask, torch.ones_like(batch.places)], dim=1)
        logits = self._forward(tokens, batch.mask, batch.places, batch.cache)
        batch.places = batch.places + 1
        return logits

    def _answer(self, job: Asked, row: Row, cached: int) -> None:
        text = self.tokenizer.decode(row.spoken, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        outcome: Outcome = "truncated" if row.truncated else "ok" if text.strip() else "empty"
        usage = Usage(len(row.prompt), cached, len(row.answer))
        constrained = row.guide.name if row.guide is not None else ""
        job.answer(Completion(text, outcome, usage, constrained, self.name, tokens=self._told(row)))

    def _logprobs(self, logits: torch.Tensor, token: int, most: int) -> TokenLogprobs:
        """A drawn token beside the `most` likeliest at its place, by the model's own logits (shape [vocabulary])."""
        logprobs = logits.log_softmax(-1)
        best = logprobs.topk(min(most, len(logprobs)))
        others = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return TokenLogprobs(
            self._spelled(token), float(logprobs[token]), tuple((self._spelled(other), p) for other, p in others)
        )

    def _told(self, row: Row) -> Tokens | None:
        """The answer's tokens; those that a constraint left no choice for were not asked of the model."""
        if not row.logprobs:
            return None
        decided = row.answer[len(row.told) :]
        return (*row.told[: len(row.answer)], *(TokenLogprobs(self._spelled(token), 0.0) for token in decided))

    def _spelled(self, token: int) -> str:
        return str(self.tokenizer.decode([token], clean_up_tokenization_spaces=False))

    def _tensor(self, values: Any) -> torch.Tensor:
        return torch.tensor(values, device=self.model.device)


def filled_cache(state: State, padding: Sequence[int], width: int) -> Any:
    """A cache of `width` columns for rows with `padding` on their left, filled from the keys and values of a prefix.

    What stands in the padding is 0 and must be masked. A `width` of 0 gives an empty cache.
    """
    cache = DynamicCache()
    for layer, parts in enumerate(state if width else []):
        keys, values = (spread(part, padding, width) for part in parts)
        cache.update(keys, values, layer)
    return cache


def spread(part: torch.Tensor, padding: Sequence[int], width: int) -> torch.Tensor:
    """[1, heads, tokens, size] as [rows, heads, width, size], row i shifted to the right by `padding[i]`."""
    _, heads, _, size = part.shape
    out = part.new_zeros(len(padding), heads, width, size)
    for row, pad in zip(out, padding, strict=True):
        row[:, pad:] = part[0, :, : max(0, width - pad)]
    return out

"""The in-process engine with real weights: PERSONALINK_TEST_MODEL names a Hugging Face folder of SmolLM2-135M-Instruct.

What it says is held against transformers' own `generate`, one prompt at a time and without a cache, in float32.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import threading
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from personalink import load_sample, task
from personalink.errors import BadRequest, LMError, PromptTooLong
from personalink.lm import Completion, Constraint, Decoding, Message, Request, TransformersLM
from personalink.logprobs import margin

pytestmark = pytest.mark.model
FOLDER = os.environ.get("PERSONALINK_TEST_MODEL", "")
SCHEMA = {
    "type": "object",
    "properties": {"rules": {"type": "array", "items": {"enum": ["murn", "tave"]}, "maxItems": 2}},
    "required": ["rules"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module", autouse=True)
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """One background loop for the module, since there is one model."""
    if not FOLDER:
        pytest.skip("PERSONALINK_TEST_MODEL is not set: the folder of a Hugging Face model")
    for needed in ("torch", "transformers"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed: [transformers]")
    background = asyncio.new_event_loop()
    threading.Thread(target=background.run_forever, daemon=True).start()
    yield background
    background.call_soon_threadsafe(background.stop)


def run(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run_coroutine_threadsafe(work, loop).result(300)


@pytest.fixture(scope="module")
def lm(loop: asyncio.AbstractEventLoop) -> Iterator[TransformersLM]:
    model = TransformersLM(FOLDER, device="cpu", batch_size=8)
    run(loop, model.start())
    yield model
    run(loop, model.aclose())


def news(count: int, start: int = 0, max_tokens: int = 12, user: int = 0, **more: Any) -> list[Request]:
    """Real news items of one user behind five of the user's own, which stand for a persona."""
    asked, history = task("lamp2"), load_sample("news").users[user].history
    persona = "\n".join(f"- {item.input[:160]} -> {item.label}" for item in history[:5])
    decoding = Decoding(max_tokens=max_tokens, **more)
    return [
        Request(
            (Message("system", asked.system()), Message("user", f"{persona}\n\n{asked.question(item.input)}")), decoding
        )
        for item in history[5 + start : 5 + start + count]
    ]


async def together(lm: TransformersLM, requests: list[Request]) -> list[Completion]:
    return list(await asyncio.gather(*map(lm.complete, requests)))


async def alone(lm: TransformersLM, requests: list[Request]) -> list[Completion]:
    return [await lm.complete(request) for request in requests]


def inner(lm: TransformersLM) -> Any:
    assert lm._generation is not None
    return lm._generation


def plainly(lm: TransformersLM, request: Request) -> str:
    """What transformers' own `generate` says, alone and without a cache of ours."""
    import torch

    engine = inner(lm)
    prompt = torch.tensor([engine.prompt(request)])
    with torch.inference_mode():
        out = engine.model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            repetition_penalty=request.decoding.repetition_penalty,
            max_new_tokens=request.decoding.max_tokens,
        )
    return str(engine.tokenizer.decode(out[0, prompt.shape[1] :], skip_special_tokens=True))


def test_a_batch_says_what_generate_says_one_by_one(lm: TransformersLM, loop: asyncio.AbstractEventLoop) -> None:
    requests = [
        *news(3, max_tokens=12),
        *news(2, user=1, max_tokens=5),
        Request((Message("user", "Hi."),), Decoding(9)),
    ]
    done = run(loop, together(lm, requests))
    assert [d.text for d in done] == [plainly(lm, request) for request in requests]
    assert [d.usage.prompt for d in done] == [len(inner(lm).prompt(r)) for r in requests]
    assert {d.model for d in done} == {lm.model}


def test_a_persona_is_read_once(lm: TransformersLM, loop: asyncio.AbstractEventLoop) -> None:
    inner(lm).prefixes.clear()
    first, second = run(loop, together(lm, news(3))), run(loop, together(lm, news(3, start=3)))
    other = run(loop, together(lm, news(2, user=1)))
    again = run(loop, together(lm, news(2, start=6)))
    paid = [sum(d.usage.cached == 0 for d in done) for done in (first, second)]
    assert paid == [1, 0]
    for done in (second, again):
        assert all(d.usage.cached > 200 for d in done)
    assert any(0 <= d.usage.cached < 200 for d in other)
    read = sum(d.usage.prompt - d.usage.cached for d in (*first, *second))
    assert read < 0.5 * sum(d.usage.prompt for d in (*first, *second))


def test_it_repeats(lm: TransformersLM, loop: asyncio.AbstractEventLoop) -> None:
    said = []
    for _ in range(2):
        inner(lm).prefixes.clear()
        said.append([d.text for d in run(loop, together(lm, news(4)))])
    assert said[0] == said[1]


def test_a_sampled_answer_hangs_on_its_own_seed(lm: TransformersLM, loop: asyncio.AbstractEventLoop) -> None:
    requests = [replace(r, decoding=replace(r.decoding, temperature=1.0, seed=i)) for i, r in enumerate(news(3))]
    requests.append(replace(requests[0], sample=1))
    requests += news(2, start=3)  # greedy, in the same batch
    batch = [d.text for d in run(loop, together(lm, requests))]
    assert batch == [d.text for d in run(loop, alone(lm, requests[::-1]))][::-1]
    assert batch[0] != batch[3]
    assert batch[4:] == [plainly(lm, r) for r in requests[4:]]


def test_decoding_is_what_was_asked_and_nothing_else(lm: TransformersLM, loop: asyncio.AbstractEventLoop) -> None:
    said = Request((Message("user", "Write tick twenty times: tick tick tick tick tick"),), Decoding(24))
    own = inner(lm).model.generation_config
    own.repetition_penalty, own.temperature = 1.7, 0.1
    try:
        plain = run(loop, lm.complete(said)).text
    finally:
        own.repetition_penalty = own.temperature = 1.0
    assert plain == plainly(lm, said)
    penalties = [{"repetition_penalty": 1.3}, {"presence_penalty": 2.0}, {"frequency_penalty": 2.0}]
    asked = [replace(said, decoding=replace(said.decoding, **penalty)) for penalty in penalties]
    texts = [d.text for d in run(loop, together(lm, asked))]
    assert texts[0] == plainly(lm, asked[0])
    assert plain not in texts
    sharp = {"temperature": 5.0, "seed": 3}
    narrow = [sharp | {"top_k": 1}, sharp | {"top_p": 1e-6}, sharp | {"min_p": 1.0}]
    kept = [replace(said, decoding=replace(said.decoding, **only)) for only in narrow]
    assert {d.text for d in run(loop, together(lm, kept))} == {plain}


def test_choices_are_kept_to(lm: TransformersLM, loop: asyncio.AbstractEventLoop) -> None:
    offered = [
        ("women", "women's rights", "sports"), ('say "é"', 'say "ü"'), ("back\\slash", "two\nlines\tand a tab"),
        ("😀😀", "日本語"), ("[a-z]*", "(b | c)"), ("only this",),
    ]  # fmt: skip
    asked = [Request((Message("user", "Say hello."),), Decoding(48), Constraint(choices=c)) for c in offered]
    for choices, done in zip(offered, run(loop, together(lm, asked)), strict=True):
        assert done.text in choices
        assert (done.outcome, done.constrained) == ("ok", "logits_mask")
    cut = replace(asked[2], decoding=Decoding(2))
    done = run(loop, lm.complete(cut))
    assert (done.outcome, done.usage.completion) == ("truncated", 2)


def test_a_schema_is_kept_to_where_xgrammar_is(lm: TransformersLM, loop: asyncio.AbstractEventLoop) -> None:
    asked = Request((Message("user", "Say hello."),), Decoding(48), Constraint(schema=SCHEMA))
    done = run(loop, lm.complete(asked))
    if importlib.util.find_spec("xgrammar") is None:
        assert (done.constrained, lm.describe()["schemas"]) == ("", "")
        return
    assert set(json.loads(done.text)) == {"rules"}
    assert (done.outcome, done.constrained, lm.describe()["schemas"]) == ("ok", "xgrammar", "xgrammar")
    with pytest.raises(BadRequest, match="this schema"):
        run(loop, lm.complete(replace(asked, constraint=Constraint(schema={"type": "no such type"}))))


def test_logprobs_are_the_models_own(lm: TransformersLM, loop: asyncio.AbstractEventLoop) -> None:
    import torch

    engine, free = inner(lm), [replace(request, logprobs=5) for request in news(3, max_tokens=4)]
    labels = task("lamp2").labels
    held = [replace(request, constraint=Constraint(choices=labels), decoding=Decoding(24)) for request in free]
    for request, done in zip([*free, *held], run(loop, together(lm, [*free, *held])), strict=True):
        assert done.tokens is not None
        spelled = "".join(token.text for token in done.tokens).removesuffix("<|im_end|>")
        assert spelled == done.text
        if request.constraint is None:
            assert (margin(done.tokens) or 0) > 0  # greedy
        prompt = engine.prompt(request)
        with torch.inference_mode():
            logits = engine.model(torch.tensor([prompt])).logits[0, -1].float()
        best = logits.log_softmax(-1).topk(5)
        first = done.tokens[0]
        assert [text for text, _ in first.alternatives] == [engine.tokenizer.decode([i]) for i in best.indices]
        assert [p for _, p in first.alternatives] == pytest.approx(best.values.tolist(), abs=1e-3)
    plain = run(loop, together(lm, [replace(request, logprobs=0) for request in free]))
    assert all(done.tokens is None for done in plain)


def test_what_a_constraint_decides_is_no_flip(lm: TransformersLM, loop: asyncio.AbstractEventLoop) -> None:
    choices = ("women", "women's rights", "sports")
    asked = Request((Message("user", "Say hello."),), Decoding(48), Constraint(choices=choices), logprobs=20)
    done = run(loop, lm.complete(asked))
    assert "".join(token.text for token in done.tokens).removesuffix("<|im_end|>") == done.text
    single = replace(asked, constraint=Constraint(choices=("only this",)))
    assert margin(run(loop, lm.complete(single)).tokens, ("only this",)) is None


def test_too_long_is_told_before_running_and_stops_nobody(lm: TransformersLM, loop: asyncio.AbstractEventLoop) -> None:
    long = Request((Message("user", "word " * 9000),), Decoding(8))

    async def both() -> list[Any]:
        return await asyncio.gather(lm.complete(long), lm.complete(news(1)[0]), return_exceptions=True)

    error, done = run(loop, both())
    assert isinstance(error, PromptTooLong)
    assert "8192 fit" in str(error)
    assert done.text


def test_it_names_itself(lm: TransformersLM) -> None:
    told = lm.describe()
    assert json.loads(json.dumps(told)) == told
    assert (told["device"], told["dtype"], told["window"]) == ("cpu", "float32", 8192)
    assert told["revision"] in lm.identity
    assert "torch" in lm.identity
    assert FOLDER not in json.dumps(told)
    assert lm.counter.count("hello world") == 2


def test_closing_frees_it_and_a_later_request_starts_it_again(loop: asyncio.AbstractEventLoop) -> None:
    model = TransformersLM(FOLDER, device="cpu", cache_mib=0)
    words = run(loop, model.complete(news(1, max_tokens=4)[0])).text
    endless = [news(1, max_tokens=2000)[0]]

    async def closed_meanwhile() -> BaseException:
        asked = asyncio.create_task(model.complete(endless[0]))
        while not getattr(model._batcher, "_at_work", False):
            await asyncio.sleep(0)
        await model.aclose()
        return (await asyncio.gather(asked, return_exceptions=True))[0]

    assert "closed" in str(run(loop, closed_meanwhile()))
    run(loop, model.aclose())
    assert run(loop, model.complete(news(1, max_tokens=4)[0])).text == words
    run(loop, model.aclose())


def a_small_model(folder: Path, kind: str, **more: Any) -> Path:
    """A model of another kind with weights drawn at random and SmolLM2's tokenizer."""
    import torch
    import transformers

    for file in Path(FOLDER).glob("*"):
        if file.name.startswith(("tokenizer", "chat_template")):
            (folder / file.name).symlink_to(file)
    sizes = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 49152}
    config = getattr(transformers, f"{kind}Config")(**sizes, eos_token_id=2, pad_token_id=0, bos_token_id=1, **more)
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("Qwen2", {"num_key_value_heads": 2, "intermediate_size": 96}),
        ("Mistral", {"num_key_value_heads": 2, "intermediate_size": 96, "sliding_window": 24}),
        ("Gemma2", {"num_key_value_heads": 2, "intermediate_size": 96, "sliding_window": 24, "head_dim": 12}),
        ("GPT2", {}),
    ],
)
def test_other_kinds_say_what_generate_says(
    kind: str, more: dict[str, Any], loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    model = TransformersLM(a_small_model(tmp_path, kind, **more), device="cpu")
    requests = [*news(3), *news(2, user=1), Request((Message("user", "Hi."),), Decoding(30))]
    first, again = run(loop, together(model, requests)), run(loop, together(model, requests[:3]))
    plain = [plainly(model, request) for request in requests]
    assert [d.text for d in first] == plain
    assert [d.text for d in again] == plain[:3]
    assert len(set(plain)) > 1
    run(loop, model.aclose())


async def test_a_model_with_a_recurrent_state_is_refused(tmp_path: Path) -> None:
    folder = a_small_model(tmp_path, "Mamba")
    with pytest.raises(LMError, match="recurrent state"):
        await TransformersLM(folder).start()


async def test_a_damaged_folder_is_one_line(tmp_path: Path) -> None:
    for file in Path(FOLDER).iterdir():
        (tmp_path / file.name).symlink_to(file)
    weights = tmp_path / "model.safetensors"
    weights.unlink()
    with (Path(FOLDER) / weights.name).open("rb") as whole:
        weights.write_bytes(whole.read(1 << 20))
    with pytest.raises(LMError, match=r"lm\.path: .* could not be loaded") as caught:
        await TransformersLM(tmp_path).start()
    assert len(str(caught.value).splitlines()) == 1
    (tmp_path / "chat_template.jinja").unlink()
    with pytest.raises(LMError, match="no chat template"):
        await TransformersLM(tmp_path).start()
    with pytest.raises(LMError, match=r"lm\.device is 'cuda:77'"):
        await TransformersLM(FOLDER, device="cuda:77").start()

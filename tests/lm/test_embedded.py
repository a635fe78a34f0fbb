"""The real small model inside this process. Slow and alone on the cores: one module-scoped model."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import struct
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from personalink.doctor import diagnose, render_findings
from personalink.errors import LMError, PromptTooLong
from personalink.lm import Constraint, Decoding, EmbeddedLM, Message, Request, connect, weights
from personalink.lm import embedded as module


def ask(text: str, max_tokens: int = 24, **more: Any) -> Request:
    return Request(
        (Message("system", "Answer briefly."), Message("user", text)), Decoding(max_tokens=max_tokens), **more
    )


def needs_engine() -> None:
    """Skip where the engine is not installed; found without importing it, which must come after OMP_WAIT_POLICY."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed")


class Loop:
    """One background loop for the module, since sessions belong to loops."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(120)


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    yield (background := Loop())
    background.loop.call_soon_threadsafe(background.loop.stop)


@pytest.fixture(scope="module")
def lm(loop: Loop) -> Iterator[EmbeddedLM]:
    needs_engine()
    model = EmbeddedLM(context=2048)
    loop.run(model.start())
    yield model
    loop.run(model.aclose())


@pytest.mark.model
def test_chat_counts_and_names_itself(lm: EmbeddedLM, loop: Loop) -> None:
    done = loop.run(lm.complete(ask("Say hello.")))
    assert done.outcome in ("ok", "truncated")
    assert done.model == lm.model
    assert done.usage.prompt > 10
    assert done.usage.cached is not None
    assert lm.identity.startswith("embedded|b179c9523d0e6a0f|")
    assert (lm.window, lm.concurrency, lm.users_in_flight) == (2048, 1, 1)
    assert lm.counter.count("hello world") == 2
    assert "127.0.0.1" not in json.dumps(lm.describe())
    assert lm.describe()["name"].startswith("Smollm2 135M")


@pytest.mark.model
def test_odd_choices_are_obeyed(lm: EmbeddedLM, loop: Loop) -> None:
    for choices in (
        ('say "é"', 'say "ü"'),
        ("back\\slash", "two\nlines\tand a tab"),
        ("😀😀", "日本語"),
        ("[a-z]*", "(b | c)"),
    ):
        done = loop.run(lm.complete(ask("Say hello.", 48, constraint=Constraint(choices=choices))))
        assert done.text in choices
        assert (done.outcome, done.constrained) == ("ok", "grammar")


@pytest.mark.model
def test_a_schema_is_obeyed(lm: EmbeddedLM, loop: Loop) -> None:
    schema = {
        "type": "object",
        "properties": {"rules": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2}},
        "required": ["rules"],
        "additionalProperties": False,
    }
    done = loop.run(lm.complete(ask("Say hello.", 64, constraint=Constraint(schema=schema))))
    assert set(json.loads(done.text)) == {"rules"}
    assert done.constrained == "response_format"


@pytest.mark.model
def test_a_prompt_too_long_is_told_with_both_counts(lm: EmbeddedLM, loop: Loop) -> None:
    with pytest.raises(PromptTooLong, match=r"\d{4} tokens asked, 2048 fit"):
        loop.run(lm.complete(ask("word " * 3000)))


@pytest.mark.model
def test_greedy_repeats(lm: EmbeddedLM, loop: Loop) -> None:
    texts = {loop.run(lm.complete(ask("Name three colours.", 16))).text for _ in range(4)}
    assert len(texts) == 1


@pytest.mark.model
def test_items_are_answered_in_the_order_in_which_they_come(lm: EmbeddedLM, loop: Loop) -> None:
    done: list[int] = []

    async def one(number: int) -> None:
        await lm.complete(ask(f"Say {number}.", 1 + 6 * (number % 2)))
        done.append(number)

    async def all_of_them() -> None:
        await asyncio.gather(*map(one, range(6)))

    loop.run(all_of_them())
    assert done == list(range(6))


@pytest.mark.model
def test_a_prefix_that_comes_back_is_not_read_again(lm: EmbeddedLM, loop: Loop) -> None:
    personas = {
        name: f"About {name}: " + f"{name} likes short answers and dislikes noise. " * 12 for name in ("Ann", "Bo")
    }
    cached = [loop.run(lm.complete(ask(personas[n] + "Hi.", 2))).usage.cached for n in ("Ann", "Bo", "Ann", "Bo")]
    assert min(cached[2:]) > 90 > max(cached[:2])


@pytest.mark.model
def test_the_doctor_finds_nothing_wrong(lm: EmbeddedLM, loop: Loop) -> None:
    found = loop.run(diagnose(lm))
    # a cached prefix may change a greedy answer of this engine, which is told and no fault
    assert all(f.ok for f in found if f.name != "repeatable"), render_findings(found)
    assert {"greedy", "constraint: choices", "template"} <= {f.name for f in found}


@pytest.mark.model
def test_it_starts_again_after_closing_and_twice_at_once(lm: EmbeddedLM, loop: Loop) -> None:
    second = EmbeddedLM(context=512)
    first_words = loop.run(second.complete(ask("Say hello."))).text
    loop.run(second.aclose())
    loop.run(second.aclose())
    with pytest.raises(LMError, match="start"):
        _ = second.endpoint
    assert loop.run(second.complete(ask("Say hello."))).text == first_words
    assert loop.run(lm.complete(ask("Say hello."))).text
    loop.run(second.aclose())


@pytest.mark.model
def test_a_program_that_never_closes_it_ends_and_is_quiet() -> None:
    needs_engine()
    code = """
import asyncio
from personalink.lm import connect, Decoding, Message, Request
lm = connect("embedded", context=512)
print(len(asyncio.run(lm.complete(Request((Message("user", "Hi"),), Decoding(max_tokens=4)))).text) > 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "True\n"
    assert "llama" not in done.stderr


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError("No module named 'xllamacpp'")

    monkeypatch.setattr(module.importlib, "import_module", missing)
    with pytest.raises(LMError, match=r"personalink\[embedded\]"):
        module.load_engine()

    def no_openmp(name: str) -> Any:
        raise ImportError("libgomp.so.1: cannot open shared object file")

    monkeypatch.setattr(module.importlib, "import_module", no_openmp)
    with pytest.raises(LMError, match="libgomp1"):
        module.load_engine()


async def test_a_path_that_is_no_model_is_told_before_the_engine_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(LMError, match=r"lm\.path: /nowhere/model\.gguf cannot be read"):
        await EmbeddedLM("/nowhere/model.gguf").start()
    (tmp_path / "other.gguf").write_bytes(b"PK\x03\x04")
    with pytest.raises(LMError, match=r"other\.gguf is no GGUF file"):
        await EmbeddedLM(tmp_path / "other.gguf").start()


@pytest.mark.model
@pytest.mark.parametrize("kept", [4, 1000, 40_000_000])
async def test_a_file_that_is_cut_off_is_one_line(kept: int, tmp_path: Path) -> None:
    needs_engine()
    with weights.default_weights().open("rb") as whole:
        (tmp_path / "cut.gguf").write_bytes(whole.read(kept))
    with pytest.raises(LMError, match=r"lm\.path: .*cut\.gguf could not be loaded .* cut off") as caught:
        await EmbeddedLM(tmp_path / "cut.gguf").start()
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.model
def test_any_other_file_runs_by_its_path(lm: EmbeddedLM, loop: Loop, tmp_path: Path) -> None:
    (tmp_path / "mine.gguf").symlink_to(weights.default_weights())
    other = connect(str(tmp_path / "mine.gguf"), context=512)
    done = loop.run(other.complete(ask("Say hello.")))
    assert (done.text, done.model) == (loop.run(lm.complete(ask("Say hello."))).text, "mine")
    assert other.describe()["weights"] == "mine.gguf"
    loop.run(other.aclose())


def a_gguf(*entries: tuple[str, int, bytes], version: int = 3) -> bytes:
    told = b"".join(
        struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + value for key, kind, value in entries
    )
    return struct.pack("<4sIQQ", b"GGUF", version, 0, len(entries)) + told


TEXT = ("general.name", 8, struct.pack("<Q", 9) + b"My\nModel7")


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (a_gguf(TEXT), "My Model7"),
        (a_gguf(("a", 4, bytes(4)), ("b", 7, b"\1"), ("c", 12, bytes(8)), TEXT, version=2), "My Model7"),
        (a_gguf(("a", 9, struct.pack("<IQ", 4, 1) + bytes(4)), TEXT), ""),  # not looked for behind lists
        (a_gguf(("general.name", 4, bytes(4))), ""),
        (a_gguf(TEXT, version=1), ""),
        (a_gguf(TEXT)[:40], ""),
        (b"GGUF", ""),
        (a_gguf(), ""),
    ],
)
def test_what_a_file_calls_its_model(content: bytes, name: str, tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(content)
    assert weights.gguf_name(tmp_path / "a.gguf") == name
    assert weights.gguf_name(tmp_path / "none.gguf") == ""


def test_how_far_answers_repeat_is_stated() -> None:
    one, more = EmbeddedLM().describe(), EmbeddedLM(slots=2).describe()
    assert one["slots"] == 1
    assert "in the same order" in one["reproducibility"]
    assert "may differ" in more["reproducibility"]


def test_identity_is_not_known_before_start() -> None:
    with pytest.raises(AttributeError, match="start"):
        _ = EmbeddedLM().identity

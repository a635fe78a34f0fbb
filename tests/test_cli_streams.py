"""What the command line writes where: closed, full and narrow streams, sweeps that are interrupted, files of one's own."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from personalink.cli import main
from personalink.cli.compose import EMBEDDED_NOTE, run_config
from personalink.cli.run import _user_option
from personalink.cli.words import readable, to_go_on
from tests.test_cli import QUICK, ROOT, call, errors

CONF = ROOT / "conf"
SMALL = ("run", "lm=scripted", "data.n_users=2", "context=[nopers,personalink_r1]")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    return tmp_path


def shell(here: Path, *arguments: str, redirect: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    command = shlex.join([sys.executable, "-m", "personalink.cli", *arguments])
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{command} {redirect}"], cwd=here, capture_output=True, text=True, check=False,
        timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT), **env}, errors="replace",
    )  # fmt: skip


def test_a_closed_stdout_changes_no_exit_code(here: Path) -> None:
    done = shell(here, *SMALL, "budget.calls=5", redirect="| true")
    assert done.returncode == 4
    assert len(errors(done.stderr)) == 1
    assert "Error executing" not in done.stderr
    assert shell(here, *SMALL, redirect="| true").returncode == 0
    assert shell(here, "personas", "runs", redirect="| true").returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_under_stdout_is_one_line(here: Path) -> None:
    for arguments in (SMALL, ("table", "runs"), ("run", "--cfg", "job")):
        done = shell(here, *arguments, redirect=">/dev/full")
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == "personalink: cannot write to stdout: No space left on device"
        assert len(errors(done.stderr)) == 1
        assert "Traceback" not in done.stderr


def test_nothing_meant_for_a_closed_stderr_reaches_stdout(here: Path) -> None:
    done = shell(here, "table", "/nowhere", redirect="2>&-")
    assert (done.returncode, done.stdout) == (2, "")


def test_a_narrow_terminal_escapes_what_it_cannot_show(here: Path, capsys: Any) -> None:
    call(capsys, *SMALL)
    narrow = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0"}
    for arguments in (("personas", "runs"), ("table", "runs"), ("predict", "--prompt", "日本 → é")):
        done = shell(here, *arguments, **narrow)
        assert done.returncode == 0, done.stderr
        assert "\\u" in done.stdout or arguments[0] == "table"


def test_the_command_that_goes_on_never_starts_anew() -> None:
    words = ["experiment=lamp2", "fresh=true", "+fresh=true", "++fresh=1", "seed=0"]
    assert to_go_on(words) == ["experiment=lamp2", "seed=0"]


def test_words_that_hydra_cannot_read_are_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    typed = {
        "data.root=~/LaMP": "data.root=/home/me/LaMP",
        "data.root=~/La MP#1": "data.root='/home/me/La MP#1'",
        "task.instruction=Say it's here.": 'task.instruction="Say it\'s here."',
        "task.labels=[a b, #c, 日本, 'd']": None,
        "task.labels=[a b, #c, 日本]": "task.labels=[a b,'#c','日本']",
        "context=[nopers,rag_5]": "context=[nopers,rag_5]",
        "seed=0,1,2": "seed=0,1,2",
        "shard.index=range(0,4)": "shard.index=range(0,4)",
        "~context": "~context",
        "--config-dir=~/mine": "--config-dir=/home/me/mine",
    }
    for word, wanted in typed.items():
        if wanted is not None:
            assert readable([word], CONF) == [wanted]
    assert readable(["--config-dir", "task=null", "-m"], CONF) == ["--config-dir", "task=null", "-m"]


def test_broken_files_in_a_config_dir_are_named(here: Path, capsys: Any) -> None:
    (here / "mine" / "task").mkdir(parents=True)
    (here / "mine" / "task" / "broken.yaml").write_text("name: [a\nx: :\n")
    (here / "mine" / "task" / "latin.yaml").write_bytes(b'name: "\xff"\n')
    for name, what in (("broken", "broken.yaml, line 2"), ("latin", "latin.yaml: it is not UTF-8")):
        code, _, err = call(capsys, "run", "--config-dir", str(here / "mine"), f"task={name}")
        assert (code, len(err.splitlines())) == (2, 1), err
        assert what in err


def test_ones_own_data_as_the_documentation_prints_it(here: Path, capsys: Any) -> None:
    text = (ROOT / "docs" / "data.md").read_text()
    command = re.search(r"personalink (run data=records.*?)\n```", text, re.DOTALL)
    assert command
    rows = [f"{user},mail {i} of {user},{'work' if i % 2 else 'home'}" for user in ("-a b", "c") for i in range(4)]
    (here / "mails.csv").write_text("author,body,folder\n" + "\n".join(rows) + "\n")
    code, out, err = call(capsys, *shlex.split(command[1].replace("\\\n", " ")), "lm=scripted")
    assert code == 0, err
    assert "--user='-a b' --diff 0:1" in out
    assert call(capsys, "personas", "runs", "--user=-a b", "--diff", "0:1")[0] == 0


def test_users_in_hints_can_be_typed() -> None:
    assert [_user_option(user) for user in ("35", "a b", "-x", "a/b'c")] == [
        "--user 35",
        "--user 'a b'",
        "--user=-x",
        "--user 'a/b'\"'\"'c'",
    ]


def test_the_note_on_the_small_model_stands_under_its_tables_alone() -> None:
    plain = {"name": "t", "task": {"name": "t", "instruction": "x", "labels": ["a", "b"]}, "notes": ["short"]}
    plain["context"] = {"nopers": {"_target_": "personalink.contexts.NoPersonalization"}}
    notes = {
        kind: run_config({**plain, "lm": lm}).notes
        for kind, lm in (
            ("small", {"kind": "embedded", "path": None}),
            ("file", {"kind": "embedded", "path": "~/a.gguf"}),
            ("server", {"kind": "endpoint", "base_url": "http://x"}),
        )
    }
    assert notes == {"small": (EMBEDDED_NOTE, "short"), "file": ("short",), "server": ("short",)}


def test_damaged_refinements_are_one_line_and_exit_5(here: Path, capsys: Any) -> None:
    call(capsys, *SMALL)
    (file,) = here.glob("runs/*/*/sealed/products/Refine-*.jsonl")
    for line in ("[]", "{}", '{"user": [], "product": {}}', '{"user": "0", "product": []}', "7"):
        file.write_text(line + "\n")
        code, out, err = call(capsys, "personas", "runs")
        assert (code, out, len(err.splitlines())) == (5, "", 1)
        assert f"{file.name} is damaged in line 1" in err


@pytest.mark.parametrize("passes", ["²:1", "1:²", "1", "9" * 5000 + ":1", "-1:1", "٣:1"])
def test_passes_that_are_no_passes(here: Path, capsys: Any, passes: str) -> None:
    call(capsys, *SMALL)
    user = json.loads(call(capsys, "personas", "runs", "--top", "1", "--json")[1])["user"]
    code, _, err = call(capsys, "personas", "runs", "--user", user, f"--diff={passes}")
    assert code == 2, err


def test_predict_reads_the_persona_before_it_starts_a_model(
    here: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    call(capsys, *QUICK)
    file = next(here.glob("runs/quickstart/*/sealed/personas/*.md"))
    edited = here / "edited.md"
    rule = "- if about a match → sports\n"
    edited.write_text(re.sub(r"## Decision rules\n(?s:.*)", f"## Decision rules\n\n{rule}", file.read_text()))
    code, out, err = call(capsys, "predict", "--persona", str(edited), "--prompt", "a new article")
    assert code == 0, err
    assert "a match" in out
    assert "tokens by an estimate, no model counted it" in err
    code, _, err = call(capsys, "predict", "--persona", str(edited), "--lm", "scripted", "--raw", "a new article")
    assert code == 0, err
    foreign = here / "foreign.md"
    foreign.write_text(edited.read_text().replace("→ sports", "→ comedy"))
    monkeypatch.setattr("personalink.cli.predict.connect", lambda *a, **k: pytest.fail("a model was made"))
    code, _, err = call(capsys, "predict", "--persona", str(foreign), "a new article")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "comedy" in err
    assert call(capsys, "predict", "--persona", "/nowhere.md", "a new article")[0] == 2


def test_predict_on_a_task_of_ones_own(here: Path, capsys: Any) -> None:
    (here / "mails.yaml").write_text("name: mails\ninstruction: File a mail.\nlabels: [work, home]\ninput_name: Mail\n")
    code, out, _ = call(capsys, "predict", "--task", "mails.yaml", "--prompt", "dear all")
    assert code == 0
    assert "File a mail." in out
    assert "Mail: dear all" in out
    (here / "bad.yaml").write_text("name: mails\ninstruction: File a mail.\nlabels: [yes, no]\n")
    code, _, err = call(capsys, "predict", "--task", "bad.yaml", "--prompt", "dear all")
    assert code == 2
    assert "task.labels holds True, which is no text" in err
    (here / "list.yaml").write_text("- a\n")
    assert main(["predict", "--task", "list.yaml", "--prompt", "x"]) == 2

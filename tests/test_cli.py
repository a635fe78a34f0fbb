"""The command line: Hydra's groups, one plain line for what is wrong, exit codes, what it prints."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from personalink.cli import main
from personalink.config import RunConfig
from personalink.lm import hashed_answers
from personalink.lm.base import Decoding, Message, Request
from personalink.running import run
from tests.lm.double import Double, reply, status
from tests.people import LABELS
from tests.test_experiment import write_records

ROOT = Path(__file__).parent.parent
QUICK = ("run", "experiment=quickstart", "lm=scripted", "data.n_users=3")


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    return tmp_path


def errors(err: str) -> list[str]:
    return [line for line in err.splitlines() if line.startswith("personalink: ")]


def test_quickstart_prints_the_table_the_run_and_what_to_type_next(here: Path, capsys: Any) -> None:
    code, out, _ = call(capsys, *QUICK)
    assert code == 0
    for word in ("Floor: majority label", "NoPers", "RAG-20", "PAG", "PersonaLink r=3", "Oracle", "Shortened"):
        assert word in out
    assert "135M" not in out
    assert out.index("Floor") < out.index("NoPers")
    found = re.search(r"run: (\S+)", out)
    assert found
    assert (here / found[1] / "sealed" / "table.tex").exists()
    assert not (here / "outputs").exists()
    assert not (here / ".hydra").exists()


def test_the_same_command_again_sends_nothing(here: Path, capsys: Any) -> None:
    first = call(capsys, *QUICK)[1]
    again = call(capsys, *QUICK)[1]
    assert "(0 requests sent)" in again
    assert first.split("run: ")[0] == again.split("run: ")[0]


def test_the_absent_film_sample_is_said(here: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("personalink.data.sample_path", lambda name: None)
    _, out, _ = call(capsys, *QUICK)
    assert "not part of the installed package" in out


def test_tables_in_every_format_and_personas(here: Path, capsys: Any) -> None:
    call(capsys, *QUICK)
    for form, mark in (
        ("text", "NoPers"),
        ("markdown", "| NoPers"),
        ("csv", "nopers"),
        ("latex", "\\toprule"),
        ("json", "{"),
    ):
        code, out, _ = call(capsys, "table", "runs", "--format", form)
        assert code == 0
        assert mark in out
    assert call(capsys, "table", "runs", "--selection")[0] == 0
    code, out, _ = call(capsys, "personas", "runs", "--json")
    assert len(out.splitlines()) == 3
    user = json.loads(out.splitlines()[0])["user"]
    assert "pass 1:" in call(capsys, "personas", "runs", "--user", user)[1]
    assert "pass 1 → 2" in call(capsys, "personas", "runs", "--user", user, "--diff", "1:2")[1]
    assert json.loads(call(capsys, "personas", "runs", "--user", user, "--format", "json")[1])["version"] == 1
    assert call(capsys, "personas", "runs", "--user", user, "-r", "1", "--format", "markdown")[1].startswith(
        "# Persona"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "experiment=quickstar"), "Could not find 'experiment/quickstar'"),
        (("run", "lm.modl=x"), "lm.modl"),
        (("run", "task=lamp9"), "task/lamp9"),
        (("run", "data.n_users=abc"), "data.n_users is 'abc'; it must be a whole number"),
        (("run", "data.n_users=0"), "data.n_users is 0"),
        (("run", "optimizer.gate=strictest"), "gate is 'strictest'"),
        (("run", "optimizer.caps.total=-1"), "caps.total is -1"),
        (("run", "+optimizer.dpth=2"), "optimizer.dpth is unknown; did you mean 'depth'?"),
        (("run", "constrain=true"), "constrain is True; it must be one of none, label, line"),
        (("run", "lm=endpoint"), "lm.base_url is missing"),
        (("run", "data=lamp"), "data.root is missing"),
        (("run", "data=lamp", "data.root=/nowhere"), "/nowhere"),
        (("run", "data=records"), "data.path is missing"),
        (("run", "data=records", "data.path=/nowhere.jsonl"), "/nowhere.jsonl"),
        (("run", "task=lamp3"), "lamp2"),
        (("run", "context=[nopers,rag_4]"), "context/rag_4"),
        (("run", "rows=[rag_50]"), "rows names 'rag_50'"),
        (("run", "name=a/b"), "plain folder name"),
        (("run", "max_failed=2"), "max_failed is 2"),
        (("run", "data.max_top_label_share=0.0001"), "no user"),
        (("run", "seed"), "seed"),
        (("run", "--config-dir", "/nowhere"), "/nowhere"),
        (("run", "optimizer.caps={totl:3}"), "optimizer.caps.totl is unknown; did you mean 'total'?"),
        (("run", "data=records", "data.columns={usr: author}"), "data.columns.usr is unknown; did you mean 'user'?"),
        (("run", "data=records", "data.columns={user: 7}"), "data.columns.user is 7"),
        (("run", "data=lamp", "data.root=~/personalink-nowhere"), f"{Path.home()}/personalink-nowhere"),
        (("run", "task.labels=[a,#b,日本]", "lm=scripted"), "labels are a, #b, 日本"),
        (("run", "task.labels=[a,'#b',[日本]"), "quote its texts"),
        (("run", "task.labels=[a,1.50]"), "task.labels holds 1.5, which is no text"),
        (("run", "task.label_name=null"), "task.label_name is None"),
        (("run", "optimizer=null"), "optimizer=null: a group needs a name; there are default, paper"),
        (("run", "optimizer.depth=inf"), "optimizer.depth is inf; it must be a whole number"),
        (("run", "optimizer.depth=1e400"), "optimizer.depth is inf; it must be a whole number"),
        (("run", "seed=nan"), "seed is nan; it must be a whole number"),
        (("run", "lm=scripted", "rewriter=endpoint"), "rewriter.base_url is missing"),
        (("run", "lm=scripted", "rewriter={}"), "rewriter.kind is missing"),
        (("table", "/nowhere"), "no run at /nowhere"),
        (("personas", "/nowhere"), "no run at /nowhere"),
        (("predict", "--task", "lamp9", "text"), "no task 'lamp9'"),
        (("predict", "--persona", "/nowhere.json", "--lm", "scripted", "text"), "cannot read the persona"),
        (("predict", "--lm", "embeded", "text"), "did you mean 'embedded'?"),
        (("predict", "--lm", "scripted", "  "), "nothing to answer"),
        (("predict", "--lm", "scripted", "a\udcff"), "not valid UTF-8"),
        (("predict", "--task", "nowhere.yaml", "text"), "cannot read the task nowhere.yaml"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_2(
    here: Path, capsys: Any, arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = call(capsys, *arguments)
    assert code == 2, err
    assert len(err.strip().splitlines()) == 1, err
    assert message in err
    assert out == ""
    assert not list(here.glob("runs/**/predictions.jsonl"))


def test_bad_flags_of_other_commands_are_exit_2(here: Path) -> None:
    for arguments in (["personas"], ["table", "x", "--format", "pdf"], ["nonsense"], []):
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert stopped.value.code == 2


FAULTS = [
    ("dead", None, 3, "nothing answers"),
    ("wrong model", {"models": ("other",)}, 3, "other"),
    ("401", {"key": "secret-key-1"}, 3, "OPENAI_API_KEY"),
    ("html", {"pages": {"/v1/models": status(200, "<html>hello</html>")}}, 3, "<html>"),
]


@pytest.mark.parametrize(("name", "double", "code", "message"), FAULTS, ids=[f[0] for f in FAULTS])
def test_an_endpoint_that_cannot_be_asked(
    here: Path, capsys: Any, name: str, double: Any, code: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not-the-key-2")
    arguments = ["run", "lm=endpoint", "data.n_users=2", "context=[nopers]"]
    if double is None:
        got, _, err = call(capsys, *arguments, "lm.base_url=http://127.0.0.1:9/v1", "lm.model=m")
    else:
        with Double(**double) as server:
            got, _, err = call(capsys, *arguments, f"lm.base_url={server.url}", "lm.model=m")
    assert got == code
    assert len(errors(err)) == 1
    assert message in err or name == "dead"
    assert "not-the-key-2" not in err
    assert not any(b"not-the-key-2" in p.read_bytes() for p in here.rglob("*") if p.is_file())


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (reply({"role": "assistant", "content": ""}), "empty"),
        (reply({"role": "assistant", "content": "The category of"}, finish="length"), "truncated"),
        (status(400, {"error": {"message": "politics are not supported"}}), "were not finished"),
        (status(401, {"error": {"message": "no"}}), "were not finished"),
        (status(200, "<html>proxy</html>"), "were not finished"),
    ],
    ids=["empty", "truncated", "400", "401", "html"],
)
def test_an_endpoint_that_fails_half_way_ends_in_one_line_and_keeps_what_was_done(
    here: Path, capsys: Any, fault: Any, message: str
) -> None:
    faults = dict.fromkeys(range(3, 500), fault)
    with Double(answer=lambda body: "politics", faults=faults) as server:
        code, out, err = call(
            capsys, "run", "lm=endpoint", f"lm.base_url={server.url}", "data.n_users=6", "context=[nopers]",
            "lm.concurrency=1", "lm.users_in_flight=1", "lm.retries=0",
        )  # fmt: skip
    assert code in (3, 4)
    assert len(errors(err)) == 1
    assert message in err
    assert "NoPers" in out
    (lines,) = [p.read_text().splitlines() for p in here.glob("runs/*/*/sealed/predictions.jsonl")]
    labels = [json.loads(line)["label"] for line in lines]
    assert labels[:3] == ["politics"] * 3
    assert set(labels[3:]) <= {None}  # an error body that names a label is no answer


def test_the_command_line_and_python_give_the_same_bytes(here: Path, capsys: Any) -> None:
    write_records(here / "people.jsonl")
    code, out, err = call(
        capsys, "run", "task=lamp2", "task.name=compass", f"task.labels=[{','.join(LABELS)}]", "data=records",
        f"data.path={here / 'people.jsonl'}", "lm=scripted", "context=[nopers,rag_1,pag,personalink_r2]", "runs_dir=a",
    )  # fmt: skip
    assert code == 0, err
    (config,) = here.glob("a/*/*/sealed/config.json")
    values = json.loads(config.read_text())
    run({**values, "runs_dir": "b"})
    (other,) = here.glob("b/*/*/sealed/config.json")
    ours = {p.relative_to(config.parent): p.read_bytes() for p in config.parent.rglob("*") if p.is_file()}
    theirs = {p.relative_to(other.parent): p.read_bytes() for p in other.parent.rglob("*") if p.is_file()}
    assert ours == theirs
    assert RunConfig.from_mapping(values).hash[:12] == config.parent.parent.name


def test_a_sweep_runs_every_job_and_one_that_fails_hides_no_other(here: Path, capfd: Any) -> None:
    code, out, err = call(
        capfd, "run", "-m", "lm=scripted", "data.n_users=2", "context=[nopers,rag_1]", "seed=0,1,2",
        "max_failed=0.1,2",
    )  # fmt: skip
    assert code == 2
    assert len(errors(err)) == 3
    assert out.count("NoPers") == 3
    assert len(list(here.glob("runs/lamp2/*/sealed/table.txt"))) == 3


def test_groups_of_ones_own(here: Path, capsys: Any) -> None:
    (here / "mine" / "context").mkdir(parents=True)
    (here / "mine" / "context" / "last_items.yaml").write_text(
        "# @package context.last_items\n_target_: tests.test_contexts.LastItems\nk: 2\n"
    )
    code, out, err = call(
        capsys,
        "run",
        "--config-dir",
        str(here / "mine"),
        "lm=scripted",
        "data.n_users=2",
        "context=[nopers,last_items]",
    )
    assert code == 0, err
    assert "last_items" in out
    (here / "mine" / "context" / "last_items.yaml").write_text("_target_: tests.test_contexts.LastItems\n")
    code, _, err = call(capsys, "run", "--config-dir", str(here / "mine"), "lm=scripted", "context=[nopers,last_items]")
    assert code == 2
    assert "@package" in err


def test_ctrl_c_drains_says_the_command_and_goes_on(here: Path) -> None:
    """One SIGINT in the middle of a slow run; then the same command ends with the bytes of an undisturbed one."""

    def answer(body: dict[str, Any]) -> str:
        time.sleep(0.004)
        request = Request(tuple(Message(m["role"], m["content"]) for m in body["messages"]), Decoding(1))
        return str(hashed_answers(("politics", "sports", "travel"))(request))

    contexts = "context=[nopers,rag_1,rag_3,rag_5,personalink_r2]"
    with Double(answer=answer) as server:
        command = [
            sys.executable, "-m", "personalink.cli", "run", "lm=endpoint", f"lm.base_url={server.url}", "lm.concurrency=2",
            "lm.users_in_flight=2", "data.n_users=12", contexts, "max_failed=1.0",
        ]  # fmt: skip
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            command, cwd=here, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        deadline = time.monotonic() + 60
        while len(server.bodies) < 60 and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        asked = len(server.bodies)
        assert process.returncode == 130, err
        assert "go on with: personalink run lm=endpoint" in err
        assert "Traceback" not in err
        assert asked < 200
        done = subprocess.run(command, cwd=here, env=env, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        (sealed,) = here.glob("runs/*/*/sealed")
        ours = {p.name: p.read_bytes() for p in sealed.iterdir() if p.is_file()}
        fresh = subprocess.run(
            [*command, "runs_dir=other"], cwd=here, env=env, capture_output=True, text=True, check=False, timeout=120
        )
        assert fresh.returncode == 0
        (sealed,) = here.glob("other/*/*/sealed")
        assert {p.name: p.read_bytes() for p in sealed.iterdir() if p.is_file()} == ours


def test_predict_behind_a_persona(here: Path, capsys: Any) -> None:
    call(capsys, *QUICK)
    file = next(here.glob("runs/quickstart/*/sealed/personas/*.json"))
    for persona in (file, file.with_suffix(".md")):
        code, out, err = call(capsys, "predict", "--persona", str(persona), "--lm", "scripted", "a new article")
        assert code == 4  # a scripted model without labels answers "ok", which names no label
        assert "names no label" in err
        code, out, _ = call(capsys, "predict", "--persona", str(persona), "--prompt", "a new article")
        assert code == 0
        messages = json.loads(out)
        assert messages[1]["content"].endswith("Article: a new article\nCategory:")
    broken = here / "broken.json"
    broken.write_text(file.read_text().replace('"version": 1', '"version": 9'))
    assert call(capsys, "predict", "--persona", str(broken), "--lm", "scripted", "x")[0] == 2


def test_doctor_finds_a_dead_server(here: Path, capsys: Any) -> None:
    code, out, err = call(capsys, "doctor", "--lm", "http://127.0.0.1:9/v1", "--model", "m")
    assert code == 3
    assert out or err


def test_doctor_on_a_server_that_ignores_constraints(here: Path, capsys: Any) -> None:
    with Double(constrains=False) as server:
        code, out, _ = call(capsys, "doctor", "--lm", server.url, "--model", "m")
    assert code == 3
    assert "constraint" in out


def test_help_and_version(capsys: Any) -> None:
    for arguments in (["--help"], ["--version"], ["personas", "--help"]):
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert stopped.value.code == 0
    assert "personalink" in capsys.readouterr().out

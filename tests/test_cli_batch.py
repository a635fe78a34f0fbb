"""`export-batch` and `import-batch`: a run asked by files seals what a live one seals; wrong files and words are said."""

from __future__ import annotations

import asyncio
import json
import shlex
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from personalink.cli.batch import _composed, _next
from personalink.lm import EndpointLM, EstimateCounter
from personalink.running import arun
from personalink.testing import FakeVLLM
from tests.test_cli import call, errors

WINDOW = 32768
WORDS = (
    *("lm=vllm", "lm.model=fake-7b", f"lm.window={WINDOW}", "data.n_users=2", "max_failed=1", "optimizer.depth=2"),
    "context=[nopers,rag_1,pag,personalink_r2]",
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    return tmp_path


def answered(server: FakeVLLM, requests: Path, results: Path, failing: int = 0) -> int:
    """Answer a batch as `vllm run-batch` does, last line first; so many of the lines fail."""
    lines = []
    response: dict[str, Any]
    error: Any
    for number, line in enumerate(requests.read_text().splitlines()):
        asked = json.loads(line)
        if number < failing:
            response, error = {"status_code": 500}, {"error": {"message": "the engine died", "code": 500}}
        else:
            post = urllib.request.Request(
                server.url + asked["url"], json.dumps(asked["body"]).encode(), {"Content-Type": "application/json"}
            )
            try:
                with urllib.request.urlopen(post, timeout=10) as reply:
                    response, error = {"status_code": reply.status, "body": json.load(reply)}, None
            except urllib.error.HTTPError as refused:
                response, error = {"status_code": refused.code}, json.load(refused)
        lines.append(json.dumps({"id": "x", "custom_id": asked["custom_id"], "response": response, "error": error}))
    results.write_text("\n".join(reversed(lines)) + "\n")
    return len(lines)


def by_files(here: Path, capsys: Any, server: FakeVLLM, *words: str) -> int:
    """Take a run to its end by files, following the commands that are printed; how many files it took."""
    code, out, err = call(capsys, "export-batch", *words, "--out", "q.jsonl")
    assert (code, errors(err)) == (0, [])
    for files in range(1, 40):
        command = shlex.split(next(line for line in out.splitlines() if line.startswith("then:")))[2:]
        results = [word for word in command[1:-1] if word.endswith(".jsonl") and "=" not in word]
        asked = results[-1].replace(".results", "")
        answered(server, here / asked, here / results[-1], failing=files == 1)
        code, out, err = call(capsys, *command)
        assert errors(err) == []
        if code == 0:
            assert "still to ask: 0" in out
            assert "PersonaLink r=2" in out
            return files
        assert code == 4
    pytest.fail("the run did not end")


def sealed(folder: Path) -> dict[str, bytes]:
    (run,) = folder.glob("*/*")
    return {str(path.relative_to(run)): path.read_bytes() for path in sorted((run / "sealed").rglob("*.*"))}


@pytest.mark.parametrize(("race", "window"), [("true", WINDOW), ("false", WINDOW), ("false", 400)])
def test_a_run_by_files_seals_the_bytes_of_a_live_one(here: Path, capsys: Any, race: str, window: int) -> None:
    words = (*WORDS, f"optimizer.race={race}")
    with FakeVLLM(labels=("politics", "sports", "travel"), window=window) as server:
        took = by_files(here, capsys, server, *words)
        config = replace(_composed(words), runs_dir="live")
        lm = EndpointLM(server.url, model="fake-7b", dialect="vllm", counter=EstimateCounter(), window=WINDOW)
        asyncio.run(arun(config, lm=lm))
        refused = [file for file in here.glob("q*.results.jsonl") if '"status_code": 400' in file.read_text()]
    assert took >= 3
    assert bool(refused) == (window < WINDOW)  # refused as too long, here as there
    assert sealed(here / "runs") == sealed(here / "live")
    status = json.loads(next(here.glob("runs/*/*/log/status.json")).read_text())
    assert status["state"] == "complete"


def test_a_run_goes_on_with_a_live_server(here: Path, capsys: Any) -> None:
    with FakeVLLM(labels=("politics", "sports", "travel")) as server:
        call(capsys, "export-batch", *WORDS, "--out", "q.jsonl")
        lines = answered(server, here / "q.jsonl", here / "r.jsonl")
        assert call(capsys, "import-batch", "r.jsonl", *WORDS)[0] == 4
        before = server.requests
        code, out, _ = call(capsys, "run", *WORDS, f"lm.base_url={server.url}")
        assert code == 0
        assert f"({server.requests - before} requests sent)" in out
        bodies = {line["custom_id"] for line in map(json.loads, (here / "q.jsonl").read_text().splitlines())}
        assert len(bodies) == lines


def test_an_export_tells_what_to_do_and_leaves_the_run_incomplete(here: Path, capsys: Any) -> None:
    code, out, _ = call(capsys, "export-batch", *WORDS, "fresh=true", "--out=q.jsonl")
    assert code == 0
    asked = (here / "q.jsonl").read_text().splitlines()
    assert out.startswith(f"{len(asked)} requests: q.jsonl   (tokens counted by estimate:utf8/3)")
    assert "vllm run-batch -i q.jsonl -o q.results.jsonl --model fake-7b" in out
    assert "personalink import-batch q.results.jsonl lm=vllm" in out
    assert "--out q-2.jsonl" in out
    assert "fresh" not in out
    assert "optimizer.race=false" in out
    status = json.loads(next(here.glob("runs/*/*/log/status.json")).read_text())
    assert (status["state"], status["finished"]) == ("incomplete", 0)
    assert call(capsys, "export-batch", *WORDS, "--out", "again.jsonl")[0] == 0
    assert (here / "again.jsonl").read_text().splitlines() == asked


def test_failed_lines_are_asked_again_and_known_answers_are_not(here: Path, capsys: Any) -> None:
    with FakeVLLM(labels=("politics", "sports")) as server:
        call(capsys, "export-batch", *WORDS, "--out", "q.jsonl")
        lines = answered(server, here / "q.jsonl", here / "r.jsonl", failing=3)
    failed = {json.loads(line)["custom_id"] for line in (here / "q.jsonl").read_text().splitlines()[:3]}
    code, out, _ = call(capsys, "import-batch", "r.jsonl", *WORDS, "--out", "n.jsonl")
    assert code == 4
    assert f"taken: {lines - 3} answers of {lines} lines" in out
    assert "failed: 3 (" in out
    assert "the batch failed on it (500): the engine died); 3 of them are asked again" in out
    following = {json.loads(line)["custom_id"] for line in (here / "n.jsonl").read_text().splitlines()}
    assert failed <= following
    again = call(capsys, "import-batch", "r.jsonl", *WORDS)
    assert (again[0], f"taken: {lines - 3} answers" in again[1]) == (4, True)


def test_results_of_another_run_are_refused(here: Path, capsys: Any) -> None:
    with FakeVLLM(labels=("politics", "sports")) as server:
        call(capsys, "export-batch", *WORDS, "--out", "q.jsonl")
        answered(server, here / "q.jsonl", here / "r.jsonl")
    code, _, err = call(capsys, "import-batch", "r.jsonl", *WORDS, "seed=7")
    assert code == 2
    assert "is of this run" in err
    code, _, err = call(capsys, "import-batch", "r.jsonl", *WORDS, "lm.model=other")
    assert code == 5
    assert "of the model 'fake-7b' and lm.model is 'other'" in err
    mixed = (here / "r.jsonl").read_text().splitlines()
    (here / "m.jsonl").write_text("\n".join([mixed[0].replace('"custom_id": "', '"custom_id": "x'), *mixed[1:]]))
    assert "not asked for: 1," in call(capsys, "import-batch", "m.jsonl", *WORDS)[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("export-batch", *WORDS), "say --out requests.jsonl"),
        (("export-batch", *WORDS, "--out"), "--out: the file to write is missing"),
        (("export-batch", "r.jsonl", *WORDS, "--out", "q.jsonl"), "reads no file"),
        (("export-batch", *WORDS, "-m", "--out", "q.jsonl"), "leave -m out"),
        (("export-batch", "lm=embedded", "--out", "q.jsonl"), "lm.kind is embedded"),
        (("export-batch", "lm=vllm", "--out", "q.jsonl"), "lm.model is missing"),
        (("export-batch", *WORDS, "lm.dialect=auto", "--out", "q.jsonl"), "lm.dialect=auto"),
        (("export-batch", *WORDS, "budget.calls=9", "--out", "q.jsonl"), "budget.calls cannot be kept"),
        (("export-batch", *WORDS, "rewriter=vllm", "--out", "q.jsonl"), "rewriter=none"),
        (("export-batch", *WORDS, "lm.modle=m", "--out", "q.jsonl"), "lm.modle"),
        (("import-batch", *WORDS), "name at least one file"),
        (("import-batch", "none.jsonl", *WORDS), "cannot read none.jsonl"),
    ],
)
def test_wrong_words_are_one_line(here: Path, capsys: Any, arguments: tuple[str, ...], message: str) -> None:
    code, _, err = call(capsys, *arguments)
    assert (code, len(err.splitlines())) == (2, 1), err
    assert message in err
    assert not list(here.glob("*.jsonl"))


def test_nothing_but_requests_is_written_over(here: Path, capsys: Any) -> None:
    with FakeVLLM(labels=("politics", "sports")) as server:
        call(capsys, "export-batch", *WORDS, "--out", "q.jsonl")
        answered(server, here / "q.jsonl", here / "r.jsonl")
    (here / "link.jsonl").symlink_to("r.jsonl")
    (here / "hard.jsonl").hardlink_to(here / "r.jsonl")
    (here / "failed.jsonl").write_text('{"custom_id": "x", "body": {}, "error": "e"}\n')
    (here / "notes.txt").write_text("mine\n")
    (here / "mixed.jsonl").write_text((here / "q.jsonl").read_text() + (here / "r.jsonl").read_text())
    (here / "deep.jsonl").write_text("[" * 100_000)
    (here / "folder").mkdir()
    before = {path.name: path.read_bytes() for path in here.iterdir() if path.is_file()}
    runs = sealed(here / "runs")
    for name in (
        "r.jsonl",
        "link.jsonl",
        "hard.jsonl",
        "failed.jsonl",
        "notes.txt",
        "mixed.jsonl",
        "deep.jsonl",
        "folder",
    ):
        for command in (("import-batch", "r.jsonl"), ("export-batch",)):
            code, out, err = call(capsys, *command, *WORDS, "--out", name)
            assert (code, out, len(err.splitlines())) == (2, "", 1), err
            assert f"--out: {name} is there and holds no requests" in err
    assert {path.name: path.read_bytes() for path in here.iterdir() if path.is_file()} == before
    assert sealed(here / "runs") == runs  # refused before the run
    (here / "empty.jsonl").touch()
    assert call(capsys, "export-batch", *WORDS, "--out", "empty.jsonl")[0] == 0
    assert call(capsys, "import-batch", "r.jsonl", *WORDS, "--out", "q.jsonl")[0] == 4
    assert (here / "q.jsonl").read_bytes() != before["q.jsonl"]


def test_help_and_names() -> None:
    assert _next(Path("a/q.jsonl")) == Path("a/q-2.jsonl")
    assert _next(Path("q-9.jsonl")) == Path("q-10.jsonl")
    assert _next(Path("my-q.jsonl")) == Path("my-q-2.jsonl")

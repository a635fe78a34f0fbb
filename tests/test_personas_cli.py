"""`personalink personas`: a table of all users, the story of one, differences and exact prompts, on any run."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from personalink.cli import SORTS, main
from personalink.cli.personas import COLUMNS
from personalink.cli.story import Story
from personalink.lm import ScriptedLM
from personalink.refinement import Refinement
from personalink.report.people import REFINEMENTS, People
from tests.people import LABELS, is_rewrite, random_script, rewrite_reply
from tests.test_experiment import ROWS, go, write_records

ROOT = Path(__file__).parent.parent
HOSTILE = "\x1b[2J\x07 \u202eevil\u202c \u2066x\u2069 zero\u200bwidth \x9b31m </script>"


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["personas", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of six users, made once."""
    folder = tmp_path_factory.mktemp("made")
    write_records(folder / "people.jsonl")
    go(folder)
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may damage; its data stay where they are."""
    return Path(shutil.copytree(next(made.glob("runs/made_up/*")), tmp_path / "run"))


def refinements(run: Path) -> dict[str, Refinement]:
    people = People.of(str(run))
    found = {line.user: people.refinement(line.user) for line in people.lines()}
    return {user: one for user, one in found.items() if one is not None}


def test_the_table_has_a_line_a_user_and_the_columns_that_are_promised(run: Path, capsys: Any) -> None:
    code, out, err = call(capsys, str(run))
    head, *lines = out.splitlines()
    assert (code, err, head.split()) == (0, "", list(SORTS))
    assert [line.split()[0] for line in lines] == sorted(refinements(run))
    assert tuple(COLUMNS) == SORTS


def test_the_table_tells_what_the_refinements_hold(run: Path, capsys: Any) -> None:
    told = {x["user"]: x for x in map(json.loads, call(capsys, str(run), "--json")[1].splitlines())}
    for user, one in refinements(run).items():
        line = told[user]
        scores = [one.score_at(depth) for depth in range(len(one.passes) + 1)]
        assert line["slice"] == [s.value for s in scores]
        assert line["errors"] == [sum(points < 1 for points in s.points) for s in scores]
        assert line["gain"] == scores[-1].value - scores[0].value >= 0
        assert line["audit_gain"] == one.audit[-1].value - one.audit[0].value
        assert line["kept"] == sum(p.accepted for p in one.passes)
        assert line["tried"] == sum(p.calls > 0 for p in one.passes)
        assert (line["tokens"], line["history"]) == (one.persona.tokens, 26)
        assert line["calls"] == one.calls + one.audit_calls


@pytest.mark.parametrize("name", SORTS)
def test_sorting_puts_the_most_first_and_the_unknown_last(run: Path, capsys: Any, name: str) -> None:
    people = People.of(str(run))
    key: Any = COLUMNS[name].key
    values = [key(line) for line in people.lines()]
    shown = [json.loads(x) for x in call(capsys, str(run), "--json", "--sort", name)[1].splitlines()]
    by_user = {line.user: key(line) for line in people.lines()}
    assert [by_user[x["user"]] for x in shown] == sorted(values, reverse=name not in ("user", "ended"))
    back = [json.loads(x) for x in call(capsys, str(run), "--json", "--sort", name, "--reverse")[1].splitlines()]
    assert [by_user[x["user"]] for x in back] == sorted(values, reverse=name in ("user", "ended"))
    top = [json.loads(x) for x in call(capsys, str(run), "--json", "--sort", name, "--top", "2")[1].splitlines()]
    assert top == shown[:2]


def test_users_without_a_slice_are_unknown_and_stand_last(tmp_path: Path, capsys: Any) -> None:
    write_records(tmp_path / "people.jsonl", n=2)
    with (tmp_path / "people.jsonl").open("a") as file:
        for i, split in enumerate(("history", "history", "query")):
            file.write(
                json.dumps({"user": "tiny", "id": f"t{i}", "input": f"text {i}", "label": "north", "split": split})
                + "\n"
            )
    go(tmp_path)
    lines = call(capsys, str(tmp_path), "--sort", "gain", "--reverse")[1].splitlines()
    assert lines[-1].split()[:4] == ["tiny", "–", "–", "–"]
    assert "too short" in lines[-1]
    story = call(capsys, str(tmp_path), "--user", "tiny")[1]
    assert "history too short" in story


def test_the_list_is_read_only_as_far_as_it_is_shown(run: Path, capsys: Any) -> None:
    file = run / REFINEMENTS
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:3], "{broken", *lines[3:]]) + "\n")
    assert call(capsys, str(run), "--top", "3")[0] == 0
    code, out, err = call(capsys, str(run))
    assert code == 5
    assert "damaged in line 4" in err
    assert len(out.splitlines()) > 1


def test_the_story_tells_every_pass_also_what_was_refused(run: Path, capsys: Any) -> None:
    for user, one in refinements(run).items():
        code, out, _ = call(capsys, str(run), "--user", user)
        assert code == 0
        for p in one.passes:
            state = "nothing to do" if not p.calls else "kept" if p.accepted else "refused"
            assert f"pass {p.depth}: {state}" in out
            assert p.accepted or p.reason in out
        assert one.persona.render() in out
        assert f"{one.persona.tokens} of {one.persona.caps.total} tokens" in out
        assert "gold label" in out
        assert "NoPers" in out
    assert any(not p.accepted and p.candidate for one in refinements(run).values() for p in one.passes)


def test_errors_are_told_with_their_texts_where_the_data_are_at_hand(run: Path, made: Path, capsys: Any) -> None:
    user, one = next((u, o) for u, o in refinements(run).items() if o.passes[0].errors)
    inputs = {r["id"]: r["input"] for r in map(json.loads, (made / "people.jsonl").read_text().splitlines())}
    out = call(capsys, str(run), "--user", user)[1]
    for id_ in one.passes[0].errors:
        assert f"{id_}  {inputs[id_][:60]}" in out
    hidden = (made / "people.jsonl").rename(made / "away.jsonl")
    try:
        code, out, _ = call(capsys, str(run), "--user", user)
        assert code == 0
        assert f"    {one.passes[0].errors[0]}\n" in out
        assert "left out" in out.splitlines()[-1]
        code, out, err = call(capsys, str(run), "--user", user, "--prompt")
        assert (code, out, len(err.splitlines())) == (2, "", 1)
    finally:
        hidden.rename(made / "people.jsonl")


def test_the_persona_of_a_depth(run: Path, capsys: Any) -> None:
    user, one = next((u, o) for u, o in refinements(run).items() if o.persona.render())
    out = call(capsys, str(run), "--user", user, "--depth", "0")[1]
    assert "persona after pass 0 (0 of 250" in out
    assert json.loads(call(capsys, str(run), "--user", user, "--format", "json")[1])["version"] == 1
    assert call(capsys, str(run), "--user", user, "-r", "1", "--format", "markdown")[1].startswith("# Persona")


def test_a_difference_is_told_word_by_word(run: Path, capsys: Any) -> None:
    user, one = next((u, o) for u, o in refinements(run).items() if o.persona.preference_summary)
    code, out, _ = call(capsys, str(run), "--user", user, "--diff", "0:3")
    assert code == 0
    assert out.startswith(f"user {user}, pass 0 → 3\n")
    assert f"  + {one.persona.preference_summary}" in out
    assert "\x1b" not in out
    back = call(capsys, str(run), "--user", user, "--diff", "3:0")[1]
    assert f"  − {one.persona.preference_summary}" in back
    assert call(capsys, str(run), "--user", user, "--diff", "3:3")[1].splitlines()[1:] == ["no change"]


def test_every_rows_prompt_is_the_one_that_was_sent(tmp_path: Path) -> None:
    write_records(tmp_path / "people.jsonl")
    lm = ScriptedLM(random_script(5))
    go(tmp_path, lm)
    sent = {request.messages for request in lm.requests}
    people = People.of(str(tmp_path))
    for user in people.entries:
        one = people.refinement(user)
        assert one is not None
        for row in ROWS:
            ((_, messages),) = Story(people, one, 3).prompts(row)
            assert messages in sent
        for depth in (1, 2, 3):
            assert Story(people, one, depth).prompts(None) == Story(people, one, depth).prompts(f"personalink_r{depth}")


def test_the_prompt_on_stdout_and_in_json(run: Path, capsys: Any) -> None:
    user, one = next((u, o) for u, o in refinements(run).items() if o.persona.render())
    out = call(capsys, str(run), "--user", user, "--prompt")[1]
    assert out.startswith("[system]\nSay where it lies.")
    assert one.persona.render() in out
    found = json.loads(
        call(capsys, str(run), "--user", user, "--prompt", "--row", "nopers", "--json", "--diff", "0:3")[1]
    )
    assert found["line"]["user"] == found["user"] == user
    assert Refinement.from_dict(found["refinement"]) == one
    assert found["prompts"][0]["messages"][1]["content"].startswith("Text: ")
    assert {a["row"] for a in found["answers"] if a["kind"] == "method"} == set(ROWS)
    assert found["diff"]["fields"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--user", "u99"), "no user 'u99' in this run"),
        (("--user", "u0", "--depth", "9"), "none of 0…3"),
        (("--user", "u0", "--diff", "1"), "two passes"),
        (("--user", "u0", "--prompt", "--row", "rag_2"), "did you mean 'rag_1'?"),
        (("--user", "u0", "--row", "rag_1"), "--row is about --prompt"),
        (("--user", "u0", "--sort", "gain"), "--sort is about the list"),
        (("--user", "u0", "--format", "json", "--json"), "leave out --json"),
        (("--depth", "1"), "name one with --user"),
        (("--prompt",), "name one with --user"),
        (("--top", "0"), "--top is 0"),
    ],
)
def test_what_is_wrong_is_one_line(run: Path, capsys: Any, arguments: tuple[str, ...], told: str) -> None:
    code, out, err = call(capsys, str(run), *arguments)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert told in err


def test_a_run_without_refinements(tmp_path: Path, capsys: Any) -> None:
    write_records(tmp_path / "people.jsonl", n=2)
    go(tmp_path, context={"nopers": ROWS["nopers"]})
    for arguments in ((), ("--user", "u0")):
        code, _, err = call(capsys, str(tmp_path), *arguments)
        assert code == 2
        assert "none of its rows is a PersonaLink row" in err


def test_a_run_of_which_nothing_is_sealed(tmp_path: Path, capsys: Any) -> None:
    write_records(tmp_path / "people.jsonl")
    go(tmp_path, budget={"user_calls": 1})
    assert call(capsys, str(tmp_path))[0] == 4
    code, out, err = call(capsys, str(tmp_path), "--user", "u0")
    assert (code, out) == (4, "")
    assert "u0" in err


def test_users_who_are_not_finished_are_told_apart(run: Path, capsys: Any) -> None:
    file = run / REFINEMENTS
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:-2]))
    status = json.loads((run / "log" / "status.json").read_text())
    (run / "log" / "status.json").write_text(json.dumps({**status, "state": "incomplete", "incomplete": {"u4": "out"}}))
    code, out, err = call(capsys, str(run))
    assert (code, len(out.splitlines())) == (0, 5)
    assert "2 of 6 users are not finished" in err
    code, out, err = call(capsys, str(run), "--user", "u4")
    assert (code, out) == (4, "")
    assert "user 'u4' is not finished (out)" in err


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose users, items and model say what a terminal must not obey."""
    folder = tmp_path_factory.mktemp("hostile")
    user = "evil \u202euser"
    with (folder / "people.jsonl").open("w", encoding="utf-8") as file:
        for i in range(27):
            split = "query" if i == 26 else "history"
            row = {
                "user": user,
                "id": f"\u202e{i}",
                "input": f"{HOSTILE} item {i} {'x' * 50_000}",
                "label": LABELS[i % 4],
            }
            file.write(json.dumps({**row, "split": split}) + "\n")

    def answer(request: Any) -> str:
        return rewrite_reply(f"Likes {HOSTILE}.") if is_rewrite(request) else f"north {HOSTILE}"

    go(folder, ScriptedLM(answer), context={row: ROWS[row] for row in ("nopers", "personalink_r2")})
    return folder


def test_nothing_that_commands_a_terminal_reaches_it(hostile: Path, capsys: Any) -> None:
    user = "evil \u202euser"
    for arguments in (
        (),
        ("--json",),
        ("--user", user),
        ("--user", user, "--json"),
        ("--user", user, "--diff", "0:3"),
        ("--user", user, "--prompt"),
    ):
        code, out, err = call(capsys, str(hostile), *arguments)
        assert code == 0, err
        assert not {c for c in out if not c.isprintable()} - {"\n"}, arguments
    exact = json.loads(call(capsys, str(hostile), "--user", user, "--prompt", "--json")[1])
    assert "\u202eevil" in exact["prompts"][0]["messages"][1]["content"]


def on_terminal(*arguments: str, wide: int = 80, **env: str) -> str:
    """What the command writes to a terminal of so many columns."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, wide))
    command = [sys.executable, "-m", "personalink.cli", "personas", *arguments]
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    process = subprocess.Popen(
        command, stdout=theirs, env={**environment, "TERM": "xterm", "PYTHONPATH": str(ROOT), **env}
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            more = os.read(ours, 65536)
        except OSError:  # the other end was closed
            break
        if not more:
            break
        said += more
    os.close(ours)
    assert process.wait() == 0
    return said.decode().replace("\r\n", "\n")


def test_colours_on_a_terminal_alone_and_not_against_its_users_will(run: Path) -> None:
    user = next(u for u, o in refinements(run).items() if o.persona.preference_summary)
    diff = (str(run), "--user", user, "--diff", "0:3")
    assert "\x1b[32;4m" in on_terminal(*diff)
    assert "\x1b" not in on_terminal(*diff, NO_COLOR="1")
    assert "\x1b" not in on_terminal(*diff, TERM="dumb")
    assert "\x1b" in on_terminal(*diff, NO_COLOR="")


def test_a_narrow_terminal_is_shown_fewer_columns(run: Path) -> None:
    for wide in (30, 80, 200):
        lines = on_terminal(str(run), wide=wide, NO_COLOR="1").splitlines()
        assert max(map(len, lines)) <= wide
        assert lines[0].split() == list(SORTS)[: len(lines[0].split())]
    assert lines[0].split() == list(SORTS)


def test_a_reader_that_has_gone_is_no_error(run: Path) -> None:
    command = f"{sys.executable} -m personalink.cli personas {run} --json | head -n 1"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, env=env, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1

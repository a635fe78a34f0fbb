"""The persona pages without a browser: what is written, word for word, and that nothing of a text becomes markup."""

from __future__ import annotations

import asyncio
import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from personalink.errors import StorageError, UsageError
from personalink.lm import ScriptedLM
from personalink.persona import Caps, Exemplar, PersonaState, Rule
from personalink.predictions import Prediction
from personalink.report import pages
from personalink.report.answers import Judged
from personalink.report.evidence import Evidence, load
from personalink.report.pages.answers import answer
from personalink.report.pages.changes import persona_changes, word_changes
from personalink.report.pages.facts import Run, page_name
from personalink.report.pages.listing import CHUNK, PAGE, Column, Listing, written
from personalink.report.pages.markup import FOLD, Html, clipped, el, folded, joined, text
from personalink.report.pages.texts import Texts
from personalink.running import arun
from personalink.tasks.text import TextTask
from tests.people import STARS, TASK, is_rewrite, random_script
from tests.report.hostile import ATTACKS, Words, evidence, other, user_name
from tests.test_experiment import ROWS, settings, write_records


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Evidence, ScriptedLM]:
    """A run of six users over every row, and the model that answered it."""
    folder = tmp_path_factory.mktemp("made")
    write_records(folder / "people.jsonl")
    rows = {**ROWS, "no_rules": {"_target_": "personalink.contexts.PersonaLink", "depth": 2, "without": "exemplars"}}
    lm = ScriptedLM(random_script(5))
    done = asyncio.run(arun(settings(folder, context=rows, optimizer={"gate": "no_regress"}), lm=lm))
    return load(done.result.run), lm


class Reader(HTMLParser):
    """A page as a browser would read it: its elements, its text, its links."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "link", "img", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_door_escapes_all_but_markup() -> None:
    assert text("<&>\"'") == "&lt;&amp;&gt;&quot;&#x27;"
    assert text(el("b", "<")) == "<b>&lt;</b>"
    assert text("a\x00b\u202ec\ud800\r\nd\re") == "a⟨U+0000⟩b⟨U+202E⟩c⟨U+D800⟩\nd⟨U+000D⟩e"
    assert text("שלום \u200f é\n\t") == "שלום \u200f é\n\t"
    assert el("a", None, ["<", [el("i", "x")]], href="'\"", class_=None, aria_hidden="true", defer=True) == (
        '<a href="&#x27;&quot;" aria-hidden="true" defer>&lt;<i>x</i></a>'
    )
    assert isinstance(joined("a", None, ("b",)), Html)


def test_long_texts_are_folded_and_clipped_to_a_line() -> None:
    assert folded("short") == '<div class="said" dir="auto">short</div>'
    long = folded("x y\n" * FOLD)
    assert long.startswith("<details")
    assert "all 2,400 characters" in long
    assert long.count("x y\n") == FOLD
    assert clipped("a  b\nc", 10) == "a b c"
    assert len(clipped("word " * 100, 30)) <= 30
    assert clipped("word " * 100, 30).endswith("…")


def test_words_that_changed_are_marked() -> None:
    assert word_changes("likes red wine", "likes white wine") == "likes <del>red</del> <ins>white</ins> wine"
    assert word_changes("", "new <b>") == "<ins>new &lt;b&gt;</ins>"
    assert word_changes("same", "same") == "same"
    assert word_changes("a " * 2_000, "b " * 2_000).count("<del>") == 1


def test_entries_are_paired_by_item_by_condition_and_by_likeness() -> None:
    caps, counter = Caps(*[99] * 6), Words()
    one, two = Exemplar("1", "first", "x"), Exemplar("2", "second", "x")
    rules = (Rule("it is red", "x"), Rule("it is a very old and blue thing", "y"), Rule("gone", "x"))
    old = PersonaState("", (one, two), rules, caps, counter=counter)
    newer = (Rule("it is a very old and green thing", "y"), Rule("it is red", "z"), Rule("came", "x"))
    new = old.edit(counter, exemplars=(Exemplar("2", "second thing", "x"),), decision_rules=newer)
    lines = [re.sub("<[^di/].*?>|</[^di].*?>", "", line) for line in persona_changes(old, new).split("<li>")[1:]]
    told = [re.sub("<.?(bdi|div|section|ul|li)[^>]*>", "", line) for line in lines]
    assert told[0].startswith("if it is a very old and <del>blue</del> <ins>green</ins> thing → y")
    assert told[1].startswith("if it is red → <del>x</del> <ins>z</ins>")
    assert told[2].startswith("if <ins>came</ins> → <ins>x</ins>")
    assert told[3].startswith("if <del>gone</del> → <del>x</del>")
    assert told[4].startswith("second <ins>thing</ins> → x")
    assert told[5].startswith("<del>first</del> → <del>x</del>")


def test_a_page_has_the_same_name_wherever_it_is_made_and_no_two_users_share_one() -> None:
    names = [
        "a",
        "A",
        "a/b",
        "a%2Fb",
        "../../etc",
        ".",
        "x" * 300,
        "x" * 301,
        "\ud800",
        "\ud801",
        "",
        "ü",
        "a ",
        *ATTACKS,
    ]
    made = [page_name(name) for name in names]
    assert len({name.lower() for name in made}) == len(names)
    assert all(re.fullmatch(r"[a-z0-9._~-]{1,100}\.html", name) and not name.startswith(".") for name in made)
    assert page_name("1042") == "1042.html"


def test_a_run_becomes_pages_that_say_what_it_came_to(made: tuple[Evidence, ScriptedLM], tmp_path: Path) -> None:
    seen = made[0]
    told = pages.write(seen, tmp_path / "pages")
    found = files(tmp_path / "pages")
    assert told.users == 6
    assert told.files == len(found)
    assert told.size == sum(map(len, found.values()))
    assert told.index == tmp_path / "pages" / "index.html"
    assert not told.remarks
    users = [name for name in found if name.startswith("users/")]
    assert sorted(users) == sorted(f"users/{user}.html" for user in seen.users)
    for user in seen.users:
        page = html.unescape(found[f"users/{user}.html"].decode())
        refinement = seen.refinements[user]
        for one in refinement.passes:
            assert f"Pass {one.depth}" in page
            if one.calls and not one.accepted and one.candidate is None:
                assert one.reason in page
            if one.candidate is not None:  # refused ones, too
                assert one.candidate.decision_rules[0].condition in re.sub("<del>.*?</del> |<[^>]+>", "", page)
        assert seen.rows["nopers"][list(seen.users).index(user)].gold in page  # type: ignore[operator]
        assert f"{refinement.persona.tokens} of {refinement.persona.caps.total}" in page or refinement.persona.is_empty


def test_the_pages_are_whole_and_link_only_what_is_there(made: tuple[Evidence, ScriptedLM], tmp_path: Path) -> None:
    pages.write(made[0], tmp_path)
    for path in tmp_path.rglob("*.html"):
        read = Reader(path.read_text("utf-8"))
        assert read.names.count("h1") == 1
        assert "main" in read.names
        for key, value in read.attributes:
            if key in ("href", "src") and value and not value.startswith("#"):
                assert (path.parent / value).resolve().is_file(), value
            assert not key.startswith("on")
            assert key != "style"
    assert {"style.css", "list.js"} == {path.name for path in (tmp_path / "assets").iterdir()}


def test_the_same_run_gives_the_same_bytes_and_stale_pages_go(
    made: tuple[Evidence, ScriptedLM], tmp_path: Path
) -> None:
    pages.write(made[0], tmp_path)
    before = files(tmp_path)
    for stale in ("users/nobody.html", "data/users-9.js", "users-7.html"):
        (tmp_path / stale).write_text("old")
    (tmp_path / "mine.txt").write_text("kept")
    pages.write(load(made[0].run), tmp_path)
    assert files(tmp_path) == {**before, "mine.txt": b"kept"}


def test_prompts_are_those_that_were_sent(made: tuple[Evidence, ScriptedLM]) -> None:
    """Every row of the package's own: demonstrations, drafts, personas at each depth, ablations, other users'."""
    seen, lm = made
    sent = {request.messages for request in lm.requests if not is_rewrite(request)}
    texts = Texts.of(seen)
    for row in seen.methods:
        for one in seen.rows[row]:
            assert texts.prompt(one.prediction) in sent, (row, one.key)
    assert len(seen.methods) == 12


def test_without_the_data_the_pages_say_so_in_a_line(made: tuple[Evidence, ScriptedLM], tmp_path: Path) -> None:
    path = Path(made[0].config["data"]["path"])
    aside = path.rename(path.with_suffix(".aside"))
    try:
        (remark,) = pages.write(made[0], tmp_path).remarks
    finally:
        aside.rename(path)
    assert remark.startswith("The texts of items and the prompts are left out:")
    assert "people.jsonl" in remark
    page = (tmp_path / "users" / "u1.html").read_text()
    assert "The exact prompts are not here" in page
    assert "u1-q0" in page
    assert html.escape(remark) in page


def test_other_data_are_not_taken_for_those_of_the_run(made: tuple[Evidence, ScriptedLM], tmp_path: Path) -> None:
    config = {**made[0].config, "data": {**made[0].config["data"], "path": str(tmp_path / "people.jsonl")}}
    write_records(tmp_path / "people.jsonl", m=25)
    seen = Texts.of(Evidence(**{**{name: getattr(made[0], name) for name in Evidence.__slots__}, "config": config}))
    assert not seen.users
    assert "are not those of the manifest" in seen.missing


def test_a_run_without_personas_still_has_pages(tmp_path: Path) -> None:
    write_records(tmp_path / "people.jsonl")
    rows = {name: ROWS[name] for name in ("nopers", "rag_1")}
    done = asyncio.run(arun(settings(tmp_path, context=rows), lm=ScriptedLM(random_script(5))))
    pages.write(load(done.result.run), tmp_path / "pages")
    assert "no row of this run refined a persona" in (tmp_path / "pages" / "index.html").read_text()
    assert "No row of this run refined a persona" in (tmp_path / "pages" / "users" / "u1.html").read_text()


def test_figures_and_tables_of_the_report_are_linked(made: tuple[Evidence, ScriptedLM]) -> None:
    report = made[0].run.path / "report"
    for name in ("figures/figure4_depth.svg", "figures/figure4_depth.csv", "tables/table_2.tex"):
        (report / name).parent.mkdir(parents=True, exist_ok=True)
        (report / name).write_text("x")
    pages.write(made[0], report / "pages")
    page = (report / "pages" / "index.html").read_text()
    assert '<img src="../figures/figure4_depth.svg" alt="Quality by refinement depth">' in page
    assert '<a href="../tables/table_2.tex">TEX</a>' in page


def test_two_runs_side_by_side(tmp_path: Path) -> None:
    one = evidence(tmp_path, 4)
    told = pages.write([one, other(one, "second")], tmp_path / "two")
    assert told.users == 4
    page = (tmp_path / "two" / "users" / page_name(user_name(1))).read_text()
    assert "A · " in page
    assert "B · " in page
    assert "From A to B" in page
    assert "<del>" in page
    assert "<ins>" in page


def test_what_cannot_be_written_is_said_in_a_line(tmp_path: Path) -> None:
    one = evidence(tmp_path, 2)
    with pytest.raises(UsageError, match="one run or two side by side, not 3"):
        pages.write([one, one, one], tmp_path / "x")
    with pytest.raises(UsageError, match="no user in common"):
        pages.write(
            [one, Evidence(**{**{n: getattr(one, n) for n in Evidence.__slots__}, "users": ()})], tmp_path / "x"
        )
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "index.html").write_text("<p>my own")
    with pytest.raises(UsageError, match="holds something else than persona pages"):
        pages.write(one, tmp_path / "mine")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write the pages in"):
        pages.write(one, tmp_path / "file" / "pages")


def test_nothing_hostile_becomes_markup(tmp_path: Path) -> None:
    one = evidence(tmp_path, 14)
    pages.write(one, tmp_path / "one")
    pages.write([one, other(one, "second")], tmp_path / "two")
    known = set(
        "html head meta title link script body a header nav ol li main section article p h1 h2 h3 h4 ul div span bdi "
        "details summary table thead tbody tr th td dl dt dd meter ins del pre code figure figcaption strong b".split()
    )
    for path in [*(tmp_path / "one").rglob("*.html"), *(tmp_path / "two").rglob("*.html")]:
        page = path.read_bytes().decode("utf-8")
        read = Reader(page)
        assert set(read.names) <= known, set(read.names) - known
        assert read.names.count("script") == (path.name == "users.html")
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", page)
        for key, value in read.attributes:
            assert not key.startswith("on")
            assert key not in ("style", "srcdoc", "action")
            assert key != "href" or re.fullmatch(r"[\w./~#-]+", value or ""), value
    for path in (tmp_path / "one" / "data").iterdir():
        data = path.read_bytes()
        assert data.isascii()
        assert data.startswith(b"personalink(")
        assert data.endswith(b");\n")
        json.loads(data[len("personalink(") : -3])


@pytest.mark.parametrize(
    ("task", "label", "gold", "shown"),
    [
        (TASK, "north", "north", "right"), (TASK, "south", "north", "wrong"), (TASK, None, "north", "wrong"),
        (STARS, "2", "5", "off by 3"), (STARS, None, "5", "wrong"), (STARS, "5", "5", "right"),
        (TextTask("t", "Write."), "a red boat", "a red car", "F1 0.667"), (TASK, "north", None, ""),
    ],
)  # fmt: skip
def test_an_answer_is_judged_in_its_tasks_own_terms(task: Any, label: str | None, gold: str | None, shown: str) -> None:
    one = Judged(Prediction("u", "q", "row", label, "exact", "ok" if label else "unreadable", "raw", 0), gold)
    told = re.sub("<[^>]+>", "", answer(one, task))
    assert told == f"{label or 'no label (unreadable)'} {shown}"


COLUMNS = (Column("user", "User", "user"), Column("gain", "Gain", "gain"), Column("ended", "Ended", "choice"))


def test_a_list_has_static_pages_and_the_same_rows_as_data() -> None:
    n = CHUNK + 5
    rows = [(f"u{i}", i / 7 - 1, "fixed point") for i in range(n)]
    listing = Listing(COLUMNS, rows, [f"users/u{i}.html" for i in range(n)], "note")
    assert listing.pages == -(-n // PAGE)
    second = listing.page(2, "Users", ())
    assert f">u{PAGE}<" in second
    assert ">u99<" not in second
    assert "list.js" not in second
    assert 'href="users.html"' in second
    assert f'href="users-{listing.pages}.html"' in second
    data = [json.loads(chunk[len("personalink(") : -3]) for chunk in listing.chunks()]
    assert [len(chunk) for chunk in data] == [CHUNK, 5]
    assert data[1][0] == [f"users/u{CHUNK}.html", f"u{CHUNK}", CHUNK / 7 - 1, "fixed point"]


@pytest.mark.parametrize(
    ("value", "kind", "shown"),
    [
        (None, "gain", "–"), ("", "choice", "–"), (0.0, "gain", "0.000"), (0.25, "gain", "+0.250"),
        (-0.0004, "gain", "0.000"), (-1.5, "gain", "−1.500"), (-1.5, "score", "−1.500"), (12345, "count", "12,345"),
        ((2, 3), "of", "2 of 3"), ((8, 2), "change", "8 → 2"),
    ],
)  # fmt: skip
def test_values_are_written_for_people(value: Any, kind: Any, shown: str) -> None:
    assert written(value, kind) == shown


def test_what_stands_for_what_is_told_by_the_context_and_not_by_the_rows_name(tmp_path: Path) -> None:
    one = evidence(tmp_path, 3)
    run = Run(one)
    assert (run.plain_row, run.rag_row, run.persona_row) == ("nopers", "rag_5", "personalink_r2")
    assert run.sums(user_name(0)).kept == 1
    assert run.sums(user_name(0)).tried == 3
    line = run.sums(user_name(2)).line
    assert line is not None
    assert line.ended == "all passes"

"""The two samples, and that the script which built them gives the same bytes again."""

import importlib.util
from pathlib import Path

import pytest

from personalink.data import load_sample, make_manifest, sample_path, top_label_share
from personalink.data.leaks import check_user
from personalink.data.manifest import data_digest
from personalink.errors import DataError

ROOT = Path(__file__).parents[2]
NO_FILMS = not (ROOT / "samples" / "films" / "ratings.csv").is_file()


@pytest.fixture(scope="module")
def build():
    spec = importlib.util.spec_from_file_location("build_samples", ROOT / "scripts" / "build_samples.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_news():
    data = load_sample("news")
    assert (data.source, data.task, len(data.users), len(data.golds)) == ("news-authors", "lamp2", 62, 62)
    assert not data.dropped
    for user in data.users:
        check_user(user)
        assert len(user.history) >= 10
        assert [item.date for item in user.history] == sorted(item.date for item in user.history)
    varied = make_manifest(data, n_users=200, max_top_label_share=0.6)
    assert (varied.asked, varied.available, len(varied.entries)) == (200, 15, 15)
    assert data_digest(load_sample("news")) == data.sha256


@pytest.mark.skipif(NO_FILMS, reason="samples/films is in source checkouts only")
def test_films(monkeypatch):
    monkeypatch.delenv("PERSONALINK_SAMPLES", raising=False)
    data = load_sample("films")
    assert (data.source, data.task, len(data.users), len(data.golds)) == ("films", "films", 40, 40)
    for user in data.users:
        check_user(user)
        assert 29 <= len(user.history) <= 199
        assert top_label_share(user) < 0.6
        assert {item.label for item in user.history} <= set("12345")
        assert user.queries[0].date >= user.history[-1].date
        assert " — genres: " in user.history[0].input


def test_the_films_folder_can_be_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PERSONALINK_SAMPLES", str(tmp_path))
    assert sample_path("films") is None
    with pytest.raises(DataError, match=r"not part of the wheel.*no commercial use.*source checkout") as caught:
        load_sample("films")
    assert "\n" not in str(caught.value)
    (tmp_path / "films").mkdir()
    (tmp_path / "films" / "ratings.csv").write_text("user,input,label\na,x,1\na,y,2\n")
    assert sample_path("films") == tmp_path / "films" / "ratings.csv"
    assert len(load_sample("films").users) == 1


def test_an_unknown_sample_is_told_with_the_nearest():
    with pytest.raises(DataError, match=r"meant films\?"):
        load_sample("film")
    with pytest.raises(DataError, match="there are news and films"):
        sample_path("books-and-music")


def test_the_news_files_come_out_of_the_script_as_they_are(build, tmp_path):
    path = sample_path("news")
    build.build_news(path, path.with_name("news_outputs.json"), tmp_path)
    for name in ("news_questions.json", "news_outputs.json"):
        assert (tmp_path / name).read_bytes() == path.with_name(name).read_bytes()


def test_the_films_script_keeps_those_who_vary(build, tmp_path):
    stars = [0.5, 1.5, 2.5, 3.5, 4.5]
    films = "".join(f'{n},"Film {n}, The (2000)",Drama|War\n' for n in range(40)) + "40,Odd,(no genres listed)\n"
    (tmp_path / "movies.csv").write_text("movieId,title,genres\n" + films)
    rows = [(user, n, 4.0 if user == 2 else stars[n % 5], 1000 - n) for user in (1, 2) for n in range(41)]
    body = "".join(",".join(map(str, row)) + "\n" for row in rows)
    (tmp_path / "ratings.csv").write_text("userId,movieId,rating,timestamp\n" + body)
    data = build.build_films(tmp_path, tmp_path / "out")
    assert [user.id for user in data.users] == ["1"]
    assert data.users[0].queries[0].input == "Film 0, The (2000) — genres: Drama, War"
    assert data.users[0].history[0].input == "Odd"
    first = (tmp_path / "out" / "ratings.csv").read_bytes()
    build.build_films(tmp_path, tmp_path / "out")
    assert (tmp_path / "out" / "ratings.csv").read_bytes() == first


def test_half_stars_are_rounded_up_and_clamped(build):
    given = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0)
    assert [build.whole_stars(rating) for rating in given] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


def test_every_sample_has_its_card():
    card = (sample_path("news").parent / "README.md").read_text(encoding="utf-8")
    assert "CC BY 4.0" in card
    assert "Rishabh Misra" in card
    if not NO_FILMS:
        folder = ROOT / "samples" / "films"
        assert "Harper" in (folder / "README.md").read_text(encoding="utf-8")
        assert "commercial or revenue-bearing" in (folder / "TERMS.txt").read_text(encoding="utf-8")

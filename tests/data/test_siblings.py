"""Authors behind several questions: who is a sibling, who is not, and how long it takes."""

import json
from pathlib import Path

import pytest

from personalink.data import SiblingIndex, load_lamp

OFFICIAL = Path(__file__).parents[2].parent / "shared" / "data" / "lamp2_news_official_sample" / "train"


def author(index: SiblingIndex, name: str, ids, size: int = 8) -> None:
    """One author's questions: each profile holds the author's other articles."""
    for n, id in enumerate(ids):
        articles = [(f"{name} title {k}", f"{name} text {k}") for k in range(size) if k != n]
        index.add(id, articles, f"{name} text {n}")


def test_questions_of_one_author_share_a_group_named_by_the_smallest_id():
    index = SiblingIndex()
    author(index, "ann", ["110", "99", "101"])
    author(index, "bob", ["7"])
    author(index, "cid", ["12", "13"])
    assert index.groups() == {"110": "99", "99": "99", "101": "99", "12": "12", "13": "12"}


def test_the_order_of_the_file_changes_nothing():
    forward, backward = SiblingIndex(), SiblingIndex()
    author(forward, "ann", ["1", "2"])
    author(forward, "bob", ["3", "4"])
    author(backward, "bob", ["3", "4"])
    author(backward, "ann", ["1", "2"])
    assert forward.groups() == backward.groups()


def test_a_tiny_author_is_found_by_the_query_in_the_others_profile():
    index = SiblingIndex()
    index.add("1", [("T2", "second")], "first")
    index.add("2", [("T1", "first")], "second")
    index.add("3", [("T3", "third")], "fourth")
    assert index.groups() == {"1": "1", "2": "1"}


def test_texts_that_stand_under_many_titles_are_boilerplate_and_link_nobody():
    index = SiblingIndex()
    for n in range(9):
        index.add(str(n), [(f"title {n}", "watch the video."), (f"other {n}", f"text {n}")], "watch the video.")
    assert index.groups() == {}


def test_a_few_shared_articles_are_not_enough():
    index = SiblingIndex()
    shared = [("shared", f"s{k}") for k in range(3)]
    index.add("1", shared + [("a", f"a{k}") for k in range(4)], "qa")
    index.add("2", shared + [("b", f"b{k}") for k in range(4)], "qb")
    index.add("3", [("c", "c0"), ("d", "same")], "qc")
    index.add("4", [("e", "e0"), ("d", "same")], "qd")
    assert index.groups() == {}


def test_an_author_with_hundreds_of_questions_is_one_group():
    index = SiblingIndex()
    author(index, "ann", [str(n) for n in range(300)], size=300)
    assert set(index.groups().values()) == {"0"}


def test_six_thousand_questions_are_told_apart():
    index = SiblingIndex()
    for name in range(600):
        author(index, str(name), [str(name * 10 + n) for n in range(10)], size=60)
    assert len(set(index.groups().values())) == 600


def test_the_loader_groups_news_without_user_ids_only(tmp_path):
    texts = [f"Article number {k}." for k in range(6)]
    asked = [
        {
            "id": str(n),
            "input": texts[n],
            "profile": [{"id": f"{n}{k}", "text": t, "category": "crime"} for k, t in enumerate(texts) if k != n],
        }
        for n in (1, 2)
    ]
    file = tmp_path / "dev_questions.json"
    file.write_text(json.dumps(asked))
    assert [user.group for user in load_lamp(file).users] == ["1", "1"]
    file.write_text(json.dumps([record | {"user_id": record["id"]} for record in asked]))
    assert [user.group for user in load_lamp(file).users] == ["", ""]


@pytest.mark.skipif(not OFFICIAL.is_dir(), reason="the official sample beside the checkout is not there")
def test_the_official_sample():
    data = load_lamp(OFFICIAL / "train_questions.json", OFFICIAL / "train_outputs.json", task="lamp2")
    assert [(user.id, user.group, len(user.history)) for user in data.users] == [
        ("100", "", 4),
        ("101", "101", 18),
        ("102", "101", 18),
        ("103", "101", 18),
    ]
    assert data.gold("103", "103") == "entertainment"
    assert not data.dropped

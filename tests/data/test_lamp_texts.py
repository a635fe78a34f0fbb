"""The official LaMP files whose profiles hold texts and no labels: citations, headlines, paper titles and tweets."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from personalink.data import find_lamp, load_lamp, make_manifest
from personalink.data.lamp_pairs import FUNCTION_WORDS, citation_users, content_words, tweet_items
from personalink.data.leaks import check_user, holds_query
from personalink.data.types import Item, Query, User
from personalink.errors import DataError
from personalink.tasks import ChoiceTask, task
from tests.lamp_files import HEADS, citation, entry, question, write

TASKS = ("lamp1", "lamp4", "lamp5", "lamp7")

pytest.importorskip("rouge_score", reason="rouge_score is not installed: [generation]")


def load(folder: Path, records, golds=None, *, file_task="LaMP_4", **options):
    asked = folder / "dev_questions.json"
    asked.write_text(json.dumps(records), encoding="utf-8")
    if golds is None:
        return load_lamp(asked, **options)
    told = folder / "dev_outputs.json"
    told.write_text(json.dumps({"task": file_task, "golds": [{"id": i, "output": o} for i, o in golds.items()]}))
    return load_lamp(asked, told, **options)


def refused(folder: Path, *arguments, **options) -> str:
    with pytest.raises(DataError) as caught:
        load(folder, *arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# what is read


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("given_task", [True, False])
def test_a_split_is_found_told_apart_and_joined_by_id(tmp_path, name, given_task):
    write(tmp_path, name)
    data = load_lamp(*find_lamp(tmp_path, name), task=name if given_task else None)
    assert (data.task, data.source, [u.id for u in data.users]) == (name, f"{name}/dev", ["100", "101", "102"])
    for user in data.users:
        assert data.gold(user.id, user.id) == question(name, user.id, 0)[1]
        check_user(user)
        assert all(task(name).check_label(item.label) == item.label for item in user.history)
    assert len(make_manifest(data, n_users=None).entries) == 3


def test_a_headline_is_the_label_of_its_article_and_the_title_that_the_official_ranking_reads(tmp_path):
    write(tmp_path, "lamp4", 1, 2)
    user = load_lamp(*find_lamp(tmp_path, "lamp4")).users[0]
    first = entry("lamp4", "100", 0)
    assert user.queries[0].input == entry("lamp4", "100", "asked")["text"]
    assert user.history[0] == Item("1000", first["text"], first["title"], None, first["title"])


def test_a_paper_title_is_the_label_of_its_abstract(tmp_path):
    write(tmp_path, "lamp5", 1, 1)
    first = entry("lamp5", "100", 0)
    (item,) = load_lamp(*find_lamp(tmp_path, "lamp5")).users[0].history
    assert (item.input, item.label) == (first["abstract"], first["title"])


def test_texts_of_several_lines_are_labels_of_one(tmp_path):
    record = {"id": "1", "input": HEADS["lamp4"] + "Rain.", "profile": [{"id": "2", "text": "Sun.", "title": "A\n b"}]}
    data = load(tmp_path, [record], {"1": " Two\nlines "})
    assert data.gold("1", "1") == "Two lines"
    assert data.users[0].history[0].label == "A b"


@pytest.mark.parametrize("name", ["lamp4", "lamp5", "lamp7"])
def test_the_instruction_ends_at_its_own_marker(tmp_path, name):
    record, _ = question(name, "1", 2)
    asked = "An article: on a paper: and a category: Generate a headline for the following article: it: ends."
    data = load(tmp_path, [record | {"input": HEADS[name] + asked}])
    assert (data.task, data.users[0].queries[0].input) == (name, asked)


def test_what_breaks_the_form_is_named(tmp_path):
    record, _ = question("lamp4", "1", 2)
    assert '"output" must not be empty' in refused(tmp_path, [record], {"1": " "})
    assert '"task" is "LaMP_5"' in refused(tmp_path, [record], {"1": "x"}, file_task="LaMP_5")
    assert '"[3]" is not a label of citations' in refused(
        tmp_path, [question("lamp1", "1", 4)[0]], {"1": "[3]"}, file_task="LaMP_1"
    )
    record["profile"].append({"id": "9", "text": "No title."})
    assert 'profile[2]: "title" must be a string, not missing' in refused(tmp_path, [record])
    record["profile"][-1]["title"] = " "
    assert load(tmp_path, [record]).dropped == {"item without a title": 1}


@pytest.mark.parametrize(
    ("name", "asked", "told"),
    [
        ("lamp1", "lamp5", "this is citations (its questions ask for that), not paper titles"),
        ("lamp5", "lamp1", "this is paper titles (its questions ask for that), not citations"),
        ("lamp4", "lamp2", 'this is headlines (profiles carry "title" and "text"), not news ("category")'),
        ("lamp7", "lamp4", 'this is tweets (profiles carry "text" alone), not headlines'),
    ],
)
def test_another_task_is_refused_by_name(tmp_path, name, asked, told):
    assert told in refused(tmp_path, [question(name, "1", 4)[0]], task=asked)


def test_papers_without_an_instruction_need_a_task(tmp_path):
    bare = question("lamp5", "1", 3)[0] | {"input": "We saw amber."}
    assert 'give task="lamp1" (citations) or "lamp5" (paper titles)' in refused(tmp_path, [bare])
    assert load(tmp_path, [bare], task="lamp5").users[0].queries[0].input == "We saw amber."


def test_e_mails_are_refused(tmp_path):
    record = question("lamp4", "1", 2)[0] | {"input": "Generate a subject for the following email: Hi."}
    assert "LaMP-6 (e-mail subjects), which is not read" in refused(tmp_path, [record])


def test_headlines_of_one_author_are_siblings(tmp_path):
    """Each question's profile holds the others' articles under their headlines: gold read out of a profile."""
    articles = [entry("lamp4", "a", k) for k in range(6)]
    records = [
        {"id": str(k), "input": HEADS["lamp4"] + own["text"], "profile": [a for a in articles if a is not own]}
        for k, own in enumerate(articles)
    ]
    data = load(tmp_path, [*records, question("lamp4", "9", 5)[0]])
    assert [u.group for u in data.users] == ["0"] * 6 + [""]
    assert len(make_manifest(data, n_users=None).entries) == 2


def test_papers_of_two_authors_together_are_no_siblings(tmp_path):
    papers = [entry("lamp5", "a", k) for k in range(6)]
    records = [question("lamp5", name, 1)[0] | {"profile": papers} for name in "xy"]
    assert [u.group for u in load(tmp_path, records).users] == ["", ""]


# queries stay out


@pytest.mark.parametrize("name", TASKS)
def test_the_query_in_its_own_profile_is_left_out(tmp_path, name):
    record, _ = question(name, "1", 6)
    own = entry(name, "1", "asked") | {"id": "own"}
    if name == "lamp7":
        own["text"] = record["input"].removeprefix(HEADS[name]).upper()
    data = load(tmp_path, [record | {"profile": [own, *record["profile"]]}, question(name, "2", 8)[0]])
    assert data.dropped["query in own history"] == 1
    assert all(item.id != "own" for item in data.users[0].history)


def test_a_tweet_made_by_hand_that_holds_the_query_is_a_leak():
    query = Query("q", "I find the amber basin cedar delta ember beautiful.")
    assert holds_query(Item("1", "amber basin", "RT: " + query.input.upper()), (query,))
    assert not holds_query(Item("1", "amber basin", "politics"), (Query("q", "politics"),))


# citations


def test_citations_are_questions_of_the_users_own_papers(tmp_path):
    write(tmp_path, "lamp1", users=4, m=21)
    data = load_lamp(*find_lamp(tmp_path, "lamp1"))
    choice = task("lamp1")
    assert isinstance(choice, ChoiceTask)
    everyone = {u: {entry("lamp1", u, k)["title"] for k in range(21)} for u in ("100", "101", "102", "103")}
    for user in data.users:
        assert len(user.history) == 10
        mine, met = everyone[user.id], []
        for item in user.history:
            options = choice.options(item.input)
            assert list(options) == ["[1]", "[2]"]
            (other,) = set(options) - {item.label}
            met += [item.input.split("\n")[0], options[item.label], options[other]]
            assert set(met[-3:-1]) <= mine
            assert met[-1] not in mine
        assert len(set(met)) == 30  # no title stands in two items
    assert data.dropped == {"paper without a partner or a stranger's title": 4}
    sides = Counter(item.label for user in data.users for item in user.history)
    assert min(sides.values()) > 10


def test_the_same_file_gives_the_same_citations(tmp_path):
    write(tmp_path, "lamp1")
    first = load_lamp(*find_lamp(tmp_path, "lamp1"))
    again = load_lamp(*find_lamp(tmp_path, "lamp1"))
    assert first == again


@pytest.mark.parametrize(
    ("title", "one", "two"),
    [
        ("A plain title", "One", "Two"),
        ('He said "yes", twice', 'The "one" way', "It's two"),
        ("Across\nlines", "One [1]: of", 'Two "[2]" end'),
    ],
)
def test_the_options_are_read_out_of_the_question(tmp_path, title, one, two):
    record = question("lamp1", "1", 4)[0] | {"input": citation(title, one, two)}
    (query,) = load(tmp_path, [record, question("lamp1", "2", 4)[0]]).users[0].queries
    assert query.input.split("\n") == [" ".join(title.split()), f"[1] {one}", f"[2] {two}"]


def test_a_question_that_cannot_be_taken_apart_is_kept_whole(tmp_path):
    record = question("lamp1", "1", 4)[0] | {"input": "Which of [1] A and [2] B?"}
    data = load(tmp_path, [record, question("lamp1", "2", 4)[0]], task="lamp1")
    assert data.users[0].queries[0].input == "Which of [1] A and [2] B?"


def test_one_author_alone_has_no_strangers(tmp_path):
    data = load(tmp_path, [question("lamp1", "1", 6)[0]])
    assert data.users[0].history == ()
    assert data.dropped == {"paper without a partner or a stranger's title": 6}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from("abcdefghij"), max_size=8), min_size=1, max_size=4), st.sampled_from("abk"))
def test_citations_of_any_profiles(profiles, asked):
    users = [
        User(str(n), "s", tuple(Item(f"{n}{k}", "x", title) for k, title in enumerate(titles)), (Query("q", asked),))
        for n, titles in enumerate(profiles)
    ]
    dropped: Counter[str] = Counter()
    made = citation_users(users, dropped)
    assert sum(len(u.history) for u in users) == 2 * sum(len(u.history) for u in made) + sum(dropped.values())
    for before, after in zip(users, made, strict=True):
        own = {item.label for item in before.history}
        for item in after.history:
            options = task("lamp1").options(item.input)
            (other,) = set(options) - {item.label}
            assert options[item.label] in own
            assert options[other] not in own | {asked}


# tweets


@pytest.mark.parametrize(
    ("tweet", "content"),
    [
        ("listening to the album Listen to Eason Chan.. lovely!! :)", "listening album listen eason chan lovely"),
        ("@john I'm NOT going http://t.co/xyz #sad", "john not going sad"),
        ("it is what it is", ""),
        ("Ça va — très bien, isn’t it?", "ça va très bien isn't"),
    ],
)
def test_the_content_of_a_tweet(tweet, content):
    assert content_words(tweet) == content


def test_tweets_are_items_with_their_content_as_input(tmp_path):
    record, _ = question("lamp7", "1", 3)
    record["profile"].append({"id": "9", "text": "it is what it is :)"})
    data = load(tmp_path, [record])
    assert data.dropped == {"tweet without content words": 1}
    for item, raw in zip(data.users[0].history, record["profile"], strict=False):
        assert item.label == raw["text"]
        assert item.input == content_words(raw["text"])
        assert not set(item.input.split()) & FUNCTION_WORDS


@given(st.text(max_size=80))
def test_no_tweet_breaks_it_and_content_adds_nothing(tweet):
    content = content_words(tweet)
    folded = tweet.casefold().replace("’", "'")
    assert all(word in folded and word not in FUNCTION_WORDS for word in content.split())
    made = tweet_items([Item("1", tweet, tweet)], Counter())
    assert bool(made) == bool(content)

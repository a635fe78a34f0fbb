"""The official LaMP files with labelled profiles: what is read, left out and counted, refused and in which words."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from personalink.data import NEWS_LABELS, RATING_LABELS, TAG_LABELS, find_lamp, load_lamp
from personalink.data.leaks import check_user
from personalink.errors import DataError
from personalink.text import normalised

NEWS = (
    "Which category does this article relate to among the following categories? Just answer with the category name "
    "without further explanation. categories: [women, religion, politics] article: "
)
TAGS = (
    "Which tag does this movie relate to among the following tags? Just answer with the tag name without further "
    "explanation. tags: [sci-fi, comedy] description: "
)
STARS = (
    "What is the score of the following review on a scale of 1 to 5? just answer with 1, 2, 3, 4, or 5 without further "
    "explanation. review: "
)


def item(id="10", text="The council met in the old mill.", category="politics", **more):
    return {"text": text, "title": "The mill", "category": category, "id": id, **more}


def review(id="a", text="A kettle that boils.", score="5", **more):
    return {"id": id, "text": text, "score": score, **more}


def question(id="1", text="A bakery opens at dawn.", profile=None, head=NEWS, **more):
    return {"id": id, "input": head + text, "profile": [item()] if profile is None else profile, **more}


def write(folder: Path, questions, golds=None, task="LaMP_2", name="dev"):
    asked = folder / f"{name}_questions.json"
    asked.write_text(questions if isinstance(questions, str) else json.dumps(questions), encoding="utf-8")
    if golds is None:
        return (asked,)
    told = folder / f"{name}_outputs.json"
    records = [{"id": id, "output": output} for id, output in golds.items()] if isinstance(golds, dict) else golds
    told.write_text(json.dumps({"task": task, "golds": records}), encoding="utf-8")
    return asked, told


def refused(folder: Path, questions, golds=None, *, file_task="LaMP_2", **options) -> str:
    with pytest.raises(DataError) as caught:
        load_lamp(*write(folder, questions, golds, file_task), **options)
    line = str(caught.value)
    assert "\n" not in line
    assert "dev_" in line
    return line


# what is read


def test_news(tmp_path):
    data = load_lamp(*write(tmp_path, [question("7")], {"7": "Food & Drink "}))
    (user,) = data.users
    assert (data.source, data.task, dict(data.dropped)) == ("lamp2/dev", "lamp2", {})
    assert (user.id, user.source, user.group) == ("7", "lamp2/dev", "")
    assert user.queries[0].input == "A bakery opens at dawn."
    assert (user.history[0].title, user.history[0].label) == ("The mill", "politics")
    assert data.gold("7", "7") == "food & drink"


def test_movie_tags(tmp_path):
    profile = [{"id": "1", "description": "A robot learns chess.", "tag": "Sci-Fi"}]
    data = load_lamp(*write(tmp_path, [question("7", profile=profile, head=TAGS)], {"7": "classic"}))
    assert (data.task, data.users[0].history[0].input) == ("lamp2_tags", "A robot learns chess.")
    assert data.users[0].history[0].label == "sci-fi"


def test_ratings_of_the_time_split(tmp_path):
    folder = tmp_path / "time" / "LaMP_3" / "dev"
    folder.mkdir(parents=True)
    profile = [review("b", date="2012-05-01", score="3.0"), review("a", "It leaks.", 1, date="2011-05-01")]
    asked = question(412, "Does the job.", profile, STARS, user_id="A77")
    data = load_lamp(*write(folder, [asked], {"412": "4"}, "LaMP_3"))
    (user,) = data.users
    assert (data.source, user.id, user.queries[0].id) == ("lamp3-time/dev", "A77", "412")
    assert [(i.id, i.label) for i in user.history] == [("a", "1"), ("b", "3")]
    assert data.gold("A77", "412") == "4"


def test_the_label_spaces():
    assert (len(set(NEWS_LABELS)), len(set(TAG_LABELS)), RATING_LABELS) == (15, 15, ("1", "2", "3", "4", "5"))


def test_outputs_are_joined_by_id_never_by_position(tmp_path):
    asked = [question("1"), question("2", "Rain is due."), question("3", "A goal late on.")]
    data = load_lamp(*write(tmp_path, asked, {"3": "sports", "1": "business", "2": "travel", "99": "women"}))
    assert [data.gold(u.id, u.id) for u in data.users] == ["business", "travel", "sports"]


def test_test_files_have_no_outputs(tmp_path):
    data = load_lamp(*write(tmp_path, [question("21")]))
    assert not data.golds
    assert data.gold("21", "21") is None


def test_ids_are_strings_and_are_reused_between_users(tmp_path):
    asked = [question(101, profile=[item("1013")]), question("1013", "Rain is due.", [item("1013", "A new bridge.")])]
    data = load_lamp(*write(tmp_path, asked))
    assert [u.id for u in data.users] == ["101", "1013"]
    # question 1013's own profile entry 1013 has the id of its query, so it counts as the query itself
    assert [len(u.history) for u in data.users] == [1, 0]
    assert data.dropped == {"query in own history": 1}


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path):
    assert load_lamp(*write(tmp_path, "\ufeff" + json.dumps([question()]))).users[0].id == "1"


def test_the_digest_is_of_the_files(tmp_path):
    first = load_lamp(*write(tmp_path, [question()], {"1": "crime"}))
    again = load_lamp(*write(tmp_path, [question()], {"1": "crime"}))
    other = load_lamp(*write(tmp_path, [question()], {"1": "women"}))
    assert first.sha256 == again.sha256 != other.sha256
    assert len(first.sha256) == 64


# the instruction


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        (NEWS + "This article: it has article: twice.", "This article: it has article: twice."),
        (NEWS + "One line.\nAnd a second.", "One line.\nAnd a second."),
        ("No instruction, yet an article: inside.", "No instruction, yet an article: inside."),
        ("article: bare", "article: bare"),
    ],
)
def test_the_instruction_ends_at_the_first_marker(tmp_path, asked, kept):
    data = load_lamp(*write(tmp_path, [question() | {"input": asked}]))
    assert data.users[0].queries[0].input == kept


def test_the_other_tasks_have_their_own_markers(tmp_path):
    profile = [{"id": "1", "description": "A dream in a dream.", "tag": "classic"}]
    data = load_lamp(*write(tmp_path, [question(text="His description: tall.", profile=profile, head=TAGS)]))
    assert data.users[0].queries[0].input == "His description: tall."
    data = load_lamp(*write(tmp_path, [question(text="My review: fine.", profile=[review()], head=STARS)]))
    assert data.users[0].queries[0].input == "My review: fine."


def test_a_question_without_a_text_is_left_out(tmp_path):
    data = load_lamp(*write(tmp_path, [question("1", ""), question("2")], {"1": "crime", "2": "crime"}))
    assert [u.id for u in data.users] == ["2"]
    assert data.dropped == {"question without a text": 1}
    assert "no question has a text" in refused(tmp_path, [question("1", " ")])


# the history


def test_a_querys_own_text_in_its_profile_is_left_out(tmp_path):
    profile = [item("1", " A BAKERY opens\u00a0at dawn. "), item("2"), item("3", "A bakery opens at dawn.")]
    data = load_lamp(*write(tmp_path, [question("9", profile=profile)]))
    assert [i.id for i in data.users[0].history] == ["2"]
    assert data.dropped == {"query in own history": 2}
    check_user(data.users[0])


def test_unusable_items_are_left_out_and_counted(tmp_path):
    profile = [item("1"), item("1", "Same id."), item("2", "  "), item("3", "Odd.", "weather"), item("4", "A heron.")]
    data = load_lamp(*write(tmp_path, [question("9", profile=profile)]))
    assert [i.id for i in data.users[0].history] == ["1", "4"]
    reasons = ("item id repeated in one profile", "item without a text", "label outside the label space")
    assert data.dropped == dict.fromkeys(reasons, 1)


def test_half_stars_are_outside_the_label_space(tmp_path):
    data = load_lamp(*write(tmp_path, [question(profile=[review("a", score=4.5), review("b")], head=STARS)]))
    assert [i.id for i in data.users[0].history] == ["b"]


def test_history_is_in_order_of_date_only_when_all_have_one(tmp_path):
    dated = [item("1", "C.", date="2018-03-05"), item("2", "A.", date="2018-03-01"), item("3", "B.", date="2018-03-05")]
    data = load_lamp(*write(tmp_path, [question("9", profile=dated)]))
    assert [i.id for i in data.users[0].history] == ["2", "1", "3"]
    dated[1]["date"] = None
    data = load_lamp(*write(tmp_path, [question("9", profile=dated)]))
    assert [i.id for i in data.users[0].history] == ["1", "2", "3"]
    dated[1]["date"] = "in March"
    data = load_lamp(*write(tmp_path, [question("9", profile=dated)]))
    assert data.users[0].history[1].date is None
    assert data.dropped == {"date that cannot be read": 1}


def test_items_later_than_a_dated_query_are_left_out(tmp_path):
    profile = [item("1", "A.", date="2018-03-06"), item("2", "B.", date="2018-03-05T23:00"), item("3", "C.")]
    data = load_lamp(*write(tmp_path, [question("9", profile=profile, date="2018-03-05")]))
    assert [i.id for i in data.users[0].history] == ["2", "3"]
    assert data.dropped == {"item later than its query": 1}


def test_one_user_id_is_one_user_with_the_first_question(tmp_path):
    asked = [
        question("1", user_id="u"),
        question("2", "Rain is due.", [item(), item("11", "More.")], user_id="u"),
        question("3", "A goal late on.", user_id=5),
    ]
    data = load_lamp(*write(tmp_path, asked, {"1": "crime", "2": "women", "3": "sports"}))
    assert [(u.id, [q.id for q in u.queries], len(u.history)) for u in data.users] == [("u", ["1"], 1), ("5", ["3"], 1)]
    assert dict(data.golds) == {("u", "1"): "crime", ("5", "3"): "sports"}
    assert data.dropped == {"further question of the same user": 1}


TEXTS = st.sampled_from(["A bakery opens at dawn.", "a BAKERY  opens at dawn.", "Rain.", "Ra\u0131n.", "A heron.", " "])


@given(st.lists(st.tuples(TEXTS, st.lists(TEXTS, max_size=5)), min_size=1, max_size=4))
def test_no_query_text_is_in_any_history(tmp_path_factory, drawn):
    asked = [
        question(f"q{n}", text, [item(f"{n}{k}", other) for k, other in enumerate(profile)])
        for n, (text, profile) in enumerate([*drawn, ("A goal.", ["Rain."])])
    ]
    for user in load_lamp(*write(tmp_path_factory.mktemp("lamp"), asked)).users:
        assert normalised(user.queries[0].input) not in {normalised(i.input) for i in user.history}
        check_user(user)


# what is refused


def test_movie_tags_given_as_news_are_refused_by_name(tmp_path):
    profile = [{"id": "1", "description": "A robot.", "tag": "sci-fi"}]
    line = refused(tmp_path, [question(profile=profile)], task="lamp2")
    assert 'is movie tags (profiles carry "tag"), not news' in line
    assert "is news" in refused(tmp_path, [question()], task="lamp2_tags")


def test_golds_of_another_task_are_refused_by_name(tmp_path):
    line = refused(tmp_path, [question()], {"1": "dark comedy"})
    assert '"dark comedy" is not a label of news but of movie tags' in line


def test_the_outputs_own_task_must_agree(tmp_path):
    assert '"task" is "LaMP_3"' in refused(tmp_path, [question()], {"1": "crime"}, file_task="LaMP_3")


@pytest.mark.parametrize(
    ("entry", "carried"),
    [
        ({"id": "1", "title": "T", "abstract": "A"}, 'carry "title" and "abstract"'),
        ({"id": "1", "title": "T", "text": "A"}, 'carry "title" and "text"'),
        ({"id": "1", "text": "A"}, 'carry "text" alone'),
    ],
)
def test_questions_and_profiles_must_be_of_one_task(tmp_path, entry, carried):
    line = refused(tmp_path, [question(profile=[entry])])
    assert 'questions are of news, whose profiles carry "category"' in line
    assert carried in line


def test_an_unknown_task_is_told_with_the_nearest(tmp_path):
    with pytest.raises(DataError, match=r'"lamp_2".*meant lamp2\?'):
        load_lamp(*write(tmp_path, [question()]), task="lamp_2")


def test_profiles_without_any_item_are_told_by_the_instruction_or_need_a_task(tmp_path):
    assert load_lamp(*write(tmp_path, [question(profile=[])])).task == "lamp2"
    bare = question(profile=[], head="")
    assert "give task=one of lamp1, lamp2" in refused(tmp_path, [bare])
    assert load_lamp(*write(tmp_path, [bare]), task="lamp3").users[0].history == ()


def test_swapped_arguments_are_told(tmp_path):
    asked, told = write(tmp_path, [question()], {"1": "crime"})
    with pytest.raises(DataError, match="this is an outputs file"):
        load_lamp(told, asked)
    with pytest.raises(DataError, match="were the two swapped"):
        load_lamp(asked, asked)


def test_a_missing_gold_is_told_with_its_count(tmp_path):
    assert '"2"' in refused(tmp_path, [question("1"), question("2", "Rain.")], {"1": "crime"})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("", "empty"),
        ("[]", "empty"),
        ('[{"id": "1", "inp', "cut off"),
        ("<html></html>", "not readable as JSON"),
        ("[" * 100_000, "not readable"),
        ("true", "must be a JSON list of questions, not true"),
        ("[null]", "question 0: must be an object, not null"),
    ],
)
def test_files_that_are_no_questions(tmp_path, body, words):
    assert words in refused(tmp_path, body)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        load_lamp(tmp_path / "dev_questions.json")
    with pytest.raises(DataError, match="a folder"):
        load_lamp(tmp_path)
    (tmp_path / "x.json").write_bytes(b'["\xff"]')
    with pytest.raises(DataError, match="not UTF-8"):
        load_lamp(tmp_path / "x.json")


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (question(id=True), 'question 1: "id" must be a non-empty string, not true'),
        (question(id=None), '"id" must be a non-empty string, not null'),
        ({"input": "x", "profile": []}, '"id" must be a non-empty string, not missing'),
        (question("1"), "the id was used by question 0"),
        (question("2") | {"input": None}, '(id "2"): "input" must be a string, not null'),
        ({"id": "2", "profile": []}, '"input" must be a string, not missing'),
        (question("2") | {"profile": {}}, '"profile" must be a list, not an object'),
        ({"id": "2", "input": "x"}, '"profile" must be a list, not missing'),
        (question("2", profile=["x"]), 'profile[0]: must be an object, not "x"'),
        (question("2", profile=[item(), item("3", text=None)]), 'profile[1]: "text" must be a string, not null'),
        (question("2", profile=[item("3", category=[])]), '"category" must be a string, not a list'),
        (question("2", profile=[{"id": "3", "text": "x"}]), '"category" must be a string, not missing'),
        (question("2", profile=[item(id=[1])]), 'profile[0]: "id" must be a non-empty string, not a list'),
        (question("2", profile=[item(title=3)]), '"title" must be a string, not the number 3'),
        (question("2", profile=[item(date=2018)]), '"date" must be a string'),
        (question("2", profile=[{"id": "3", "description": "x", "tag": "y"}]), 'carries "tag" (movie tags)'),
        (question("2", user_id=False), '"user_id" must be a non-empty string, not false'),
    ],
)
def test_a_broken_record_is_named(tmp_path, record, words):
    assert words in refused(tmp_path, [question("1"), record])


@pytest.mark.parametrize(
    ("golds", "words"),
    [
        ([None], "gold 0: must be an object, not null"),
        ([{"id": "1"}], 'gold 0 (id "1"): "output" must be a string, not missing'),
        ([{"id": "1", "output": True}], "not true"),
        ([{"output": "crime"}], '"id" must be'),
        ([{"id": "1", "output": "crime"}, {"id": 1, "output": "women"}], "has a gold already"),
        ([{"id": "1", "output": "weather"}], '"weather" is not a label of news'),
    ],
)
def test_broken_outputs_are_named(tmp_path, golds, words):
    assert words in refused(tmp_path, [question()], golds)


def test_outputs_without_golds_are_told(tmp_path):
    asked = write(tmp_path, [question()])[0]
    (tmp_path / "dev_outputs.json").write_text('{"task": "LaMP_2"}')
    with pytest.raises(DataError, match='a list "golds"'):
        load_lamp(asked, tmp_path / "dev_outputs.json")


def test_lone_surrogates_do_not_reach_the_texts(tmp_path):
    data = load_lamp(*write(tmp_path, [question(text="Half \ud83d of it, and \U0001f600.")]))
    assert data.users[0].queries[0].input == "Half \ufffd of it, and \U0001f600."


# where the files lie


@pytest.mark.parametrize(
    ("place", "task", "kind"),
    [
        ("lamp2/user/dev_questions.json", "lamp2", "user"),
        ("LaMP_2/dev/dev_questions.json", "lamp2", "user"),
        ("LaMP_2N/dev/dev_questions.json", "lamp2", "user"),
        ("LaMP_2/new/dev/dev_questions.json", "lamp2_tags", "user"),
        ("LaMP_3/dev_questions.json", "lamp3", "user"),
        ("time/LaMP_3/dev/dev_questions.json", "lamp3", "time"),
        ("dev_questions.json", "lamp3", "user"),
    ],
)
def test_the_official_layouts_are_found(tmp_path, place, task, kind):
    file = tmp_path / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("[]")
    assert find_lamp(tmp_path, task, "dev", kind) == (file, None)
    file.with_name("dev_outputs.json").write_text("{}")
    assert find_lamp(tmp_path, task, "dev", kind) == (file, file.with_name("dev_outputs.json"))


def test_what_is_not_found_says_where_it_was_sought(tmp_path):
    with pytest.raises(DataError, match=r"LaMP_3/dev/dev_questions.json.*scripts/download_lamp.py"):
        find_lamp(tmp_path, "lamp3")
    for wrong in ({"task": "news"}, {"task": "lamp2", "split": "eval"}, {"task": "lamp2", "split_kind": "date"}):
        with pytest.raises(DataError, match="take one of"):
            find_lamp(tmp_path, **wrong)


@pytest.mark.parametrize("path", [None, 3, "", []])
def test_paths_that_are_none(path):
    with pytest.raises(DataError, match="questions must be the path of a file"):
        load_lamp(path)

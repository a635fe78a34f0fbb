"""The download script against a server on this machine: what it writes, skips, checks and never leaves behind."""

import importlib.util
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from personalink.data import find_lamp, load_lamp
from tests.lamp_files import NAMES, question

SCRIPT = Path(__file__).parents[2] / "scripts" / "download_lamp.py"
QUESTIONS = json.dumps(
    [{"id": "1", "input": "Rain.", "profile": [{"id": "11", "text": "A mill.", "title": "", "category": "crime"}]}]
)
OUTPUTS = json.dumps({"task": "LaMP_2", "golds": [{"id": "1", "output": "crime"}]})
NEWS_FILES = {"/LaMP_2/dev/dev_questions.json": QUESTIONS, "/LaMP_2/dev/dev_outputs.json": OUTPUTS}


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("download_lamp", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def publisher(monkeypatch):
    """A loopback server; `files` is what it has, `asked` what it was asked for, `cut` breaks answers off."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            server.asked.append(self.path)
            body = server.files.get(self.path, "").encode()
            self.send_response(200 if body else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if server.cut else body)

        def log_message(self, *args):
            pass

    monkeypatch.setenv("no_proxy", "*")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.files, server.asked, server.cut = dict(NEWS_FILES), [], False
    server.url = f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def names(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


LAID_OUT = ["SHA256SUMS", "lamp2/user/dev_outputs.json", "lamp2/user/dev_questions.json"]


def test_what_is_written_is_what_find_lamp_finds(script, publisher, tmp_path, capsys):
    assert script.main(["--root", str(tmp_path), "--tasks", "news", "--base-url", publisher.url]) == 0
    assert names(tmp_path) == LAID_OUT
    assert load_lamp(*find_lamp(tmp_path, "lamp2", "dev")).gold("1", "1") == "crime"
    out, err = capsys.readouterr()
    assert "lamp2/dev: 1 users, 1 golds" in out
    assert "dev_questions.json: 0.0 MB" in err
    sums = (tmp_path / "SHA256SUMS").read_text().splitlines()
    assert [line[64:66] for line in sums] == ["  ", "  "]


def test_the_addresses_of_each_task_and_split(script, publisher, tmp_path):
    tags = [{"id": "1", "input": "Rain.", "profile": [{"id": "11", "description": "A mill.", "tag": "classic"}]}]
    stars = [{"id": "1", "input": "Rain.", "profile": [{"id": "11", "text": "A mill.", "score": "5"}]}]
    publisher.files = {
        "/time/LaMP_2/new/test/test_questions.json": json.dumps(tags),
        "/time/LaMP_3/test/test_questions.json": json.dumps(stars),
    }
    wanted = ["--tasks", "movies", "ratings", "--split-kind", "time", "--splits", "test"]
    assert script.main(["--root", str(tmp_path), *wanted, "--base-url", publisher.url]) == 0
    assert publisher.asked == list(publisher.files)
    assert names(tmp_path)[1:] == ["lamp2_tags/time/test_questions.json", "lamp3/time/test_questions.json"]


def test_the_tasks_whose_profiles_hold_texts(script, publisher, tmp_path):
    ours = {"citations": "lamp1", "headlines": "lamp4", "titles": "lamp5", "tweets": "lamp7"}
    publisher.files = {
        f"/{NAMES[task]}/test/test_questions.json": json.dumps([question(task, str(i), 4)[0] for i in (1, 2)])
        for task in ours.values()
    }
    wanted = ["--tasks", *ours, "--splits", "test"]
    assert script.main(["--root", str(tmp_path), *wanted, "--base-url", publisher.url]) == 0
    assert publisher.asked == list(publisher.files)
    for task in ours.values():
        assert load_lamp(*find_lamp(tmp_path, task, "test"), task=task).task == task


def test_whole_files_are_not_fetched_again(script, publisher, tmp_path):
    args = ["--root", str(tmp_path), "--tasks", "news", "--base-url", publisher.url]
    assert script.main(args) == 0
    (tmp_path / "lamp2/user/dev_outputs.json").unlink()
    publisher.asked.clear()
    assert script.main(args) == 0
    assert publisher.asked == ["/LaMP_2/dev/dev_outputs.json"]


def test_a_file_that_was_altered_is_told(script, publisher, tmp_path, capsys):
    args = ["--root", str(tmp_path), "--tasks", "news", "--base-url", publisher.url]
    assert script.main(args) == 0
    (tmp_path / "lamp2/user/dev_outputs.json").write_text(OUTPUTS + " ")
    assert script.main(args) == 5
    assert "not what SHA256SUMS says" in capsys.readouterr().err


def test_a_file_that_changed_at_the_publisher_is_told(script, publisher, tmp_path, capsys):
    args = ["--root", str(tmp_path), "--tasks", "news", "--base-url", publisher.url]
    assert script.main(args) == 0
    (tmp_path / "lamp2/user/dev_outputs.json").unlink()
    publisher.files["/LaMP_2/dev/dev_outputs.json"] = OUTPUTS.replace("crime", "women")
    assert script.main(args) == 5
    assert "the publisher changed it" in capsys.readouterr().err
    assert names(tmp_path) == ["SHA256SUMS", "lamp2/user/dev_questions.json"]


def test_no_network_is_one_line_and_leaves_nothing(script, publisher, tmp_path, capsys):
    dead = "http://127.0.0.1:9/LaMP"
    assert script.main(["--root", str(tmp_path / "new"), "--base-url", dead, "--timeout", "2"]) == 3
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "no answer" in err
    assert list(tmp_path.iterdir()) == []


def test_an_answer_that_breaks_off_leaves_nothing(script, publisher, tmp_path, capsys):
    publisher.cut = True
    assert script.main(["--root", str(tmp_path), "--tasks", "news", "--base-url", publisher.url]) == 3
    assert "broke off" in capsys.readouterr().err
    assert names(tmp_path) == []


def test_a_missing_file_is_told_with_the_publishers_answer(script, publisher, tmp_path, capsys):
    assert script.main(["--root", str(tmp_path), "--tasks", "ratings", "--base-url", publisher.url]) == 3
    assert "answered 404" in capsys.readouterr().err
    assert names(tmp_path) == []


def test_a_page_in_place_of_a_file_is_refused(script, publisher, tmp_path, capsys):
    publisher.files["/LaMP_2/dev/dev_questions.json"] = "<html>Please sign in</html>"
    assert script.main(["--root", str(tmp_path), "--tasks", "news", "--base-url", publisher.url]) == 2
    assert "not JSON" in capsys.readouterr().err
    assert names(tmp_path) == []


def test_files_that_are_not_the_task_are_taken_away_again(script, publisher, tmp_path, capsys):
    publisher.files["/LaMP_2/dev/dev_questions.json"] = QUESTIONS.replace("category", "score")
    assert script.main(["--root", str(tmp_path), "--tasks", "news", "--base-url", publisher.url]) == 2
    assert "is product ratings" in capsys.readouterr().err
    assert names(tmp_path) == ["SHA256SUMS"]
    assert (tmp_path / "SHA256SUMS").read_text() == ""


def test_wrong_arguments_are_exit_code_2(script, tmp_path):
    with pytest.raises(SystemExit) as caught:
        script.main(["--root", str(tmp_path), "--tasks", "mails"])
    assert caught.value.code == 2

import io
import os

import pytest

from personalink.progress import Progress


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Broken(io.StringIO):
    writes = 0

    def write(self, text):
        Broken.writes += 1
        raise BrokenPipeError


def start(total=68, stream=None, **more):
    clock = Clock()
    stream = io.StringIO() if stream is None else stream
    return Progress(total, stream=stream, clock=clock, **more), clock, stream


def test_the_line():
    progress, clock, _ = start(label="lamp2")
    clock.now += 10
    progress.update(done=12, requests=32, tokens=4100, failures=0, in_flight=2)
    assert progress.line() == "lamp2 12/68 answers · 3.2 req/s · 410 tok/s · 0 failed · 2 in flight · ETA 0:47"


def test_nothing_known_yet():
    progress, _, _ = start()
    assert progress.line() == "0/68 answers · -- req/s · -- tok/s · 0 failed · 0 in flight · ETA --"


def test_unknown_tokens_are_not_zero():
    progress, clock, _ = start()
    clock.now += 1
    progress.update(requests=1, tokens=None)
    assert "-- tok/s" in progress.line()


def test_replayed_work_is_in_no_rate():
    progress, clock, _ = start(total=100)
    clock.now += 5
    progress.update(done=50)
    clock.now += 1
    progress.update(in_flight=2)
    clock.now += 9
    progress.update(done=60, requests=10)
    assert "1.0 req/s" in progress.line()
    assert progress.line().endswith("ETA 0:40")
    progress.update(replayed=55)
    assert progress.line().endswith("ETA 1:20")


def test_all_replayed_has_no_rate_and_no_eta():
    progress, clock, _ = start(total=10)
    clock.now += 5
    progress.update(done=9)
    assert "-- req/s" in progress.line()
    assert progress.line().endswith("ETA --")
    progress.update(done=10)
    assert progress.line().endswith("ETA 0:00")


def test_hours():
    progress, clock, _ = start(total=10_001)
    clock.now += 1
    progress.update(done=1, requests=1)
    assert progress.line().endswith("ETA 2:46:40")


def test_plain_lines_every_ten_seconds_and_at_the_end():
    progress, clock, stream = start()
    with progress:
        for second in range(25):
            clock.now = 100.0 + second
            progress.update(done=second, requests=second)
    lines = stream.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["10/68", "20/68", "24/68"]
    assert "\r" not in stream.getvalue()
    progress.close()
    progress.update(done=60)
    assert len(stream.getvalue().splitlines()) == 3


def test_a_terminal_is_redrawn_four_times_a_second_at_most():
    progress, clock, stream = start(stream=Terminal())
    for step in range(100):
        clock.now = 100.0 + step / 50
        progress.update(done=step, requests=step)
    drawn = stream.getvalue().count("\r")
    assert 6 <= drawn <= 9
    assert "\n" not in stream.getvalue()
    progress.close()
    assert stream.getvalue().endswith("\n")
    assert stream.getvalue().count("\n") == 1


def test_a_shorter_line_covers_the_longer_one_and_the_width_is_kept(monkeypatch):
    progress, clock, stream = start(stream=Terminal(), label="x" * 100)
    progress.update(done=1)
    assert max(map(len, stream.getvalue().split("\r"))) == 79
    monkeypatch.setattr(os, "get_terminal_size", lambda fd: os.terminal_size((40, 24)))
    stream.fileno = lambda: 2
    clock.now += 1
    progress.update(done=2)
    assert len(stream.getvalue().split("\r")[-1]) == 39
    monkeypatch.setattr(os, "get_terminal_size", lambda fd: os.terminal_size((200, 24)))
    clock.now += 1
    progress.update()
    progress.label = ""
    clock.now += 1
    progress.update()
    last, before = stream.getvalue().split("\r")[-1], stream.getvalue().split("\r")[-2]
    assert len(last) == len(before)
    assert last.rstrip() == progress.line()


@pytest.mark.parametrize("live", [True, False])
def test_a_broken_stream_never_ends_a_run(live, monkeypatch):
    stream = Broken()
    Broken.writes = 0
    monkeypatch.setattr(Broken, "isatty", lambda self: live, raising=False)
    progress, clock, _ = start(stream=stream)
    with progress:
        for _ in range(5):
            clock.now += 20
            progress.update(done=1)
    assert Broken.writes == 1


def test_a_closed_stream_and_no_stream(monkeypatch):
    stream = io.StringIO()
    progress, clock, _ = start(stream=stream)
    stream.close()
    clock.now += 20
    progress.update(done=1)
    monkeypatch.setattr("sys.stderr", None)
    with Progress(3) as silent:
        silent.update(done=1)


def test_an_ascii_stream_still_gets_lines():
    raw = io.BytesIO()
    progress, clock, _ = start(stream=io.TextIOWrapper(raw, encoding="ascii"), label="n\x1b[31mé\n")
    clock.now += 20
    progress.update(done=1)
    assert raw.getvalue().startswith(b"n[31m? 1/68 answers ? ")


def test_an_error_still_ends_the_line():
    progress, _, stream = start(stream=Terminal())

    def interrupted():
        with progress:
            progress.update(done=1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert stream.getvalue().endswith("\n")


def test_cached_answers_stand_apart_from_what_was_sent():
    progress, clock, _ = start()
    clock.now += 10
    progress.update(done=9, requests=20, cached=7, tokens=100, in_flight=1)
    assert progress.line() == "9/68 answers · 2.0 req/s · 10 tok/s · 7 cached · 0 failed · 1 in flight · ETA 1:06"


def test_silence_is_told_after_a_minute_and_a_half():
    progress, clock, _ = start()
    progress.update(requests=3, in_flight=3)
    for _ in range(89):  # somebody ticks, and nothing comes
        clock.now += 1
        progress.update(requests=3, in_flight=3)
    assert "ETA --" in progress.line()
    clock.now += 6
    assert progress.line().endswith("3 in flight · no answer for 95 s")
    progress.update(requests=4, in_flight=3)  # one came, another left
    assert "no answer" not in progress.line()
    clock.now += 95
    progress.update(in_flight=0)
    assert "no answer" not in progress.line()

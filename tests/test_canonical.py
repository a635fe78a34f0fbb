"""Canonical JSON, its digest, and files that are whole or absent."""

import json
import math
import os
import stat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from personalink import canonical
from personalink.canonical import canonical_json, digest, file_digest, pretty_json, write_atomic

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(values)
def test_both_forms_read_back_and_agree(value):
    assert json.loads(canonical_json(value)) == value == json.loads(pretty_json(value))
    assert digest(value) == digest(json.loads(pretty_json(value)))


def test_order_of_keys_does_not_matter_and_the_form_is_pinned():
    assert canonical_json({"b": [1, 2.5, None], "a": "é\n→"}) == '{"a":"é\\n→","b":[1,2.5,null]}'
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert pretty_json({"b": 1, "a": []}) == '{\n  "a": [],\n  "b": 1\n}\n'


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, [math.nan], {"a": {"b": math.inf}}])
@pytest.mark.parametrize("form", [canonical_json, pretty_json, digest])
def test_nan_and_infinities_are_refused(form, bad):
    with pytest.raises(ValueError, match="JSON"):
        form(bad)


def test_what_json_cannot_hold_is_refused():
    with pytest.raises(TypeError):
        canonical_json({"a": {1, 2}})


def test_a_lone_surrogate_is_escaped_so_that_json_is_always_utf8():
    text = canonical_json(["cut \ud83d", "whole 😀"])
    assert text == '["cut \\ud83d","whole 😀"]'
    assert json.loads(text.encode()) == ["cut \ud83d", "whole 😀"]
    assert pretty_json("\udfff").encode() == b'"\\udfff"\n'
    assert len(digest("\ud83d")) == 64


def test_write_atomic_writes_and_replaces(tmp_path):
    path = tmp_path / "new" / "folder" / "a.json"
    write_atomic(path, "é\r\n")
    assert path.read_bytes() == "é\r\n".encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    write_atomic(path, "second")
    assert path.read_text() == "second"
    assert file_digest(path) == "16367aacb67a4a017c8da8ab95682ccb390863780f7114dda0a0e0c55644c7c4"
    assert os.listdir(path.parent) == ["a.json"]


def test_a_name_as_long_as_the_system_allows(tmp_path):
    path = tmp_path / ("n" * 255)
    write_atomic(path, "x")
    assert path.read_text() == "x"


@pytest.mark.parametrize("broken", ["fsync", "replace", "chmod"])
def test_the_old_file_survives_a_failure(tmp_path, monkeypatch, broken):
    path = tmp_path / "kept.txt"
    write_atomic(path, "old")

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(canonical.os, broken, fail)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["kept.txt"]


def test_the_old_file_survives_ctrl_c_and_unencodable_text(tmp_path, monkeypatch):
    path = tmp_path / "kept.txt"
    write_atomic(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "\ud800")

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(canonical.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["kept.txt"]


def test_a_folder_in_the_files_place(tmp_path):
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        write_atomic(tmp_path / "taken", "x")
    assert os.listdir(tmp_path) == ["taken"]

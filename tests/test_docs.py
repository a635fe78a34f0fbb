"""What the documents say is true: their programs run, their links lead somewhere, their commands exist."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from personalink.cli import main

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def block(page: str, opening: str) -> str:
    """The fenced block of a page that holds `opening`."""
    blocks = re.findall(r"```\w+\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    return next(b for b in blocks if opening in b)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("mine", "motto"):
        sys.modules.pop(name, None)
    return tmp_path


def test_the_readmes_method_of_ones_own_runs_as_it_stands(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = block("README.md", "class LastItems")
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
    (here / "mine.py").write_text(code)
    (here / "groups" / "context").mkdir(parents=True)
    group = block("README.md", "_target_: mine.LastItems").split("\n", 1)
    assert group[0] == "# groups/context/last_3.yaml"
    (here / "groups" / "context" / "last_3.yaml").write_text(group[1])
    command = re.search(r"personalink (run --config-dir groups .*)", (ROOT / "README.md").read_text())
    assert command
    arguments = command[1].replace('"', "").split()
    assert main([*arguments, "lm=scripted", "data.n_users=2"]) == 0
    assert "last_3" in capsys.readouterr().out


def test_a_context_that_asks_the_model_runs_as_it_stands(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "motto.py").write_text(block("docs/contexts.md", "class Motto"))
    (here / "groups" / "context").mkdir(parents=True)
    (here / "groups" / "context" / "motto.yaml").write_text("# @package context.motto\n_target_: motto.Motto\n")
    command = ["run", "--config-dir", "groups", "lm=scripted", "data.n_users=2", "context=[nopers,motto]"]
    assert main(command) == 0
    assert "motto" in capsys.readouterr().out
    assert list(here.glob("runs/*/*/sealed/products/Motto-*.jsonl"))


def test_every_link_leads_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_group_and_command_that_is_named_exists() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    for group, names in re.findall(r"(?<![\w(])(experiment|task|lm|data|optimizer)=([a-z_0-9,]+)", text):
        for name in names.split(","):
            assert (ROOT / "conf" / group / f"{name}.yaml").exists(), f"{group}={name}"
    for command in set(re.findall(r"^personalink ([a-z-]+)", text, re.MULTILINE)):
        assert command in {
            *(
                "run",
                "plan",
                "merge",
                "cache",
                "table",
                "personas",
                "predict",
                "doctor",
                "export-batch",
                "import-batch",
            ),
            *("report", "compare", "contraction"),
        }
    for script in set(re.findall(r"scripts/[a-z_]+\.(?:sh|py)", text)):
        assert (ROOT / script).exists(), script


def test_nothing_names_a_place_that_users_do_not_have() -> None:
    forbidden = re.compile(r"/wor" + r"k/|\.\./sha" + r"red/|pypi" + r"\.org|pythonhos" + r"ted")
    for path in ROOT.rglob("*"):
        hidden = any(part.startswith(".") and part != ".ci" for part in path.relative_to(ROOT).parts)
        if path.is_file() and not hidden and path.suffix in {".py", ".md", ".sh", ".yaml", ".toml", ".txt", ""}:
            found = forbidden.search(path.read_text(errors="ignore"))
            assert not found, f"{path}: {found}"

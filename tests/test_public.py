"""The public face: which names there are, that they load lazily, and how light the import is."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import personalink as pl

PACKAGE = Path(pl.__file__).parent


def test_every_public_name_is_there_and_told_to_type_checkers() -> None:
    for name in pl.__all__:
        assert getattr(pl, name) is not None
    told = ast.parse((PACKAGE / "__init__.pyi").read_text())
    names = {alias.asname for node in told.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert {*names, "__version__"} == set(pl.__all__)
    assert set(pl.__all__) <= set(dir(pl))


def test_the_names_that_projects_import() -> None:
    assert {
        "PersonaLink", "PersonaState", "Refinement", "Context", "Placed", "LabelTask", "RatingTask", "task", "connect",
        "load_lamp", "load_records", "load_sample", "ScriptedLM", "OptimizerConfig", "Caps", "run", "arun", "diff",
        "PersonalinkError", "LMError", "LeakError", "IncompleteRun",
    } <= set(pl.__all__)  # fmt: skip


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'PersonaLinks'"):
        pl.PersonaLinks  # noqa: B018


def test_importing_is_light() -> None:
    heavy = "('torch', 'dspy', 'hydra', 'omegaconf', 'sklearn', 'transformers', 'numpy', 'aiohttp', 'xllamacpp')"
    code = f"import sys, personalink; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    code = "import sys, personalink as pl; pl.PersonaLink, pl.connect, pl.task, pl.load_lamp, pl.run\n"
    heavy = "('torch', 'dspy', 'hydra', 'omegaconf', 'sklearn', 'transformers', 'xllamacpp')"
    code += f"print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


ROOMS = (
    {"errors", "canonical", "seeding", "text", "background", "spool", "logprobs"},
    {"data.types", "persona", "persona_fit", "persona_io", "gate", "bm25"},
    {"data.lamp", "tasks", "data", "metrics", "generation_metrics", "slicing", "stats"},
    {"lm", "encoder"},
    {"testing"},
    {"agent", "brief", "rewrite", "refinement", "progress", "trial"},
    {"optimizer"},
    {"contexts", "floors", "predictions", "plan"},
    {"fleet"},
    {"personalink", "config", "run_dir"},
    {"sources", "rows", "sealing"},
    {"experiment", "doctor", "merge"},
    {"report", "contraction"},
    {"trackers"},
    {"running", "frames", "dspy"},
    {"cli"},
)


def room(module: str) -> int:
    parts = module.removeprefix("personalink.").split(".")
    for known in (".".join(parts[:2]), parts[0]):
        for level, names in enumerate(ROOMS):
            if known in names:
                return level
    pytest.fail(f"{module} has no room: put it into ROOMS and the design")


def test_no_lower_room_imports_a_higher_one() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(("personalink", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
        if module == "personalink":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                if name and name.startswith("personalink."):
                    assert room(name) <= room(module), f"{module} imports {name}"


def test_files_and_functions_stay_small() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text()
        assert len(text.splitlines()) <= 400, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 60, f"{path.name}: {node.name}"

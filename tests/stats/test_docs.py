"""The example of docs/statistics.md prints what stands beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from personalink import stats

PAGE = (Path(__file__).parents[2] / "docs" / "statistics.md").read_text()


def test_the_example_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    code = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]
    exec(compile(code, "statistics.md", "exec"), {})
    said = re.findall(r"print\(.*# (.+)$", code, re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == said


def test_every_public_function_stands_on_the_page() -> None:
    functions = [name for name in stats.__all__ if name.islower()]
    assert [name for name in functions if f"`{name}" not in PAGE] == []


def test_every_public_name_has_a_docstring_that_names_its_errors() -> None:
    for name in stats.__all__:
        doc = getattr(stats, name).__doc__
        assert doc, name
        if name.islower() and name not in ("macro_f1_difference", "non_inferiority"):  # these refer to their sibling
            assert "Raises:" in doc, name

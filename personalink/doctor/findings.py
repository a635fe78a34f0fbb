"""A finding of the doctor, and how findings are written: one line each. Knows no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `ok` None: it could not be told. `remedy` is "" where nothing needs doing."""

    name: str
    ok: bool | None
    detail: str
    remedy: str = ""


def render_findings(findings: Sequence[Finding]) -> str:
    """One line a finding: what was found and, where something is to be done, what."""
    signs = {True: "ok  ", False: "FAIL", None: "?   "}
    width = max((len(f.name) for f in findings), default=0)
    lines = [
        f"{signs[f.ok]}  {f.name:<{width}}  {f.detail}" + (f"  → {f.remedy}" if f.remedy else "") for f in findings
    ]
    return "\n".join(lines)

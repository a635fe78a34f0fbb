"""Where a run will stand: whether its prompts fit, its folders can be written, and what is optional is at hand.

Knows plans, folders and packages; asks no model, imports nothing heavy, and leaves no file behind.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

from personalink.config import RunConfig
from personalink.doctor.findings import Finding
from personalink.encoder import ENCODER, INSTALL, encoder_folder, how_to_get
from personalink.lm.cache import cache_path
from personalink.plan import Plan

LITTLE_BYTES = 10**9
"""Free space under which it is told: a journal takes about a kilobyte an answer."""


def look_at_run(config: RunConfig, plan: Plan | None) -> list[Finding]:
    """One finding a check, in a fixed order: planned prompts, run folder, cache folder, encoder.

    Args:
        config: the run's. plan: made with the model's own window and counter; None leaves the prompts out.
    """
    findings = [] if plan is None else [_prompts(plan)]
    findings.append(_folder("run folder", config.folder, False, "give another runs_dir"))
    cache = cache_path(config.cache)
    if cache is not None:
        findings.append(_folder("cache folder", cache.parent, None, "give another cache, or cache=off"))
    return [*findings, _encoder()]


def _prompts(plan: Plan) -> Finding:
    """The window against the longest prompt that is known now."""
    name = "planned prompts"
    if plan.longest is None:
        return Finding(name, None, "none is known before the model has answered")
    if plan.window is None:
        return Finding(name, None, f"the window is unknown; the longest: {plan.longest}", "set lm.window")
    if not plan.too_long:
        return Finding(name, True, f"all fit {plan.window:,} tokens; the longest: {plan.longest}")
    detail = f"{len(plan.too_long)} may not fit {plan.window:,} tokens; the longest: {plan.longest}"
    remedy = f"serve a window of {plan.longest.tokens:,} (vLLM: --max-model-len), or leave the row out"
    return Finding(name, False, detail, remedy)


def _folder(name: str, folder: Path, broken: bool | None, remedy: str) -> Finding:
    """Write, flush to the disk and remove a file in `folder`, or in the nearest folder above it that is there."""
    there = folder.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".personalink-") as file:
            file.write(b"doctor")
            file.flush()
            os.fsync(file.fileno())
        free = shutil.disk_usage(there).free
    except OSError as error:
        return Finding(name, broken, f"{folder} cannot be written: {error.strerror or error}", remedy)
    detail = f"{folder} can be written, {free / 1e9:,.1f} GB free"
    return Finding(name, True, detail, "make room: it is little for a long run" if free < LITTLE_BYTES else "")


def _encoder() -> Finding:
    """The sentence encoder of the contraction analyser; found by name, so that nothing heavy is imported."""
    if importlib.util.find_spec("sentence_transformers") is None:
        detail = "sentence-transformers is not installed; only the analyser needs it"
        return Finding("encoder", None, detail, INSTALL)
    where = encoder_folder()
    if where is None:
        return Finding("encoder", None, f"{ENCODER} is not on this machine; only the analyser needs it", how_to_get())
    return Finding("encoder", True, f"{ENCODER} in {where}")

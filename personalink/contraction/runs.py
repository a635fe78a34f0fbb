"""The analyser on a run's directory: which users are measured, and what is written. Reads sealed files alone."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from personalink.canonical import pretty_json, write_atomic
from personalink.contraction.analysis import TOLERANCE
from personalink.contraction.embedding import Remembered
from personalink.contraction.personas import drift, has_loop, of_refinements
from personalink.contraction.record import Contraction
from personalink.encoder import Encoder
from personalink.errors import ConfigError, IncompleteRun, IntegrityError, StorageError, UsageError
from personalink.refinement import Refinement
from personalink.report.evidence import CONTRACTION
from personalink.report.results import refinements_of
from personalink.run_dir import RunDir, find_run


def of_run(
    where: str | Path | RunDir,
    encoder: Encoder,
    *,
    users: int | None = None,
    against: str | Path | RunDir | None = None,
    draws: int = 10_000,
    confidence: float = 0.95,
    tolerance: float = TOLERANCE,
) -> Contraction:
    """How the kept personas of a run move.

    Args:
        where: a run, its directory, or a folder that holds exactly one run.
        users: the first so many of the manifest that have a loop (the paper: 15); None for all.
        against: an older run, for drift of the same users' personas.
        encoder, draws, confidence, tolerance: see `analyse`. The bootstrap has the run's seed.

    Raises:
        UsageError: no run there, no refinement in it, or an older run of another task or of other users.
        ConfigError: a setting is out of range.
        IncompleteRun: nothing of a run is sealed yet.
        IntegrityError: a sealed file is missing, altered or damaged.
        DataError: no user has a loop; or as `analyse`.
    """
    if users is not None and (isinstance(users, bool) or not isinstance(users, int) or users < 1):
        msg = f"users is {users!r}; it must be a whole number of at least 1, or None for all"
        raise ConfigError(msg)
    run, older = _run(where), None if against is None else _run(against)
    task, seed, found = _opened(run)
    memory = Remembered.of(encoder)
    chosen = _first(found.values(), users)
    measured = of_refinements(chosen, memory, seed=seed, draws=draws, confidence=confidence, tolerance=tolerance)
    if older is None:
        return measured
    older_task, _, theirs = _opened(older)
    if older_task != task:
        msg = f"{older.path} is a run of task {older_task}, not {task}; drift needs personas of the same task"
        raise UsageError(msg)
    new = {one.user: found[one.user].persona for one in measured.users}
    old = {user: one.persona for user, one in theirs.items()}
    return replace(measured, drift=drift(new, old, memory, against=older.path.resolve().name))


def save(run: RunDir, measured: Contraction) -> tuple[Path, Path]:
    """Write what was measured into the run, as JSON for the report and as CSV; derived, so outside `sealed/`.

    Returns:
        The two files.

    Raises:
        StorageError: the folder cannot be written.
    """
    path = run.path / CONTRACTION
    try:
        write_atomic(path, pretty_json(measured.as_dict()))
        write_atomic(path.with_suffix(".csv"), as_csv(measured))
    except OSError as error:
        msg = f"{path.parent} cannot be written: {error.strerror or error}"
        raise StorageError(msg) from None
    return path, path.with_suffix(".csv")


def as_csv(measured: Contraction) -> str:
    """A line a user and depth: the persona's place in the plane and, from depth 1, how the pass moved it.

    Columns: user, depth, x, y, displacement, changed, accepted, and a displacement a field. A lone surrogate in a
    user's id is written as its escape.
    """
    file = io.StringIO()
    write = csv.writer(file, lineterminator="\n").writerow
    write(["user", "depth", "x", "y", "displacement", "changed", "accepted", *measured.fields])
    for one in measured.users:
        write([one.user, 0, *one.points[0]])
        for t in range(measured.passes):
            accepted = "" if one.accepted is None else int(one.accepted[t])
            moved = [one.displacement[t], int(one.changed[t]), accepted, *(part[t] for part in one.fields.values())]
            write([one.user, t + 1, *one.points[t + 1], *moved])
    return file.getvalue().encode("utf-8", "backslashreplace").decode()


def _run(where: str | Path | RunDir) -> RunDir:
    return where if isinstance(where, RunDir) else find_run(where)


def _opened(run: RunDir) -> tuple[str, int, dict[str, Refinement]]:
    """The task's name, the run's seed, and its refinements in the manifest's order."""
    if not (run.sealed / "seal.json").exists():
        msg = f"{run.path} is not finished: nothing of it is sealed yet; run its command again first"
        raise IncompleteRun(msg)
    run.check_seal()
    found = refinements_of(run)
    if not found:
        msg = f"{run.path} holds no refinement: none of its rows is a PersonaLink row, or no user was finished"
        raise UsageError(msg)
    config, manifest = run.read_json("sealed/config.json"), run.read_json("sealed/manifest.json")
    try:
        order = [entry["user"] for entry in manifest["entries"]]
        return config["task"]["name"], config["seed"], {user: found[user] for user in order if user in found}
    except (KeyError, TypeError) as error:
        msg = f"{run.sealed} is damaged: {type(error).__name__} {error}; run the same command again to seal it anew"
        raise IntegrityError(msg) from None


def _first(refinements: Iterable[Refinement], users: int | None) -> list[Refinement]:
    """All, or those up to the one with the `users`-th loop."""
    chosen: list[Refinement] = []
    for one in refinements:
        if users is not None and sum(map(has_loop, chosen)) == users:
            break
        chosen.append(one)
    return chosen

"""What a run tells of its users, read a user at a time: a line for each, or everything about one.

Reads sealed files line by line, so that a run of any size takes little memory, and one of which only a part is sealed
is read as far as it goes. Knows nothing of how anything is shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from personalink.canonical import canonical_json
from personalink.config import ShardConfig
from personalink.contexts.persona import Refine
from personalink.errors import IncompleteRun, IntegrityError, PersonaError, UsageError
from personalink.predictions import Prediction
from personalink.refinement import Refinement
from personalink.report.answers import Judged
from personalink.run_dir import RunDir, find_run
from personalink.tasks import RatingTask, Task, task_from
from personalink.text import nearest

REFINEMENTS = f"sealed/products/Refine-{Refine().key[:8]}.jsonl"
"""Where a run keeps its refinements, a user a line."""

_ENDS = (
    ("converged", "no errors left"),
    ("fixed point", "fixed point"),
    ("stopped", "stopped"),
    ("history too short", "too short"),
)
"""How a pass that had nothing to do says why → how a line says it."""


@dataclass(frozen=True, slots=True)
class Line:
    """One user's loop in numbers.

    Attributes:
        user: the id. history: items; None when unknown.
        slice, audit: score by depth 0…R in the gate's unit, higher is better; empty without such a slice. The gate
            maximised the first; nobody selected on the second.
        kept: candidates that the gate accepted. tried: passes in which a rewrite was asked for. passes: R.
        ended: "all passes", or why the last ones had nothing to do: "no errors left", "fixed point", "stopped", "too
            short"; "" where there were no passes.
        errors: slice items without the best points, by depth 0…R.
        tokens: of the persona kept at the end. calls: all of the loop, the audit's with them.
        flags: such as "history too short".
    """

    user: str
    history: int | None
    slice: tuple[float, ...]
    audit: tuple[float, ...]
    kept: int
    tried: int
    passes: int
    ended: str
    errors: tuple[int, ...]
    tokens: int
    calls: int
    flags: tuple[str, ...] = ()

    @property
    def gain(self) -> float | None:
        """Slice score of the last persona above that of the empty one: never negative; None without a slice."""
        return self.slice[-1] - self.slice[0] if self.slice else None

    @property
    def audit_gain(self) -> float | None:
        """The same on the audit slice, where it may be negative; None without one."""
        return self.audit[-1] - self.audit[0] if self.audit else None

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {**asdict(self), "gain": self.gain, "audit_gain": self.audit_gain}


@dataclass(frozen=True)
class People:
    """The users of one run.

    Args:
        run: its directory. config: its sealed configuration. task: what was asked.
        manifest: the sealed manifest; empty where the run did not get that far.
    """

    run: RunDir
    config: Mapping[str, Any]
    task: Task
    manifest: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, where: str | RunDir) -> People:
        """The users of the run at a path.

        Raises:
            UsageError: there is no run, or there are several.
            IntegrityError: its configuration or manifest is damaged.
        """
        run = where if isinstance(where, RunDir) else find_run(where)
        config, manifest = run.read_json("sealed/config.json"), run.read_json("sealed/manifest.json") or {}
        try:
            people = cls(run, config, task_from(config["task"]), manifest)
            people.entries  # noqa: B018 - read now, so that damage is told now
        except (KeyError, TypeError, AttributeError) as error:
            msg = f"{run.sealed} is damaged: {type(error).__name__} {error}; run the same command again to seal it anew"
            raise IntegrityError(msg) from None
        return people

    @cached_property
    def entries(self) -> Mapping[str, Mapping[str, Any]]:
        """User → entry of the manifest, in its order; those of other shards are left out."""
        shard = ShardConfig(**self.config["shard"])
        return {e["user"]: e for e in self.manifest.get("entries", ()) if shard.holds(e["user"])}

    @cached_property
    def best_points(self) -> int:
        """The most points of a slice item, by what the gate counted."""
        metric = self.config["optimizer"]["gate_metric"]
        task = replace(self.task, metric=metric) if metric and isinstance(self.task, RatingTask) else self.task
        return task.best_points

    def lines(self) -> Iterator[Line]:
        """A line for each user who has a refinement, sorted by id, as they are read.

        Raises:
            IntegrityError: a record is damaged; names file and line.
        """
        for number, text in self._texts(REFINEMENTS):
            try:
                record = json.loads(text)
                user = record["user"]
                entry = self.entries.get(user, {})
                line = _line(user, entry.get("history"), record["product"], self.best_points)
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise self._damaged(number, error) from None
            yield line

    def unfinished(self, finished: set[str]) -> dict[str, str]:
        """User → why nothing of them is sealed, for those of the manifest who are not in `finished`."""
        why = self.run.status.get("incomplete") or {}
        return {user: str(why.get(user, "not begun")) for user in self.entries if user not in finished}

    def refinement(self, user: str) -> Refinement | None:
        """One user's loop; None where there is none.

        Raises:
            IntegrityError: the record is damaged; names file and line.
        """
        wanted = f'"user":{canonical_json(user)}}}'
        for number, text in self._texts(REFINEMENTS):
            if text.endswith(wanted):
                try:
                    return Refinement.from_dict(json.loads(text)["product"])
                except (IntegrityError, PersonaError, LookupError, TypeError, ValueError, AttributeError) as error:
                    raise self._damaged(number, error) from None
        return None

    def answers(self, user: str) -> list[tuple[str, Judged]]:
        """("floor" or "method", answer beside its gold), of one user: floors first, rows in the table's order.

        Raises:
            IntegrityError: a record is damaged.
        """
        golds = {g["query"]: g["gold"] for g in self._of_user("golds", user)}
        found = []
        for kind, name in (("floor", "floors"), ("method", "predictions")):
            for record in self._of_user(name, user):
                read = Prediction.from_dict(record)
                one = read if kind == "floor" else read.reread(self.task)
                found.append((kind, Judged(one, golds.get(one.query))))
        return found

    def nothing(self) -> UsageError | IncompleteRun:
        """Why a run has no refinement at all."""
        targets = [str(settings.get("_target_", "")) for settings in self.config["context"].values()]
        if not any(target.rpartition(".")[2] in ("PersonaLink", "Refine") for target in targets):
            msg = f"{self.run.path} holds no refinement: none of its rows is a PersonaLink row"
            return UsageError(msg)
        msg = f"{self.run.path} holds no refinement yet: no user is finished and sealed; its command goes on"
        return IncompleteRun(msg)

    def nobody(self, user: str, known: Sequence[str]) -> UsageError | IncompleteRun:
        """Why a run has no refinement of a user; `known` are those of whom it has one."""
        if not known and isinstance(why := self.nothing(), UsageError):
            return why
        if user in self.entries:
            msg = f"user {user!r} is not finished ({self.unfinished(set())[user]}); the run's command goes on"
            return IncompleteRun(msg)
        near = nearest(user, {*known, *self.entries})
        return UsageError(f"no user {user!r} in this run" + (f"; did you mean {near!r}?" if near else ""))

    def finished(self) -> set[str]:
        """Users whose answers are sealed."""
        return {record["user"] for record in self._records("golds")}

    def _of_user(self, name: str, user: str) -> Iterator[Mapping[str, Any]]:
        """The records of one user in a sealed file of JSON lines."""
        return (r for r in self._records(name, f'"user":{canonical_json(user)}') if r["user"] == user)

    def _records(self, name: str, holding: str = "") -> Iterator[Mapping[str, Any]]:
        """The records of a sealed file of JSON lines whose text holds some text."""
        file = f"sealed/{name}.jsonl"
        for number, text in self._texts(file):
            if holding in text:
                try:
                    record = json.loads(text)
                    record["user"]
                except (ValueError, TypeError, LookupError) as error:
                    raise self._damaged(number, error, file) from None
                yield record

    def _texts(self, name: str) -> Iterator[tuple[int, str]]:
        """The lines of a file with their numbers, one at a time; none where the file is absent."""
        path = self.run.path / name
        try:
            with path.open(encoding="utf-8", newline="\n") as file:
                for number, text in enumerate(file, 1):
                    yield number, text.removesuffix("\n")
        except FileNotFoundError:
            return
        except (UnicodeDecodeError, OSError) as error:
            msg = f"{path} is damaged: {error}"
            raise IntegrityError(msg) from None

    def _damaged(self, number: int, error: Exception, name: str = REFINEMENTS) -> IntegrityError:
        what = f"{type(error).__name__}: {error}"
        return IntegrityError(f"{self.run.path / name} is damaged in line {number} ({what})")


def _line(user: str, history: int | None, loop: Mapping[str, Any], best: int) -> Line:
    """A line from the record of a refinement, whose personas are not looked into.

    Raises:
        LookupError, TypeError, AttributeError: it is no such record.
    """
    passes = loop["passes"]
    scores = [loop["initial"], *(p["after"] for p in passes)] if loop["slice"] else []
    if not isinstance(user, str):
        msg = f"its user is {user!r:.60}"
        raise TypeError(msg)
    return Line(
        user=user,
        history=history,
        slice=tuple(score["value"] for score in scores),
        audit=tuple(score["value"] for score in loop["audit"]),
        kept=sum(p["accepted"] for p in passes),
        tried=sum(p["calls"] > 0 for p in passes),
        passes=len(passes),
        ended=_ended(passes),
        errors=tuple(sum(points < best for points in score["points"]) for score in scores),
        tokens=(passes[-1]["persona"] if passes else loop["empty"])["tokens"],
        calls=loop["calls"] + loop["audit_calls"],
        flags=tuple(loop["flags"]),
    )


def _ended(passes: Sequence[Mapping[str, Any]]) -> str:
    """How a loop ended (see `Line.ended`)."""
    if not passes:
        return ""
    last = passes[-1]
    if last["calls"] > 0:
        return "all passes"
    return next((short for start, short in _ENDS if last["reason"].startswith(start)), str(last["reason"]))


def line_of(user: str, history: int | None, refinement: Refinement, best_points: int) -> Line:
    """The line of a refinement that is at hand."""
    return _line(user, history, refinement.as_dict(), best_points)

"""What the contraction analyser measured: plain frozen records, JSON both ways. Knows no encoder.

Displacement is the Euclidean distance between unit-length embeddings of a persona before and after a pass: in [0, 2],
0 where the encoder sees no change. A pass is counted from 1, a depth from 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from personalink.contraction.decay import Decay, Fit
from personalink.errors import DataError
from personalink.stats.records import Interval

VERSION = 1


@dataclass(frozen=True, slots=True)
class UserPath:
    """One user's way through the passes.

    Attributes:
        user: the id.
        displacement: one a pass. changed: whether that pass changed the text at all.
        text_fixed: the depth from which on the text stays the same; None where the last pass still changed it.
        fixed: the depth from which on every displacement is at most the tolerance; None where the last one is not.
        points: a (x, y) a depth, in the plane of all users' main directions.
        accepted: whether the gate kept the pass's candidate; None where there was no gate.
        fields: field → its displacement a pass; empty where texts have no fields.
    """

    user: str
    displacement: tuple[float, ...]
    changed: tuple[bool, ...]
    text_fixed: int | None
    fixed: int | None
    points: tuple[tuple[float, float], ...]
    accepted: tuple[bool, ...] | None = None
    fields: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def moved(self) -> bool:
        """Whether any pass changed the text."""
        return any(self.changed)


@dataclass(frozen=True, slots=True)
class FieldMotion:
    """How one field of the personas moves.

    Attributes:
        means: mean displacement of that field over users, a pass.
        changed: share of users whose field a pass changed, in [0, 1].
    """

    means: tuple[float, ...]
    changed: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class UserDrift:
    """How far one user's kept persona lies from the one that an older run kept.

    Attributes:
        user: the id. same: whether both are the same text.
        whole: displacement of the whole render. fields: field → displacement of that field.
    """

    user: str
    same: bool
    whole: float
    fields: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Drift:
    """The personas of two runs, same user beside same user and same field beside same field.

    Attributes:
        against: the older run's name. users: those in both, in this run's order.
        only_here, only_there: how many users only one of the two has.
    """

    against: str
    users: tuple[UserDrift, ...]
    only_here: int = 0
    only_there: int = 0

    @property
    def same(self) -> float:
        """Share of users whose text is the same, in [0, 1]."""
        return _mean([float(one.same) for one in self.users])

    @property
    def whole(self) -> float:
        """Mean displacement of the whole persona."""
        return _mean([one.whole for one in self.users])

    @property
    def fields(self) -> dict[str, float]:
        """Field → mean displacement of that field."""
        return {name: _mean([one.fields[name] for one in self.users]) for name in self.users[0].fields}


@dataclass(frozen=True, slots=True)
class Contraction:
    """How the kept personas of some users move from pass to pass.

    Attributes:
        encoder: its id. empty: the text that stands for an empty persona.
        tolerance: displacement up to which a persona counts as fixed.
        seed, draws: of the bootstrap over users.
        users: one path a user, in the order given.
        decay: mean displacements, ratios, L and R², with intervals.
        accepted: share of users whose candidate the gate kept, a pass; None where there was no gate.
        fields: field → how it moves; empty where texts have no fields.
        explained: share of all variance along the two directions of `UserPath.points`.
        texts: how many different texts were encoded. overlong: how many of them the encoder reads only the start of;
            None where it cannot tell.
        left_out: user → why there is nothing to measure.
        drift: against an older run; None where none was given.
    """

    encoder: str
    empty: str
    tolerance: float
    seed: int
    draws: int
    users: tuple[UserPath, ...]
    decay: Decay
    accepted: tuple[float, ...] | None
    fields: Mapping[str, FieldMotion]
    explained: tuple[float, float]
    texts: int
    overlong: int | None
    left_out: Mapping[str, str] = field(default_factory=dict)
    drift: Drift | None = None

    @property
    def passes(self) -> int:
        """How many passes there are."""
        return len(self.decay.means)

    @property
    def changed(self) -> tuple[float, ...]:
        """Share of users whose text a pass changed, in [0, 1]."""
        return tuple(_mean([float(one.changed[t]) for one in self.users]) for t in range(self.passes))

    @property
    def steps(self) -> tuple[float | None, ...]:
        """Mean displacement among those whose text the pass changed: `changed` × `steps` = `means`; None for nobody.

        It tells whether passes move less because a persona changes less, or because fewer are changed at all.
        """
        moved = [[one.displacement[t] for one in self.users if one.changed[t]] for t in range(self.passes)]
        return tuple(_mean(some) if some else None for some in moved)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON; an infinite end of an interval is null. Means over users stand beside what they are made of."""
        data: dict[str, Any] = _plain(asdict(self))
        data["decay"]["interval"] = _write(self.decay.interval)
        data["decay"]["ratios"] = [_write(ratio) for ratio in self.decay.ratios]
        data |= {"version": VERSION, "n": len(self.users), "passes": self.passes}
        data |= {"changed": list(self.changed), "steps": list(self.steps)}
        if self.drift is not None:
            data["drift"] |= {"same": self.drift.same, "whole": self.drift.whole, "mean_fields": self.drift.fields}
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Contraction:
        """The inverse of `as_dict`.

        Raises:
            DataError: it is not what `as_dict` wrote, or another version of it.
        """
        if not isinstance(data, Mapping) or data.get("version") != VERSION:
            msg = f"this is not a contraction of version {VERSION}; run `personalink contraction` again"
            raise DataError(msg)
        try:
            return _read(data)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            msg = f"this contraction is damaged ({type(error).__name__} {error}); run `personalink contraction` again"
            raise DataError(msg) from None


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def _plain(value: Any) -> Any:
    """Tuples as lists, all the way down, as JSON has them."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def _write(interval: Interval | None) -> dict[str, Any] | None:
    if interval is None:
        return None
    return {**asdict(interval), "high": interval.high if math.isfinite(interval.high) else None}


def _read_interval(data: Mapping[str, Any] | None) -> Interval | None:
    if data is None:
        return None
    return Interval(**{**data, "high": math.inf if data["high"] is None else data["high"]})


def _read(data: Mapping[str, Any]) -> Contraction:
    decay, drift = data["decay"], data["drift"]
    return Contraction(
        **{name: data[name] for name in ("encoder", "empty", "tolerance", "seed", "draws", "texts", "overlong")},
        users=tuple(_read_path(one) for one in data["users"]),
        decay=Decay(
            means=tuple(decay["means"]),
            fit=Fit(**decay["fit"]) if decay["fit"] else None,
            no_fit=decay["no_fit"],
            interval=_read_interval(decay["interval"]),
            ratios=tuple(_read_interval(ratio) for ratio in decay["ratios"]),
        ),
        accepted=None if data["accepted"] is None else tuple(data["accepted"]),
        fields={name: FieldMotion(tuple(one["means"]), tuple(one["changed"])) for name, one in data["fields"].items()},
        explained=(data["explained"][0], data["explained"][1]),
        left_out=dict(data["left_out"]),
        drift=_read_drift(drift) if drift else None,
    )


def _read_path(data: Mapping[str, Any]) -> UserPath:
    return UserPath(
        user=data["user"],
        displacement=tuple(data["displacement"]),
        changed=tuple(data["changed"]),
        text_fixed=data["text_fixed"],
        fixed=data["fixed"],
        points=tuple((x, y) for x, y in data["points"]),
        accepted=None if data["accepted"] is None else tuple(data["accepted"]),
        fields={name: tuple(values) for name, values in data["fields"].items()},
    )


def _read_drift(data: Mapping[str, Any]) -> Drift:
    users = tuple(UserDrift(**one) for one in data["users"])
    return Drift(data["against"], users, data["only_here"], data["only_there"])
